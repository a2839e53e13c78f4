"""The step loop: control flow and nothing else. Ask the model; judge its reply; run its calls; again, until an end.

Everything that happened stands in the transcript and the journal, so a loop that was interrupted goes on from there:
calls without a result are carried out, and then the next step is taken. Brakes are not caught here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from agents.conf import clock, slice_lifetime
from agents.ends import Asleep, End, Finished, SliceOver, Waiting
from agents.engine.asking import Asker
from agents.engine.batch import SkillExecutor
from agents.engine.reading import Reply, read_reply, stored_calls
from agents.enums import Outcome, Purpose, Status, TerminalReason, WaitingOn
from agents.guardrails import (
    CALL_AGAIN,
    CONTINUE,
    CUT_CALL_ERROR,
    RECENT_EVENTS,
    REFUSAL_ERROR,
    STOP_READING,
    TRY_OTHERWISE,
    WRAP_UP,
    Counters,
    InternalMessage,
    Stop,
    is_stuck,
    may_recover,
    needs_nudge,
    observe_reading,
    observe_tool_calls,
    preflight,
    premature_end,
    stuck_error,
    warns_of_budget,
)
from agents.loop_config import GuardrailsConfig, LoopConfig
from agents.models import AgentSession, Message
from agents.services.transcripts import GUARDRAILS, Entry, transcript_append, transcript_of
from agents.skills.skill import Skill

BUSY: Final = "budget_busy"
BUSY_WAIT: Final = timedelta(seconds=30)


@dataclass(frozen=True)
class Brief:
    """What a run of steps works with. `opening` is said once, at the beginning of the transcript."""

    model: str
    opening: tuple[Entry, ...]
    skills: dict[str, Skill]
    key: str = "step"
    purpose: Purpose = Purpose.AUTONOMOUS_EXECUTOR
    max_tokens: int = 1_024
    config: LoopConfig = field(default_factory=LoopConfig)
    guardrails: GuardrailsConfig = field(default_factory=GuardrailsConfig)
    listener: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class Answered:
    """The model came to an end by itself, with these words."""

    text: str


class StepLoop:
    def __init__(self, session: AgentSession, brief: Brief, *, started_at: datetime) -> None:
        self._session, self._brief = session, brief
        self._slice_started = started_at
        self._asker = Asker(session, brief.config, key=brief.key)
        self._counters = Counters.from_json(session.metadata.get(GUARDRAILS))
        self._transcript: list[Message] = []

    def run(self) -> Answered | End:
        """Steps until the model ends, a guardrail ends it, a person is waited for, or the slice is over."""
        self._transcript = transcript_of(self._session) or self._append(self._brief.opening)
        while True:
            end = self._finish_step() or self._before_step()
            if end is not None:
                return end
            end = self._step()
            if end is not None:
                return end

    # --- One step ---

    def _before_step(self) -> End | None:
        session, config = self._session, self._brief.config
        row = AgentSession.objects.get(pk=session.pk)
        elapsed = (clock() - (row.started_at or row.created_at)).total_seconds()
        stopped = preflight(
            cancelled=row.status != Status.RUNNING, elapsed_seconds=elapsed, step_count=self._steps, config=config
        )
        if stopped is not None:
            return Finished(stopped)
        if self._steps and clock() - self._slice_started >= slice_lifetime():
            return SliceOver()
        warned = warns_of_budget(
            self._counters,
            self._brief.guardrails,
            ledger=row.ledger,
            token_budget=row.token_budget,
            total_tokens=row.total_tokens,
        )
        if warned:
            self._tell(WRAP_UP)
        return None

    def _step(self) -> Answered | End | None:
        number = self._steps + 1
        asked = self._asker.ask(self._transcript, self._brief, number=number)
        if asked.detail == BUSY:
            return Asleep(clock() + BUSY_WAIT)
        if not asked.ok:
            failed = asked.outcome == Outcome.GATEWAY_ERROR
            return Finished(TerminalReason.PROVIDER_ERROR if failed else TerminalReason.REFUSED, error=asked.error)
        reply = read_reply(asked.data, step=number)
        entry = Entry("assistant", reply.text, calls=reply.stored, stop=reply.stop)
        match reply.stop:
            case Stop.REFUSAL:
                self._append([replace(entry, calls=())])
                return Finished(TerminalReason.REFUSED, error=REFUSAL_ERROR)
            case Stop.TOOL_USE:
                return self._wants(entry, reply)
            case Stop.MAX_TOKENS:
                return self._cut_off(replace(entry, calls=()), reply)
        self._append([entry])
        return self._ended(reply.text)

    def _wants(self, entry: Entry, reply: Reply) -> End | None:
        """The calls of a reply are judged before any of them runs; then they stand in the transcript, to be run."""
        if reply.unreadable:
            told = f"Nothing of this reply was run. {reply.unreadable}"
            results = [Entry("tool", told, call_id=call["id"], failed=True) for call in reply.stored]
            self._append([entry, *(results or [Entry("user", told, reason="skill_syntax", failed=True)])])
            return None
        calls = [(call.name, call.arguments) for call in reply.calls]
        self._counters = observe_tool_calls(self._counters, calls)
        if is_stuck(self._counters, self._brief.guardrails):
            self._append([replace(entry, calls=())])
            return Finished(TerminalReason.STUCK_LOOP, error=stuck_error(self._brief.guardrails))
        known = [self._brief.skills.get(call.name) for call in reply.calls]
        read_only = all(skill is not None and not skill.side_effects for skill in known)
        self._counters = observe_reading(self._counters, read_only=read_only)
        self._append([entry])
        return None

    def _cut_off(self, entry: Entry, reply: Reply) -> Answered | End | None:
        self._append([entry])
        if may_recover(self._counters, self._brief.guardrails):
            self._tell(CALL_AGAIN if reply.unreadable else CONTINUE)
            return None
        if reply.unreadable:
            return Finished(TerminalReason.REFUSED, error=CUT_CALL_ERROR)
        return self._ended(reply.text)

    def _ended(self, text: str) -> Answered | None:
        recent = self._transcript[-RECENT_EVENTS - 1 :]
        failed = any(entry.failed for entry in recent)
        if premature_end(text, recent_failed=failed, counters=self._counters):
            self._tell(TRY_OTHERWISE)
            return None
        return Answered(self._whole_text(text))

    # --- The calls of a step ---

    def _finish_step(self) -> Answered | End | None:
        """Carries out what the last reply asked for and has no result yet."""
        last = self._last_reply
        if last is None or not last.calls:
            return None
        done = {entry.call_id for entry in self._transcript if entry.seq > last.seq}
        left = [call for call in stored_calls(last.calls) if call.id not in done]
        if not left:
            return None
        executor = SkillExecutor(self._session, self._brief.skills, context=last.content)
        waits_on = None
        for key, result in executor.execute_batch([(f"{self._brief.key}:{call.id}", call) for call in left]):
            if result.waits:
                asked = result.metadata.get("waits_for") == "input"
                waits_on = waits_on or (WaitingOn.INPUT if asked else WaitingOn.APPROVAL)
            else:
                call_id = key.rpartition(":")[2]
                self._append([Entry("tool", result.text, call_id=call_id, failed=result.failed)])
        if waits_on is not None:
            return Waiting(waits_on)
        if needs_nudge(self._counters):
            self._tell(STOP_READING)
        return None

    # --- The transcript ---

    @property
    def _last_reply(self) -> Message | None:
        return next((entry for entry in reversed(self._transcript) if entry.stop), None)

    @property
    def _steps(self) -> int:
        """Replies of this run: they have a reason to end; what was said before it, and is only quoted, has none."""
        return sum(bool(entry.stop) for entry in self._transcript)

    def _whole_text(self, text: str) -> str:
        """The end of the run's words, with the parts before it that were cut off and continued."""
        parts: list[str] = [text]
        for entry in reversed(self._transcript[:-1]):
            if entry.role == "assistant" and entry.stop == Stop.MAX_TOKENS:
                parts.append(entry.content)
            elif entry.reason != CONTINUE.reason:
                break
        return "".join(reversed(parts))

    def _tell(self, message: InternalMessage) -> None:
        self._counters = self._counters.told(message.reason)
        self._append([Entry("user", message.text, reason=message.reason)])

    def _append(self, entries: Sequence[Entry]) -> list[Message]:
        added = transcript_append(self._session, entries, now=clock(), counters=self._counters.to_json())
        self._transcript = [*self._transcript, *added]
        return added
