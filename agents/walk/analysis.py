"""Analysis: one guarded question to a model, about what was read and what to check it against, or steps in which it may
call skills (agents.walk.agentic); then the judges.

No target, or nothing to read: no question. What the model answered is read from rows, through `reply_of`; it is data,
and picks no phase of the run.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from agents.conf import clock
from agents.engine.calls import asked_before, call
from agents.engine.loop import Answered
from agents.engine.offering import model_of
from agents.enums import Outcome, TerminalReason, ToolIntent
from agents.exceptions import NotFound, SkillChanged
from agents.sessions.reads import call_latest
from agents.sessions.transcripts import session_note_inputs, session_note_wait
from agents.text.blocks import nonce_of
from agents.types import Asleep, End, Finished, SliceOver, ToolResult
from agents.walk.agentic import honest_analysis, is_agentic, think, thought
from agents.walk.calls import Slice
from agents.walk.intake import Reading, event_of, reading_of
from agents.walk.judging import ask_judges
from agents.walk.materials import assembled
from agents.walk.parsing import Analysis, parse_analysis
from agents.walk.prompts import analysis_question
from audit.redaction import redact_exception

KEY: Final = "analysis:1"
BUSY: Final = "budget_busy"
BUSY_WAIT: Final = timedelta(seconds=30)
MOST_WAITS: Final = 5


@dataclass(frozen=True)
class Reply:
    """What came of the question. Not asked: both are empty. `cut` says that the model ran out of room."""

    analysis: Analysis | None = None
    failed: str = ""
    cut: bool = False


def analysis(work: Slice) -> End | None:
    if is_due(work):
        try:
            end = _think(work) if is_agentic(work) else _ask_once(work)
        except (NotFound, SkillChanged) as gone:
            return Finished(TerminalReason.REFUSED, error=redact_exception(gone))
        if end is not None:
            return end
    said = reply_of(work).analysis
    return ask_judges(work, said, reading_of(work)) if said is not None else None


def is_due(work: Slice) -> bool:
    """True when there is something to check, and something to check it against; a goal needs nothing to read."""
    reading = reading_of(work)
    if work.param("goal"):
        return not reading.failed
    return has_target(work) and has_something_to_read(work, reading)


def has_target(work: Slice) -> bool:
    return bool(work.param("skill") or work.param("playbook") or work.param("goal"))


def has_something_to_read(work: Slice, reading: Reading) -> bool:
    return not reading.failed and bool(reading.passages or event_of(work.session))


def reply_of(work: Slice) -> Reply:
    """The model's answer as the transcript of its steps, or the journal, holds it."""
    if is_agentic(work) and is_due(work):
        words = thought(work)
        reply = _answer(words.text, cut=words.cut)
        return replace(reply, analysis=honest_analysis(work, reply.analysis)) if reply.analysis else reply
    made = call_latest(work.session, KEY)
    if made is None:
        return Reply(failed="the question was refused before it went out") if is_due(work) else Reply()
    told = made.result if isinstance(made.result, dict) else {}
    if made.outcome != Outcome.SUCCESS:
        return Reply(failed=made.error or str(made.outcome))
    return _answer(str(told.get("text") or ""), cut=told.get("stop_reason") == "max_tokens")


def _answer(text: str, *, cut: bool) -> Reply:
    if not text.strip():
        return Reply(failed="the model's answer was empty")
    return Reply(parse_analysis(text), cut=cut)


# --- The question, or the steps ---


def _think(work: Slice) -> End | None:
    end = think(work)
    return None if isinstance(end, Answered) else end


def _ask_once(work: Slice) -> End | None:
    asked = _ask(work)
    if asked.detail == BUSY and session_note_wait(work.session) <= MOST_WAITS:
        return Asleep(clock() + BUSY_WAIT)
    if work.is_over and work.wants("judge_citations") and not asked.replayed:
        return SliceOver()  # a long answer has used it up; the judges are heard in the next one
    return None


def _ask(work: Slice) -> ToolResult:
    session = work.session
    intent = ToolIntent.RUN_SKILL if work.param("skill") else ToolIntent.RUN_PLAYBOOK
    params = asked_before(session, KEY)
    if params is None:
        parts, inputs = assembled(work)
        session_note_inputs(session, inputs, now=clock())
        params = analysis_question(parts, nonce=nonce_of(session.public_id, "analysis"), model=model_of(session.agent))
    return call(session, intent, KEY, params)
