"""Citations and judges. Only a quote that was found in its document is shown to a judge, as it stands there.

Judges are asked in the analysis phase, one guarded call each; drafting reads their answers from the journal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agents.conf import clock
from agents.definitions.catalogue import judge_models
from agents.engine.prompting import journaled_call
from agents.enums import Outcome, ToolIntent
from agents.exceptions import ModelSuspended, RetryLater
from agents.models import AgentSession, ToolCall
from agents.sessions.reads import calls_latest
from agents.sessions.transcripts import session_note_judges
from agents.text.blocks import neutralised, nonce_of
from agents.text.quotes import QuotableText
from agents.types import End, SliceOver
from agents.walk.intake import Passage, Reading, Slice, documents_text
from agents.walk.parsing import Analysis, ParsedFinding, parse_judgement
from agents.walk.prompts import judge_question

UNDER: Final = "judge:"
CLAIM_CHARS: Final = 4_000


@dataclass(frozen=True)
class Cited:
    """A finding with the document it cites, if the run has read it, and the offset of its quote, if found."""

    finding: ParsedFinding
    document_id: str = ""
    start: int | None = None


@dataclass(frozen=True)
class Votes:
    """Judges whose answer can be read, and how many of them say that the quote supports the finding."""

    agreed: int = 0
    asked: int = 0


def cited(session: AgentSession, analysis: Analysis, reading: Reading) -> list[Cited]:
    """Return every finding, in order, checked against the document that it names, or against all that were read."""
    passages: dict[str, list[Passage]] = {}
    for passage in reading.passages:
        passages.setdefault(passage.document_id, []).append(passage)
    texts = _citable(session, passages, reading) if analysis.findings else {}
    quotable = {document_id: _quotable(text) for document_id, text in texts.items()}
    return [_located(finding, passages, quotable) for finding in analysis.findings]


def _citable(session: AgentSession, passages: Iterable[str], reading: Reading) -> dict[str, str]:
    """Return the text of every document that was read, in order, by id."""
    ids = [*passages, *(_read_by_skills(session) if session.spec.is_agentic else ())]
    texts = {**reading.texts, **documents_text(session, [one for one in ids if one not in reading.texts])}
    return {one: texts[one] for one in ids if one in texts}


def _read_by_skills(session: AgentSession) -> list[str]:
    """Return the documents that the steps of the run have read a part of."""
    rows = ToolCall.objects.filter(session_id=session.pk, name="read_document", outcome=Outcome.SUCCESS)
    found = rows.order_by("pk").values_list("result__document", flat=True)
    return list(dict.fromkeys(filter(None, found)))


def _quotable(text: str) -> list[QuotableText]:
    """Return a document as it is, and as it was shown to the model if that differs."""
    return [QuotableText(one) for one in dict.fromkeys([text, neutralised(text)])]


def _located(
    finding: ParsedFinding, passages: Mapping[str, list[Passage]], texts: Mapping[str, list[QuotableText]]
) -> Cited:
    """Match a finding without a document to the first that holds its quote; a wrong document matches none.

    A quote that is found becomes the slice of the document that it stands for.
    """
    named = finding.document_id
    for document_id in [named] if named else texts:
        hint = _hint(finding, passages.get(document_id, ()))
        forms = texts.get(document_id, [])
        place = next((place for form in forms if (place := form.find(finding.quote, hint))), None)
        if place is not None:
            return Cited(replace(finding, quote=forms[0].text[slice(*place)]), document_id, place[0])
    return Cited(finding, named if named in texts else "")


def _hint(finding: ParsedFinding, passages: Sequence[Passage]) -> int:
    """A model counts from the beginning of the block that it was shown."""
    return finding.start + next((one.start for one in passages if finding.quote in one.text), 0)


def ask_judges(work: Slice, analysis: Analysis, reading: Reading) -> End | None:
    if not work.spec.judge_citations:
        return None
    found = cited(work.session, analysis, reading)
    verified = [(number, one) for number, one in enumerate(found) if one.start is not None]
    judges = judge_models()
    if not verified or not judges:
        return None
    chosen = session_note_judges(work.session, citations=len(verified), judges=judges, now=clock())
    for number, one in verified:
        for place, model in enumerate(chosen):
            question = _question(work.session, number, one, model)
            try:
                asked = journaled_call(work.session, ToolIntent.RUN_SKILL, f"{UNDER}{number}:{place}", question)
            except (RetryLater, ModelSuspended):
                continue  # no run waits for a judge; one that does not answer has no vote
            if work.is_over and not asked.replayed:  # a replayed call is no progress
                return SliceOver()
    return None


def _question(session: AgentSession, number: int, one: Cited, model: str) -> dict[str, Any]:
    claim = f"{one.finding.title}\n{one.finding.content}"[:CLAIM_CHARS]
    nonce = nonce_of(session.public_id, f"{UNDER}{number}")
    return judge_question(claim=claim, quote=one.finding.quote, nonce=nonce, model=model)


def votes_of(session: AgentSession) -> dict[int, Votes]:
    """Return the judges' votes by the number of the finding. An unreadable answer is not counted."""
    votes: dict[int, Votes] = {}
    for key, made in calls_latest(session, under=[UNDER]).items():
        text = made.result.get("text") if made.outcome == Outcome.SUCCESS and isinstance(made.result, dict) else None
        agrees = parse_judgement(str(text or ""))
        if agrees is not None:
            number = int(key.split(":")[1])
            before = votes.get(number, Votes())
            votes[number] = Votes(before.agreed + agrees, before.asked + 1)
    return votes
