"""Citations: which quotes of an analysis stand in their documents, and what the judge models say of those that do.

Only a quote that was found in its source, character by character, is shown to a judge. Judges are asked in the analysis
phase, one guarded call each; drafting reads their answers from the journal.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agents.conf import clock, judges
from agents.engine.calls import call
from agents.enums import Outcome, ToolIntent
from agents.models import AgentSession, Document, ToolCall
from agents.sessions.reads import calls_latest
from agents.sessions.transcripts import session_note_judges
from agents.text.blocks import neutralised, nonce_of
from agents.text.chunks import verify
from agents.types import End, SliceOver
from agents.walk.calls import Slice
from agents.walk.intake import Passage, Reading
from agents.walk.parsing import Analysis, ParsedFinding, parse_judgement
from agents.walk.prompts import judge_question

UNDER: Final = "judge:"
CLAIM_CHARS: Final = 4_000


@dataclass(frozen=True)
class Cited:
    """A finding with its document, if it is one that the run has read, and where its quote stands, if it does."""

    finding: ParsedFinding
    document_id: str = ""
    start: int | None = None


@dataclass(frozen=True)
class Votes:
    """Judges who gave an answer that can be read, and how many of them say that the quote supports the finding."""

    agreed: int = 0
    asked: int = 0


def cited(session: AgentSession, analysis: Analysis, reading: Reading) -> list[Cited]:
    """Every finding, in order, held against the text of the document that it names, or of all that were read."""
    passages: dict[str, list[Passage]] = {}
    for passage in reading.passages:
        passages.setdefault(passage.document_id, []).append(passage)
    texts = _texts(session, [*passages, *_read_by_skills(session)]) if analysis.findings else {}
    return [_located(finding, passages, texts) for finding in analysis.findings]


def _read_by_skills(session: AgentSession) -> list[str]:
    """Documents of which the steps of the run have read a part."""
    rows = ToolCall.objects.filter(session_id=session.pk, name="read_document", outcome=Outcome.SUCCESS)
    found = rows.order_by("pk").values_list("result__document", flat=True)
    return list(dict.fromkeys(filter(None, found)))


def _texts(session: AgentSession, read: Iterable[str]) -> dict[str, str]:
    """The documents as they are, not as they were masked for the model; only the owner's own."""
    ids = [uuid.UUID(public_id) for public_id in read]
    rows = Document.objects.filter(public_id__in=ids, owner_id=session.owner_id, deleted_at__isnull=True)
    return {str(public_id): text for public_id, text in rows.values_list("public_id", "text")}


def _located(finding: ParsedFinding, passages: Mapping[str, list[Passage]], texts: Mapping[str, str]) -> Cited:
    """A finding that names no document belongs to the first that holds its quote; one that names it wrong, to none."""
    named = finding.document_id
    for document_id in [named] if named else texts:
        text, hint = texts.get(document_id, ""), _hint(finding, passages.get(document_id, ()))
        place = verify(finding.quote, text, hint) or verify(finding.quote, neutralised(text), hint)  # as it was shown
        if place is not None:
            return Cited(replace(finding, quote=text[slice(*place)]), document_id, place[0])
    return Cited(finding, named if named in texts else "")


def _hint(finding: ParsedFinding, passages: Sequence[Passage]) -> int:
    """A model counts from the beginning of the block that it was shown."""
    return finding.start + next((one.start for one in passages if finding.quote in one.text), 0)


def ask_judges(work: Slice, analysis: Analysis, reading: Reading) -> End | None:
    if not work.wants("judge_citations"):
        return None
    found = cited(work.session, analysis, reading)
    verified = [(number, one) for number, one in enumerate(found) if one.start is not None]
    if not verified or not judges():
        return None
    chosen = session_note_judges(work.session, citations=len(verified), judges=judges(), now=clock())
    for number, one in verified:
        for place, model in enumerate(chosen):
            question = _question(work.session, number, one, model)
            asked = call(work.session, ToolIntent.RUN_SKILL, f"{UNDER}{number}:{place}", question)
            if work.is_over and not asked.replayed:  # what was replayed is no progress
                return SliceOver()
    return None


def _question(session: AgentSession, number: int, one: Cited, model: str) -> dict[str, Any]:
    claim = f"{one.finding.title}\n{one.finding.content}"[:CLAIM_CHARS]
    nonce = nonce_of(session.public_id, f"{UNDER}{number}")
    return judge_question(claim=claim, quote=one.finding.quote, nonce=nonce, model=model)


def votes_of(session: AgentSession) -> dict[int, Votes]:
    """What the judges said, by the number of the finding. An answer that cannot be read is none."""
    votes: dict[int, Votes] = {}
    for key, made in calls_latest(session, under=UNDER).items():
        text = made.result.get("text") if made.outcome == Outcome.SUCCESS and isinstance(made.result, dict) else None
        said = parse_judgement(str(text or ""))
        if said is not None:
            number = int(key.split(":")[1])
            before = votes.get(number, Votes())
            votes[number] = Votes(before.agreed + said, before.asked + 1)
    return votes
