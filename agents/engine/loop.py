"""The step loop: ask the model, judge its reply, run its calls, and repeat until an end.

All state is in the transcript and the journal, so an interrupted loop continues from there: it runs the calls that have
no result, then takes the next step. Brakes are not caught here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from agents.conf import clock
from agents.engine.prompting import SYNTAX, Brief, Prompter
from agents.engine.replies import Reply, read_reply, stored_calls, without_false_claims
from agents.engine.skills import SkillExecutor, anticipate
from agents.enums import Brake, EventKind, Mode, Outcome, Purpose, Status, TerminalReason, ToolIntent, WaitingOn
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    LeaseLost,
    LqopsError,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    SessionPaused,
)
from agents.guard.refusals import refuse_call
from agents.guard.tools import BadParams, persisting
from agents.ledger.loans import RUN_RESULT, ends_after_its_runs, loan_text, runs_over, runs_to_await
from agents.models import AgentEvent, AgentSession, Message
from agents.people.activity import event_emit
from agents.policy.guardrails import (
    CALL_AGAIN,
    CONTINUE,
    CUT_CALL_ERROR,
    CUT_OFF,
    RECENT_EVENTS,
    REFUSAL_ERROR,
    SAME_ERROR_AGAIN,
    STOP_READING,
    TRY_OTHERWISE,
    WRAP_UP,
    Counters,
    InternalMessage,
    Reason,
    Stop,
    is_stuck,
    joined,
    may_recover,
    needs_nudge,
    observe_errors,
    observe_reading,
    observe_tool_calls,
    preflight,
    premature_end,
    runs_over_message,
    says_same_error,
    stuck_error,
    warns_of_budget,
)
from agents.sessions.fairness import slice_is_over
from agents.sessions.lifecycle import held, session_row
from agents.sessions.transcripts import GUARDRAILS, Entry, transcript_append, transcript_of
from agents.types import Asleep, End, Finished, SliceOver, Waiting
from audit.redaction import redact_exception

# --- Budget check before the calls of a reply ---


def require_budget(session: AgentSession) -> None:
    """Raise BudgetExceeded if the last reply used up the budget, before any of its calls runs.

    The refusal is recorded for the skills of that reply. If runs that it started hold a part of its cap, it waits.
    """
    if _used_up(session_row(session.pk)) is None:
        return
    with transaction.atomic():  # what is lent comes back under the session's lock
        row = held(session)
        used_up = _used_up(row)
        if used_up is None:
            return
        dimension, spent = used_up
        awaited = runs_to_await(row, now=clock()) if dimension == "cost" else frozenset()
        if not awaited:
            label = {"tool": ToolIntent.RUN_SKILL, "budget": "session"}
            detail = f"dimension:{dimension}"
            refuse_call(session, label, row.current_phase, Outcome.DENIED, now=clock(), brake=Brake.COST, detail=detail)
    if awaited:
        raise RunsAwaited(awaited)
    message = f"The run's budget is used up: {spent}. The calls of the last reply were not run. {loan_text(row)}"
    raise BudgetExceeded(dimension, message.strip())


def _used_up(row: AgentSession) -> tuple[str, str] | None:
    """Return which budget is used up, and how much was spent of it."""
    if row.token_budget and row.total_tokens >= row.token_budget:
        return "tokens", f"{row.total_tokens} of {row.token_budget} tokens"
    if row.max_cost_usd and row.cost_actual_usd >= row.max_cost_usd:  # free calls never reach a cap of 0
        return "cost", f"{row.cost_actual_usd} of {row.max_cost_usd} USD"
    return None


# --- Error events for subscribers ---
#
# Each end without an answer is published once. The session row and the audit log decide; these events only inform.


_CONTINUES: Final = (
    LeaseLost,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    SessionPaused,
)  # another worker continues, or this one later


def emit_end(session: AgentSession, end: Finished, *, run: str) -> None:
    if session.mode == Mode.LOOP and end.reason == TerminalReason.MAX_STEPS:
        return  # only the turn is over, not the loop
    message = end.error or f"The run ended: {end.reason.label.lower()}."
    _emit_once(session, run=run, reason=str(end.reason), message=message)


def emit_failure(session: AgentSession, error: Exception, *, run: str) -> None:
    """Publish a brake or a fault, but no error after which the run continues."""
    if isinstance(error, _CONTINUES) or (session.mode == Mode.LOOP and isinstance(error, BudgetRefused)):
        return
    reason = error.code if isinstance(error, LqopsError) else str(TerminalReason.WORKER_ERROR)
    _emit_once(session, run=run, reason=reason, message=redact_exception(error))


def _emit_once(session: AgentSession, *, run: str, reason: str, message: str) -> None:
    """Publish an error unless it was published: a worker that takes over may end the same run again."""
    emitted = AgentEvent.objects.filter(session=session, kind=EventKind.ERROR, data__run=run, data__recoverable=False)
    if not emitted.exists():
        event_emit(
            EventKind.ERROR, session=session, now=clock(), run=run, reason=reason, message=message, recoverable=False
        )


# --- The loop ---


BUSY: Final = "budget_busy"
BUSY_WAIT: Final = timedelta(seconds=30)
_WAITS_FIRST: Final = (WaitingOn.APPROVAL, WaitingOn.INPUT, WaitingOn.RUNS)  # an unused approval expires
TOO_LONG: Final = "The next request cannot be sent; set context_window to keep it short."


@dataclass(frozen=True)
class Answered:
    """The model ended the run with this answer."""

    text: str


class StepLoop:
    """Runs the steps of one brief in a held session."""

    def __init__(self, session: AgentSession, brief: Brief, *, started_at: datetime) -> None:
        self._session = session
        self._brief = brief
        self._slice_started = started_at
        self._prompter = Prompter(session, brief.config, key=brief.key)
        self._counters = Counters.from_json(session.metadata.get(GUARDRAILS))
        self._worked_before = self._counters.worked_ms
        self._transcript: list[Message] = []
        self._has_stepped = False

    def run(self) -> Answered | End:
        """Run steps until the model answers, a guardrail stops it, a person is needed, or the slice is over.

        An end without an answer is published once. A loop started again after its end ends the same way.
        """
        try:
            with persisting(self._brief.config.max_retries):
                end = self._run()
        except Exception as error:
            emit_failure(self._session, error, run=self._brief.key)
            raise
        if isinstance(end, Finished):
            emit_end(self._session, end, run=self._brief.key)
        return end

    def _run(self) -> Answered | End:
        self._transcript = transcript_of(self._session, turn=self._brief.turn)
        if not self._transcript:
            self._worked_before = 0
            self._append(self._brief.opening)
        while True:
            end = self._finish_step() or self._closed() or self._before_step() or self._step()
            if end is not None:
                return end

    # --- One step ---

    def _before_step(self) -> End | None:
        row = session_row(self._session.pk)
        stopped = preflight(
            cancelled=row.status != Status.RUNNING,
            elapsed_seconds=self._worked_ms / 1_000,
            step_count=self._steps,
            config=self._brief.config,
        )
        if stopped is not None:
            return Finished(stopped)
        if self._has_stepped and slice_is_over(row, self._slice_started):
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
                self._instruct(WRAP_UP)
                event_emit(
                    EventKind.ERROR,
                    session=row,
                    now=clock(),
                    run=self._brief.key,
                    message=WRAP_UP.text,
                    recoverable=True,
                )
        return None

    def _step(self) -> Answered | End | None:
        number = self._steps + 1
        self._has_stepped = True
        try:
            result = self._prompter.ask(self._transcript, self._brief, number=number)
        except BadParams as error:
            return Finished(TerminalReason.REFUSED, error=f"{TOO_LONG} {error}")
        if result.detail == BUSY:
            return Asleep(clock() + BUSY_WAIT)
        if not result.ok:
            failed = result.outcome == Outcome.GATEWAY_ERROR
            return Finished(TerminalReason.PROVIDER_ERROR if failed else TerminalReason.REFUSED, error=result.error)
        reply = read_reply(result.data, step=number, turn=self._brief.turn)
        entry = Entry("assistant", reply.text, calls=reply.stored, stop=reply.stop)
        if reply.stop == Stop.TOOL_USE:
            return self._accept_calls(entry, reply)
        self._append([replace(entry, calls=(), content=self._checked_claims(reply.text))])
        return self._judge(reply)

    def _checked_claims(self, text: str) -> str:
        if self._brief.purpose != Purpose.CHAT:
            return text
        return without_false_claims(text, session=self._session, transcript=self._transcript, skills=self._brief.skills)

    def _judge(self, reply: Reply) -> Answered | End | None:
        """Decide what follows a reply without calls, which is in the transcript already."""
        if reply.stop == Stop.REFUSAL:
            return Finished(TerminalReason.REFUSED, error=REFUSAL_ERROR)
        if reply.stop in CUT_OFF:
            if may_recover(reply.stop, self._counters, self._brief.guardrails):
                self._instruct(CALL_AGAIN if reply.unreadable else CONTINUE)
                return None
            if reply.unreadable:
                return Finished(TerminalReason.REFUSED, error=CUT_CALL_ERROR)
        return self._answer()

    def _judge_again(self) -> Answered | End | None:
        """Judge, from the journal, a stored reply whose worker was lost before it was judged."""
        number = self._steps
        result = self._prompter.ask(self._transcript, self._brief, number=number)
        reply = read_reply(result.data, step=number, turn=self._brief.turn)
        return self._stuck() if reply.stop == Stop.TOOL_USE else self._judge(reply)

    def _accept_calls(self, entry: Entry, reply: Reply) -> End | None:
        """Check the calls of a reply before any of them runs, then append them to the transcript."""
        require_budget(self._session)
        if reply.unreadable:
            error = f"No call of this reply was run. {reply.unreadable}"
            results = [Entry("tool", error, call_id=call["id"], failed=True) for call in reply.stored]
            self._append([entry, *(results or [Entry("user", error, reason=SYNTAX, failed=True)])])
            return None
        calls = [(call.name, call.arguments) for call in reply.calls]
        self._counters = observe_tool_calls(self._counters, calls)
        if is_stuck(self._counters, self._brief.guardrails):
            self._append([replace(entry, calls=())])
            return self._stuck()
        skills = [self._brief.skills.get(call.name) for call in reply.calls]
        read_only = all(skill is not None and not skill.side_effects for skill in skills)
        self._counters = observe_reading(self._counters, read_only=read_only)
        self._append([entry])
        return None

    def _stuck(self) -> Finished:
        return Finished(TerminalReason.STUCK_LOOP, error=stuck_error(self._brief.guardrails, self._counters))

    def _answer(self) -> Answered | Waiting | None:
        recent = self._transcript[-RECENT_EVENTS - 1 :]
        failed = any(entry.failed for entry in recent)
        if premature_end(recent[-1].content, recent_failed=failed, counters=self._counters):
            self._instruct(TRY_OTHERWISE)
            return None
        if RUN_RESULT in self._brief.skills and ends_after_its_runs(self._session):
            if awaited := runs_to_await(self._session, now=clock()):
                return Waiting(WaitingOn.RUNS, runs=awaited)
            if over := self._runs_to_tell():
                self._instruct(runs_over_message(over))
                return None
        return Answered(joined(self._transcript))

    def _runs_to_tell(self) -> list[tuple[str, str, str]]:
        """Return the runs that it started, that are over, and of which the model has neither heard nor asked."""
        told = [entry.content for entry in self._transcript if entry.reason == Reason.RUNS_OVER]
        over = runs_over(self._session)
        return [run for run in over if not any(run[0] in text for text in told)]

    # --- The calls of a step ---

    def _finish_step(self) -> Answered | End | None:
        """Run the calls of the last reply that have no result yet."""
        last = self._last_reply
        if last is None or not last.calls:
            return self._judge_again() if last is not None and last is self._transcript[-1] else None
        done = {entry.call_id for entry in self._transcript if entry.seq > last.seq}
        pending = stored_calls(call for call in last.calls if call["id"] not in done)
        if not pending:
            return None
        executor = SkillExecutor(
            self._brief.skills, anticipate, session=self._session, context=last.content, admit=self._brief.admit
        )
        waits: dict[WaitingOn, frozenset[int]] = {}
        for key, result in executor.execute_batch([(f"{self._brief.key}:{call.id}", call) for call in pending]):
            if result.waits:
                waits[result.waits_for] = waits.get(result.waits_for, frozenset()) | result.runs
            else:
                call_id = key.rpartition(":")[2]
                self._append(
                    [Entry("tool", result.text, call_id=call_id, failed=result.failed, outcome=result.outcome)]
                )
        if waits:
            waits_on = next(one for one in _WAITS_FIRST if one in waits)
            return Waiting(waits_on, runs=waits[waits_on])
        self._observe_errors(last)
        if needs_nudge(self._counters):
            self._instruct(STOP_READING)
        return None

    def _observe_errors(self, reply: Message) -> None:
        """Count a step whose calls all failed alike, and say so to the model before it is stopped for it."""
        results = [entry for entry in self._transcript if entry.seq > reply.seq and entry.role == "tool"]
        self._counters = observe_errors(self._counters, [entry.content if entry.failed else None for entry in results])
        if says_same_error(self._counters):
            self._instruct(SAME_ERROR_AGAIN)

    def _closed(self) -> Answered | None:
        """Return the last reply as the answer if it calls the closing skill and all its calls succeeded."""
        last = self._last_reply
        if last is None or all(call["name"] != self._brief.closing for call in last.calls):
            return None
        results = {entry.call_id: entry for entry in self._transcript if entry.seq > last.seq}
        answers = [results.get(call["id"]) for call in last.calls]
        all_succeeded = all(answer is not None and not answer.failed for answer in answers)
        return Answered(last.content) if all_succeeded else None

    # --- The transcript ---

    @property
    def _last_reply(self) -> Message | None:
        return next((entry for entry in reversed(self._transcript) if entry.stop), None)

    @property
    def _steps(self) -> int:
        """The number of replies of this run. Only they have a stop reason; quoted earlier entries have none."""
        return sum(bool(entry.stop) for entry in self._transcript)

    @property
    def _worked_ms(self) -> int:
        """The working time of this run. Waiting time lies between slices and does not count."""
        return self._worked_before + max((clock() - self._slice_started) // timedelta(milliseconds=1), 0)

    def _instruct(self, message: InternalMessage) -> None:
        self._counters = self._counters.after_message(message.reason)
        self._append([Entry("user", message.text, reason=message.reason)])

    def _append(self, entries: Sequence[Entry]) -> None:
        self._counters = replace(self._counters, worked_ms=self._worked_ms)
        added = transcript_append(
            self._session, entries, now=clock(), turn=self._brief.turn, counters=self._counters.to_json()
        )
        self._transcript = [*self._transcript, *added]
