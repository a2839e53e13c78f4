"""Analysis: one guarded model request about the inputs, or steps in which the model may call skills; then the judges.

Without a target or anything to read there is no request. What the model answered is read from rows, through `reply_of`;
it is data and picks no phase of the run.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from django.conf import settings

from agents.conf import clock
from agents.definitions.in_force import loop_config_of
from agents.engine.background import background_of, task_text
from agents.engine.loop import BUSY, BUSY_WAIT, Answered
from agents.engine.prompting import instructions_of, journaled_call, model_of, skills_of
from agents.engine.replies import without_false_claims
from agents.engine.turns import SessionKey, run_agent_turn
from agents.enums import Outcome, TerminalReason, ToolIntent
from agents.exceptions import ModelSuspended, NotFound, RetryLater, SkillChanged
from agents.knowledge.playbooks import playbook_rendered, playbook_runnable, skill_text
from agents.models import AgentSession, Document, Message, PromptSkill, ToolCall
from agents.policy.guardrails import CONTINUE, CUT_OFF, Stop, joined
from agents.sessions.reads import arguments_asked, call_latest, calls_latest
from agents.sessions.transcripts import (
    Entry,
    Inputs,
    note_inputs,
    session_note_judges,
    session_note_wait,
    transcript_of,
)
from agents.text.blocks import Part, neutralised, nonce_of
from agents.text.quotes import QuotableText
from agents.types import Asleep, End, Finished, SliceOver
from agents.walk.intake import Passage, Reading, Slice, event_of, reading_of
from agents.walk.parsing import Analysis, ParsedFinding, parse_analysis, parse_judgement
from agents.walk.prompts import ANSWER_TOKENS, agentic_opening, analysis_question, judge_question
from audit.redaction import redact_exception

# --- Citations and judges ---
#
# Only a quote that was found in its document is shown to a judge, as it stands there. Judges are asked in the analysis
# phase, one guarded call each; drafting reads their answers from the journal.


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
    texts = _texts(session, [*passages, *_read_by_skills(session)]) if analysis.findings else {}
    quotable = {document_id: _quotable(text) for document_id, text in texts.items()}
    return [_located(finding, passages, quotable) for finding in analysis.findings]


def _read_by_skills(session: AgentSession) -> list[str]:
    """Return the documents that the steps of the run have read a part of."""
    rows = ToolCall.objects.filter(session_id=session.pk, name="read_document", outcome=Outcome.SUCCESS)
    found = rows.order_by("pk").values_list("result__document", flat=True)
    return list(dict.fromkeys(filter(None, found)))


def _texts(session: AgentSession, read: Iterable[str]) -> dict[str, str]:
    """Return the owner's documents as they are, not as they were masked for the model."""
    ids = [uuid.UUID(public_id) for public_id in read]
    rows = Document.objects.filter(public_id__in=ids, owner_id=session.owner_id, deleted_at__isnull=True)
    return {str(public_id): text for public_id, text in rows.values_list("public_id", "text")}


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
    judges = settings.LQOPS_MODEL_ROLES.get("judges", [])
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
    for key, made in calls_latest(session, under=UNDER).items():
        text = made.result.get("text") if made.outcome == Outcome.SUCCESS and isinstance(made.result, dict) else None
        agrees = parse_judgement(str(text or ""))
        if agrees is not None:
            number = int(key.split(":")[1])
            before = votes.get(number, Votes())
            votes[number] = Votes(before.agreed + agrees, before.asked + 1)
    return votes


# --- Materials: background, playbook, skill or goal, event, documents ---
#
# Read from rows as they are now, with the ids of the versions that were read.


def assembled(work: Slice) -> tuple[list[Part], Inputs]:
    """Put background first, then what to check against, then what to check."""
    targets, inputs = _targets(work, Inputs())
    event = event_of(work.session)
    documents = [
        Part("document", passage.text, {"id": passage.document_id, "name": passage.name})
        for passage in reading_of(work).passages
    ]
    task = [*targets, *([event] if event else []), *documents]
    background = background_of(work.session, task_text([part.text for part in task]))
    return [*background.parts, *task], replace(inputs, **background.inputs)


def _targets(work: Slice, inputs: Inputs) -> tuple[list[Part], Inputs]:
    """Return what to work towards, what to check against, or both. A skill wins over a playbook."""
    spec = work.spec
    parts = []
    if spec.goal:
        parts.append(Part("goal", spec.goal, {}))
        inputs = replace(inputs, goal_digest=sha256(spec.goal.encode()).hexdigest())
    if spec.skill:
        skill = PromptSkill.objects.filter(name=spec.skill).first()
        if skill is None:
            raise NotFound(f"There is no skill named {spec.skill!r}; the run cannot follow it.")
        parts.append(Part("skill", skill_text(skill), {"name": skill.name}))
        inputs = replace(inputs, skill_id=str(skill.public_id), skill_digest=skill.digest)
    elif spec.playbook:
        playbook = playbook_runnable(owner_id=work.session.owner_id, public_id=spec.playbook)
        parts.append(Part("playbook", playbook_rendered(playbook), {"name": playbook.name}))
        inputs = replace(
            inputs,
            playbook_id=str(playbook.public_id),
            playbook_version=playbook.version,
            playbook_digest=playbook.digest,
        )
    return parts, inputs


# --- Agentic analysis: steps inside the analysis phase, with skills to call ---
#
# R6 holds as in any phase: what analysis does not grant, no step can do. The steps stand in the session's transcript,
# so a run that was interrupted, or waited for a person, goes on from there.


STEPS_KEY: Final = "analysis"


def run_steps(work: Slice) -> End | None:
    """Run steps until the model answers, or something ends or interrupts them."""
    session = work.session
    system, opening = ("", ()) if transcript_of(session) else _opening(work)
    end = run_agent_turn(
        session.agent,
        SessionKey(session, calls=STEPS_KEY),
        opening,
        system=system,
        config=loop_config_of(session),
        max_tokens=ANSWER_TOKENS,
        started_at=work.started_at,
    )
    return None if isinstance(end, Answered) else end


def _checked_claims(work: Slice, analysis: Analysis, transcript: Sequence[Message]) -> Analysis:
    """Remove claims about calls that the run never made. Its parts are checked one by one: they are prose."""
    skills = skills_of(work.session.agent)

    def checked(text: str) -> str:
        return without_false_claims(text, session=work.session, transcript=transcript, skills=skills)

    findings = tuple(replace(finding, content=checked(finding.content)) for finding in analysis.findings)
    return replace(analysis, findings=findings, raw=checked(analysis.raw))


def _opening(work: Slice) -> tuple[str, tuple[Entry, ...]]:
    """Return the system message and the task."""
    parts, inputs = assembled(work)
    note_inputs(work.session, inputs, now=clock())
    system, *task = agentic_opening(parts, nonce=nonce_of(work.session.public_id, STEPS_KEY))
    return system["content"], tuple(Entry(one["role"], one["content"]) for one in task)


ANALYSIS: Final = "analysis:"
FIRST_PART: Final = f"{ANALYSIS}1"
MOST_PARTS: Final = 100  # of one answer
MOST_LONG: Final = 3  # parts that used all their tokens; a model that repeats itself without end is not paid for more
MOST_WAITS: Final = 5


@dataclass(frozen=True)
class Reply:
    """Outcome of the request; both empty if there was none. `cut` means that the model ran out of tokens."""

    analysis: Analysis | None = None
    failed: str = ""
    cut: bool = False


def analysis(work: Slice) -> End | None:
    if is_due(work):
        try:
            end = run_steps(work) if work.spec.is_agentic else _ask_once(work)
        except (NotFound, SkillChanged) as gone:
            return Finished(TerminalReason.REFUSED, error=redact_exception(gone))
        if end is not None:
            return end
    found = reply_of(work).analysis
    return ask_judges(work, found, reading_of(work)) if found is not None else None


def is_due(work: Slice) -> bool:
    """Return whether there is something to check, and to check it against; a goal needs nothing to read."""
    reading = reading_of(work)
    if reading.failed or not work.spec.has_target:
        return False
    return bool(work.spec.goal or reading.passages or event_of(work.session))


def reply_of(work: Slice) -> Reply:
    """Return the model's answer from the transcript of its steps, or from the journal."""
    if work.spec.is_agentic and is_due(work):
        transcript = transcript_of(work.session)
        reply = _answer(joined(transcript), cut=bool(transcript) and transcript[-1].stop in CUT_OFF)
        return replace(reply, analysis=_checked_claims(work, reply.analysis, transcript)) if reply.analysis else reply
    made = call_latest(work.session, FIRST_PART)
    if made is None:
        return Reply(failed="the question was refused before it went out") if is_due(work) else Reply()
    if made.outcome != Outcome.SUCCESS:
        return Reply(failed=made.error or str(made.outcome))
    parts = _parts(work.session)
    return _answer(_whole(parts), cut=parts[-1].get("stop_reason") in CUT_OFF)


def _answer(text: str, *, cut: bool) -> Reply:
    if not text.strip():
        return Reply(failed="the model's answer was empty")
    return Reply(parse_analysis(text), cut=cut)


def _parts(session: AgentSession) -> list[Mapping[str, Any]]:
    """Return the parts of the answer so far: one, unless it was cut off and continued."""
    made = calls_latest(session, under=ANALYSIS)
    parts: list[Mapping[str, Any]] = []
    for number in range(1, MOST_PARTS + 1):
        call = made.get(f"{ANALYSIS}{number}")
        if call is None or call.outcome != Outcome.SUCCESS or not isinstance(call.result, dict):
            break
        parts.append(call.result)
    return parts


def _whole(parts: Sequence[Mapping[str, Any]]) -> str:
    """Join the parts. A model that began anew instead of going on has given its whole answer in the last one."""
    texts = [str(part.get("text") or "") for part in parts]
    return texts[-1] if len(texts) > 1 and parse_analysis(texts[-1]).is_structured else "".join(texts)


def _ask_once(work: Slice) -> End | None:
    """Ask, and have an answer continued that was cut off. Each part is a call of its own, and may end its slice."""
    session = work.session
    intent = ToolIntent.RUN_SKILL if work.spec.skill else ToolIntent.RUN_PLAYBOOK
    for number in range(1, MOST_PARTS + 1):
        key = f"{ANALYSIS}{number}"
        params = arguments_asked(session, key) or (_question_of(work) if number == 1 else _continuation(session))
        asked = journaled_call(session, intent, key, params)
        if asked.detail == BUSY and session_note_wait(session) <= MOST_WAITS:
            return Asleep(clock() + BUSY_WAIT)
        is_cut = asked.ok and _goes_on(session)
        if work.is_over and not asked.replayed and (is_cut or work.spec.judge_citations):
            return SliceOver()  # a long answer has used up this slice; it is continued, or judged, in the next
        if not is_cut:
            break
    return None


def _goes_on(session: AgentSession) -> bool:
    """Return whether the answer so far was cut off and is to be continued."""
    stops = [part.get("stop_reason") for part in _parts(session)]
    return stops[-1] in CUT_OFF and stops.count(Stop.MAX_TOKENS) < MOST_LONG


def _question_of(work: Slice) -> dict[str, Any]:
    session = work.session
    parts, inputs = assembled(work)
    note_inputs(session, inputs, now=clock())
    return analysis_question(
        parts,
        nonce=nonce_of(session.public_id, "analysis"),
        model=model_of(session.agent),
        instructions=instructions_of(session.agent),
    )


def _continuation(session: AgentSession) -> dict[str, Any]:
    """Return the question with the answer so far. No schema binds what follows: it begins in the middle."""
    first = arguments_asked(session, FIRST_PART) or {}
    said = [
        {"role": "assistant", "content": _whole(_parts(session))},
        {"role": "user", "content": CONTINUE.text},
    ]
    question = {**first, "messages": [*first["messages"], *said]}
    return {name: value for name, value in question.items() if name != "response_schema"}
