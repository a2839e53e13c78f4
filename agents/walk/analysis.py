"""Analysis: one guarded question to a model, about what was read and what to check it against; then the judges.

No target, or nothing to read: no question. What the model answered is read from the journal, through `reply_of`; it is
data, and picks no step of the run.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from agents.conf import clock, model_for
from agents.ends import Asleep, End, Finished, SliceOver
from agents.engine.calls import asked_before, call
from agents.enums import Outcome, TerminalReason, ToolIntent
from agents.exceptions import NotFound, SkillChanged
from agents.models import AgentSession, Memory, PromptSkill
from agents.nonces import nonce_of
from agents.selectors.runs import call_latest
from agents.services.inputs import Inputs, session_note_inputs, session_note_wait
from agents.services.playbooks import playbook_rendered, playbook_runnable
from agents.services.prompt_skills import skill_text
from agents.types import ToolResult
from agents.walk.calls import Slice
from agents.walk.intake import Reading, event_of, reading_of
from agents.walk.judging import ask_judges
from agents.walk.parsing import Analysis, parse_analysis
from agents.walk.prompts import Part, analysis_question
from audit.redaction import redact_exception

KEY: Final = "analysis:1"
MOST_MEMORIES: Final = 50
MEMORY_CHARS: Final = 20_000
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
            asked = _ask(work)
        except (NotFound, SkillChanged) as gone:
            return Finished(TerminalReason.REFUSED, error=redact_exception(gone))
        if asked.detail == BUSY and session_note_wait(work.session) <= MOST_WAITS:
            return Asleep(clock() + BUSY_WAIT)
        if work.is_over and work.wants("judge_citations") and not asked.replayed:
            return SliceOver()  # a long answer has used it up; the judges are heard in the next one
    said = reply_of(work).analysis
    return ask_judges(work, said, reading_of(work)) if said is not None else None


def is_due(work: Slice) -> bool:
    """True when there is something to check, and something to check it against."""
    return has_target(work) and has_something_to_read(work, reading_of(work))


def has_target(work: Slice) -> bool:
    return bool(work.param("skill") or work.param("playbook"))


def has_something_to_read(work: Slice, reading: Reading) -> bool:
    return not reading.failed and bool(reading.passages or event_of(work.session))


def reply_of(work: Slice) -> Reply:
    """The model's answer as the journal holds it."""
    made = call_latest(work.session, KEY)
    if made is None:
        return Reply(failed="the question was refused before it went out") if is_due(work) else Reply()
    told = made.result if isinstance(made.result, dict) else {}
    text, stop_reason = str(told.get("text") or ""), told.get("stop_reason")
    if made.outcome != Outcome.SUCCESS:
        return Reply(failed=made.error or str(made.outcome))
    if stop_reason == "refusal":
        return Reply(failed="the model refused to answer")
    if not text.strip():
        return Reply(failed="the model's answer was empty")
    return Reply(parse_analysis(text), cut=stop_reason == "max_tokens")


# --- The question ---


def _ask(work: Slice) -> ToolResult:
    session = work.session
    intent = ToolIntent.RUN_SKILL if work.param("skill") else ToolIntent.RUN_PLAYBOOK
    params = asked_before(session, KEY)
    if params is None:
        parts, inputs = _assembled(work)
        session_note_inputs(session, inputs, now=clock())
        params = analysis_question(parts, nonce=nonce_of(session.public_id, "analysis"), model=model_for("main"))
    return call(session, intent, KEY, params)


def _assembled(work: Slice) -> tuple[list[Part], Inputs]:
    """Background first, then what to check against, then what to check."""
    session, project = work.session, work.session.project
    inputs, parts = Inputs(), []
    if project is not None:
        inputs = Inputs(context_version=project.context_version, project_id=str(project.public_id))
        parts += [Part("project_context", project.context_md, {})] if project.context_md.strip() else []
    memories = _memories(session)
    parts += [Part("memory", memory.content, {}) for memory in memories]
    target, inputs = _target(work, replace(inputs, memory_ids=tuple(str(memory.public_id) for memory in memories)))
    event = event_of(session)
    documents = [
        Part("document", passage.text, {"id": passage.document_id, "name": passage.name})
        for passage in reading_of(work).passages
    ]
    return [*parts, target, *([event] if event else []), *documents], inputs


def _target(work: Slice, inputs: Inputs) -> tuple[Part, Inputs]:
    """What to check against. If both are set, the skill wins."""
    if name := work.param("skill"):
        skill = PromptSkill.objects.filter(name=name).first()
        if skill is None:
            raise NotFound(f"There is no skill named {name!r}; the run cannot follow it.")
        part = Part("skill", skill_text(skill), {"name": skill.name})
        return part, replace(inputs, skill_id=str(skill.public_id), skill_digest=skill.digest)
    playbook = playbook_runnable(owner_id=work.session.owner_id, public_id=work.param("playbook"))
    used = replace(
        inputs,
        playbook_id=str(playbook.public_id),
        playbook_version=playbook.version,
        playbook_digest=playbook.digest,
    )
    return Part("playbook", playbook_rendered(playbook), {"name": playbook.name}), used


def _memories(session: AgentSession) -> list[Memory]:
    """Kept notes of the owner, newest kept first, as many as there is room for."""
    chosen, room = [], MEMORY_CHARS
    for memory in Memory.objects.filter(owner_id=session.owner_id).kept()[:MOST_MEMORIES]:
        room -= len(memory.content)
        if room < 0:
            break
        chosen.append(memory)
    return chosen
