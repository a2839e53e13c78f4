"""The step loop: control flow and nothing else. Ask the model; judge its reply; run its calls; again, until an end.

Everything that happened stands in the transcript and the journal, so a loop that was interrupted goes on from there:
calls without a result are carried out, and then the next step is taken. Brakes are not caught here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from agents.conf import clock, slice_lifetime
from agents.engine.prompting import SYNTAX, Asker, Brief
from agents.engine.replies import Reply, final_words, honest, read_reply, stored_calls
from agents.engine.skills import SkillExecutor, anticipate
from agents.enums import EventKind, Mode, Outcome, Purpose, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import BudgetExceeded, BudgetRefused, LeaseLost, LqopsError, OutcomeUnknown, RetryLater
from agents.guard.refusals import refuse_call
from agents.guard.tools import BadParams, persisting
from agents.models import AgentEvent, AgentSession, Message
from agents.people.activity import event_emit
from agents.policy.guardrails import (
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
from agents.sessions.lifecycle import held
from agents.sessions.transcripts import GUARDRAILS, Entry, transcript_append, transcript_of
from agents.types import Asleep, End, Finished, SliceOver, Waiting
from audit.redaction import redact_exception

# What a reply has cost, tested before anything that it asks for is run: a run without a budget acts no more.


def demand_budget(session: AgentSession) -> None:
    """Raises, as the guard would at the next question; on record, what is refused are the skills of the last answer."""
    spent = _spent(AgentSession.objects.get(pk=session.pk))
    if spent is None:
        return
    detail = f"dimension:{spent.dimension}"
    with transaction.atomic():
        phase = held(session).current_phase
        refuse_call(session, ToolIntent.RUN_SKILL, phase, Outcome.DENIED, now=clock(), detail=detail, budget="session")
    raise spent


def _spent(row: AgentSession) -> BudgetExceeded | None:
    """Tokens first, then money. What costs nothing does not reach a cap of 0."""
    if row.token_budget and row.total_tokens >= row.token_budget:
        return _exceeded("tokens", f"{row.total_tokens} of {row.token_budget} tokens")
    if row.max_cost_usd and row.cost_actual_usd >= row.max_cost_usd:
        return _exceeded("cost", f"{row.cost_actual_usd} of {row.max_cost_usd} USD")
    return None


def _exceeded(dimension: str, spent: str) -> BudgetExceeded:
    return BudgetExceeded(
        dimension, f"The session's budget is used up: {spent}. What the last answer asks for is not run."
    )


# Errors of runs of steps, for those who watch: each end that is no answer is told once, and being near the budget.
#
# What decides about a run stands in its row and in the record; these events only tell of it.


_GOES_ON: Final = (LeaseLost, OutcomeUnknown, RetryLater)  # somebody else goes on with it, or it goes on later


def tell_end(session: AgentSession, end: Finished, *, run: str) -> None:
    if session.mode == Mode.LOOP and end.reason == TerminalReason.MAX_STEPS:
        return  # a turn that has used up its rounds is over; the loop is not
    message = end.error or f"The run of steps ended: {end.reason.label.lower()}."
    _tell_once(session, run=run, reason=str(end.reason), message=message)


def tell_failure(session: AgentSession, error: Exception, *, run: str) -> None:
    """Of a brake, or a fault. What the run goes on from is neither."""
    if isinstance(error, _GOES_ON) or (session.mode == Mode.LOOP and isinstance(error, BudgetRefused)):
        return
    reason = error.code if isinstance(error, LqopsError) else str(TerminalReason.WORKER_ERROR)
    _tell_once(session, run=run, reason=reason, message=redact_exception(error))


def tell_near_budget(session: AgentSession, message: str, *, run: str) -> None:
    event_emit(EventKind.ERROR, session=session, now=clock(), run=run, message=message, recoverable=True)


def _tell_once(session: AgentSession, *, run: str, reason: str, message: str) -> None:
    """A worker that takes over what another has ended, and not recorded, ends it again: that is no second error."""
    told = AgentEvent.objects.filter(session=session, kind=EventKind.ERROR, data__run=run, data__recoverable=False)
    if not told.exists():
        event_emit(
            EventKind.ERROR, session=session, now=clock(), run=run, reason=reason, message=message, recoverable=False
        )


BUSY: Final = "budget_busy"
BUSY_WAIT: Final = timedelta(seconds=30)
UNASKABLE: Final = "The next question cannot be asked; a context_window would keep it short."


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
        self._worked_before = self._counters.worked_ms
        self._transcript: list[Message] = []
        self._got_on = False

    def run(self) -> Answered | End:
        """Steps until the model ends, a guardrail ends it, a person is waited for, or the slice is over.

        Those who watch are told of an end that is no answer, once. Begun again after its end, it ends the same way.
        """
        try:
            with persisting(self._brief.config.max_retries):
                end = self._run()
        except Exception as error:
            tell_failure(self._session, error, run=self._brief.key)
            raise
        if isinstance(end, Finished):
            tell_end(self._session, end, run=self._brief.key)
        return end

    def _run(self) -> Answered | End:
        self._transcript = transcript_of(self._session, turn=self._brief.turn)
        if not self._transcript:
            self._worked_before = 0
            self._append(self._brief.opening)
        while True:
            end = self._finish_step() or self._before_step()
            if end is not None:
                return end
            end = self._step()
            if end is not None:
                return end

    # --- One step ---

    def _before_step(self) -> End | None:
        row = AgentSession.objects.get(pk=self._session.pk)
        stopped = preflight(
            cancelled=row.status != Status.RUNNING,
            elapsed_seconds=self._worked_ms / 1_000,
            step_count=self._steps,
            config=self._brief.config,
        )
        if stopped is not None:
            return Finished(stopped)
        if self._got_on and clock() - self._slice_started >= slice_lifetime():
            return SliceOver()
        warned = warns_of_budget(
            self._counters,
            self._brief.guardrails,
            ledger=row.ledger,
            token_budget=row.token_budget,
            total_tokens=row.total_tokens,
        )
        if warned:
            with transaction.atomic():
                self._tell(WRAP_UP)
                tell_near_budget(row, WRAP_UP.text, run=self._brief.key)
        return None

    def _step(self) -> Answered | End | None:
        number, self._got_on = self._steps + 1, True
        try:
            asked = self._asker.ask(self._transcript, self._brief, number=number)
        except BadParams as error:
            return Finished(TerminalReason.REFUSED, error=f"{UNASKABLE} {error}")
        if asked.detail == BUSY:
            return Asleep(clock() + BUSY_WAIT)
        if not asked.ok:
            failed = asked.outcome == Outcome.GATEWAY_ERROR
            return Finished(TerminalReason.PROVIDER_ERROR if failed else TerminalReason.REFUSED, error=asked.error)
        reply = read_reply(asked.data, step=number, turn=self._brief.turn)
        entry = Entry("assistant", reply.text, calls=reply.stored, stop=reply.stop)
        if reply.stop == Stop.TOOL_USE:
            return self._wants(entry, reply)
        self._append([replace(entry, calls=(), content=self._honest(reply.text))])
        return self._judged(reply)

    def _honest(self, text: str) -> str:
        if self._brief.purpose != Purpose.CHAT:
            return text
        return honest(text, session=self._session, transcript=self._transcript, skills=self._brief.skills)

    def _judged(self, reply: Reply) -> Answered | End | None:
        """What a reply that asks for no call comes to. It stands in the transcript already."""
        if reply.stop == Stop.REFUSAL:
            return Finished(TerminalReason.REFUSED, error=REFUSAL_ERROR)
        if reply.stop == Stop.MAX_TOKENS:
            if may_recover(self._counters, self._brief.guardrails):
                self._tell(CALL_AGAIN if reply.unreadable else CONTINUE)
                return None
            if reply.unreadable:
                return Finished(TerminalReason.REFUSED, error=CUT_CALL_ERROR)
        return self._ended()

    def _judged_again(self) -> Answered | End | None:
        """The same of a reply that was written down and then not judged, for its worker was lost; from the journal."""
        number = self._steps
        asked = self._asker.ask(self._transcript, self._brief, number=number)
        reply = read_reply(asked.data, step=number, turn=self._brief.turn)
        return self._stuck() if reply.stop == Stop.TOOL_USE else self._judged(reply)

    def _wants(self, entry: Entry, reply: Reply) -> End | None:
        """The calls of a reply are judged before any of them runs; then they stand in the transcript, to be run."""
        demand_budget(self._session)
        if reply.unreadable:
            told = f"Nothing of this reply was run. {reply.unreadable}"
            results = [Entry("tool", told, call_id=call["id"], failed=True) for call in reply.stored]
            self._append([entry, *(results or [Entry("user", told, reason=SYNTAX, failed=True)])])
            return None
        calls = [(call.name, call.arguments) for call in reply.calls]
        self._counters = observe_tool_calls(self._counters, calls)
        if is_stuck(self._counters, self._brief.guardrails):
            self._append([replace(entry, calls=())])
            return self._stuck()
        known = [self._brief.skills.get(call.name) for call in reply.calls]
        read_only = all(skill is not None and not skill.side_effects for skill in known)
        self._counters = observe_reading(self._counters, read_only=read_only)
        self._append([entry])
        return None

    def _stuck(self) -> Finished:
        return Finished(TerminalReason.STUCK_LOOP, error=stuck_error(self._brief.guardrails))

    def _ended(self) -> Answered | None:
        recent = self._transcript[-RECENT_EVENTS - 1 :]
        failed = any(entry.failed for entry in recent)
        if premature_end(recent[-1].content, recent_failed=failed, counters=self._counters):
            self._tell(TRY_OTHERWISE)
            return None
        return Answered(final_words(self._transcript).text)

    # --- The calls of a step ---

    def _finish_step(self) -> Answered | End | None:
        """Carries out what the last reply asked for and has no result yet."""
        last = self._last_reply
        if last is None or not last.calls:
            return self._judged_again() if last is not None and last is self._transcript[-1] else None
        done = {entry.call_id for entry in self._transcript if entry.seq > last.seq}
        left = stored_calls(call for call in last.calls if call["id"] not in done)
        if not left:
            return None
        executor = SkillExecutor(
            self._brief.skills, anticipate, session=self._session, context=last.content, admit=self._brief.admit
        )
        waits_on = None
        for key, result in executor.execute_batch([(f"{self._brief.key}:{call.id}", call) for call in left]):
            if result.waits:
                asked = result.metadata.get("waits_for") == "input"
                if not (asked and waits_on):  # a yes that is not used expires, so it goes first
                    waits_on = WaitingOn.INPUT if asked else WaitingOn.APPROVAL
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

    @property
    def _worked_ms(self) -> int:
        """The time at work on this run of steps. That of waits, of whatever kind, lies between slices."""
        return self._worked_before + max((clock() - self._slice_started) // timedelta(milliseconds=1), 0)

    def _tell(self, message: InternalMessage) -> None:
        self._counters = self._counters.told(message.reason)
        self._append([Entry("user", message.text, reason=message.reason)])

    def _append(self, entries: Sequence[Entry]) -> None:
        self._counters = replace(self._counters, worked_ms=self._worked_ms)
        added = transcript_append(
            self._session, entries, now=clock(), turn=self._brief.turn, counters=self._counters.to_json()
        )
        self._transcript = [*self._transcript, *added]
