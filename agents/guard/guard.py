"""guarded_tool_call: the one way for an agent to act. Read from top to bottom, it is the safety argument.

R5 (is it halted?) → R6 (does the phase grant it?) → a person's approval where one is needed → R4 (can it be paid?).
A paused session is put aside after R6: nobody is asked for it, and nothing is paid.
The first that refuses wins, and an error refuses. A refusal leaves an audit row and no effect. An allowed call is
written down and paid for before it happens, and settled when its outcome is known; where all that happens is rows of
ours, they and their record are one transaction. The guard never commits for its caller, and no transaction is open
while a remote call is out.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    transaction,
)
from django.db.transaction import TransactionManagementError

from agents.conf import clock
from agents.definitions.catalogue import fallbacks_of
from agents.enums import Brake, Outcome, Risk, ToolIntent
from agents.exceptions import (
    ModelBusy,
    ModelSuspended,
    OpenTransaction,
    OutcomeUnknown,
    RetryLater,
    SessionHalted,
    SessionPaused,
    TooDear,
    ToolFailed,
    UnpricedModel,
)
from agents.guard import dispatch
from agents.guard.calls import Call, plan_call, usable
from agents.guard.consent import as_set_now, consent, denied, may_pass_unasked, refuse_edited, use_ticket
from agents.guard.metering import Meter, ModelAway, outgoing_request
from agents.guard.refusals import Refusal, refuse_stopped, refuse_too_dear, refuse_unaffordable
from agents.guard.settlement import book_attempt, journal_row, settle, settle_durably, withdraw
from agents.guard.spans import outcome_attributes, traced
from agents.guard.tools import most_tries
from agents.ledger.at_once import begin_local, end_local, keep_price_row, known_price_row, open_call, record_local
from agents.ledger.boundary import LockedRead, is_halted, read_for_update, read_unlocked, was_in_the_way
from agents.ledger.budgets import budgets_lock, warn_at_80_percent
from agents.ledger.halt_watch import watching
from agents.ledger.journal import (
    HALTED,
    KEY_REFUSED,
    RETRY_LATER,
    call_details,
    journal_holds,
    journal_local_all,
    journal_open,
    journal_place,
    journal_record,
    journal_record_all,
)
from agents.ledger.outages import BUSY_PAUSE, is_busy, outage_note, outage_over, outage_probe, outage_try_now
from agents.ledger.prices import declared_price, estimate_tool_cost
from agents.models import AgentSession, Approval, ToolCall
from agents.policy import brakes, costs
from agents.policy.schedule import FALLBACK_SECONDS
from agents.providers.base import Fault, ProviderError, Tries
from agents.queue import in_open_transaction
from agents.sessions.approvals import ticket_record
from agents.skills.registry import skill_count_lock
from agents.skills.running import SkillStopped, SkillTimeout, run_parallel, timed
from agents.skills.skill import SkillContext
from agents.text.clean import json_safe
from agents.tracing import makes_spans
from agents.types import ZERO, Ledger, ModelRequest, Price, ToolResult
from audit.redaction import redact, redact_data, redact_exception
from audit.rows import canonical

_make_pass = dispatch.take_pass_maker()
_HOLDS_SECRET = "The arguments hold a masked secret; pass secrets by handle."  # noqa: S105 a sentence about one


def guarded_tool_call(
    session: AgentSession,
    intent: ToolIntent | str,
    params: Mapping[str, Any],
    *,
    key: str = "",
    risk: Risk | None = None,
    simulation: str = "",
    now: datetime | None = None,
) -> ToolResult:
    """Do one thing for a session that the caller holds, or refuse it.

    `key` is the call's place in its run: the same key again returns the stored result, without a second effect or
    charge. Raises an AutonomousBrake when the run must end; returns a result for everything the run can go on from.
    """
    return _do(plan_call(session, intent, params, key=key, now=now or clock(), risk=risk, simulation=simulation))


def _do(call: Call) -> ToolResult:
    """Make the call; if its model does not serve, by the first of its fallbacks that does.

    A model does not serve while it is away, suspended or too dear, or if its server refuses the key. What it comes to
    if none of them serves is decided by the model that was asked for.
    """
    fallbacks = fallbacks_of(call.model) if call.model else ()
    if not fallbacks:
        return _do_once(call)
    started = time.monotonic()
    first = end = _attempt(call)
    for model in fallbacks:
        passed = time.monotonic() - started
        if not _serves(end) and passed < FALLBACK_SECONDS:  # else the ticker wakes the run for it
            end = _attempt(call.but(fallback=model, now=call.now + timedelta(seconds=passed)))
    if _serves(end):
        return _conclude(end)
    return _do_once(call) if isinstance(first, TooDear) else _conclude(first)


def _attempt(call: Call) -> Refusal:
    """Make the call by one of several models; return why that model does not serve instead of raising it."""
    try:
        return _do_once(call.but(has_fallback=True))
    except (RetryLater, ModelSuspended, TooDear) as refusal:
        return refusal


def _serves(end: Refusal) -> bool:
    return isinstance(end, ToolResult) and end.detail != KEY_REFUSED


def _do_once(call: Call) -> ToolResult:
    if _may_pass_at_once(call):
        if call.tool.remote:
            call = _open_at_once(call)
            if call.row is not None:
                return _finish(call)
        elif (done := _act_at_once(call)) is not None:
            return done
    decided = _decide(call)
    if isinstance(decided, ToolResult):
        return decided
    return _finish(_open(decided)) if decided.tool.remote else _act_locally(decided)


def guarded_group(calls: Sequence[Call]) -> list[ToolResult]:
    """Do several things at once: all of them are authorised before any of them happens.

    A call that is refused has its refusal for a result, and the others go on. A brake stops the whole group before the
    first byte leaves, and what was reserved for the others is released. If a model does not serve and has fallbacks,
    the calls are made one by one.
    """
    if len(calls) == 1:
        return [timed(partial(_do, calls[0]))]
    try:
        results = _do_together([call.but(has_fallback=bool(fallbacks_of(call.model))) for call in calls])
    except (RetryLater, ModelSuspended, TooDear) as away:
        if not fallbacks_of(away.model):
            raise
        return [timed(partial(_do, call)) for call in calls]
    return [
        result if _serves(result) or not fallbacks_of(call.model) else timed(partial(_do, call))
        for call, result in zip(calls, results, strict=True)
    ]


def guarded_batch(calls: Sequence[Call]) -> list[ToolResult]:
    """Do several things whose whole effect is rows of ours, in one block: judged together, written together.

    If one of them is stopped, fails or was done before, the block is undone and they are done one by one: then each
    has an end of its own, and what stops it is written down.
    """
    places = {(call.session.pk, call.key) for call in calls}
    of_one_run = len({session for session, _ in places}) == 1 and len(places) == len(calls) > 1
    if of_one_run and all(
        call.is_free_and_local and not call.tool.is_skill and _may_pass_at_once(call) for call in calls
    ):
        done = _act_together(calls)
        if done is not None:
            return done
    return [_do(call) for call in calls]


def _do_together(calls: Sequence[Call]) -> list[ToolResult]:
    decided = [_decide(call) for call in calls]
    ready: list[ToolResult | Call] = []
    try:
        for place, call in enumerate(decided):
            if isinstance(call, Call) and call.tool.remote:
                ready.append(_open(call, sharing=len(decided) - place, is_first=not _has_open(ready)))
            else:
                ready.append(call)  # refused already, or local: authorised and done in one transaction below
    except BaseException:
        for call in ready:
            if isinstance(call, Call) and call.row is not None:
                withdraw(call)
        raise
    return run_parallel([partial(timed, partial(_finish, call)) for call in ready])


def _has_open(calls: Sequence[ToolResult | Call]) -> bool:
    return any(isinstance(call, Call) and call.row is not None for call in calls)


# --- All of it in one statement, where nobody needs to be asked ---


def _may_pass_at_once(call: Call) -> bool:
    """Return whether R6 grants the call, and nobody has to be asked for it.

    The statement itself tests that no rule might fit a skill's call, and counts it. The time between two calls of a
    skill is left to the steps.
    """
    if call.risk is not None or not may_pass_unasked(call.capability) or call.holds_a_secret:
        return False
    if call.tool.is_skill and (call.tool.pace is None or call.tool.pace.cooldown):
        return False
    if call.tool.remote and in_open_transaction():
        return False
    return brakes.contextual(call.intent, call.phase) is None


def _open_at_once(call: Call) -> Call:
    """Authorise a remote call by one statement that tests what the steps below test.

    If it wrote nothing, the call has no journal row: the steps decide.
    """
    price_row = None
    if call.request is not None:
        price_row = known_price_row(call.model)
        if price_row is None or isinstance(quoted := _quoted(call, price_row), UnpricedModel):
            return call
        call = quoted
    row = journal_row(call)
    noted = _fill(row, call)
    opened = open_call(row, session=call.session, now=call.now, price_row=price_row, pace=call.tool.pace, **noted)
    if opened is None:
        return call
    return call.but(row=row, head=opened.head, is_fresh=not opened.waited)


class _Undone(Exception):
    """A local call failed, or its session was stopped."""


def _act_at_once(call: Call) -> ToolResult | None:
    """Make a local call by one statement after its effect, or by two around it. None: nothing is left of it.

    Its whole effect is rows, so a tool that fails is undone and made again by the steps, which keep what it came to. A
    tool of our own is undone also if the statement after it refuses, so none has to come before; the code of a skill
    does not run until R5 has let it. A skill that nobody is asked about has no row for people who may see content
    (skill_audits.py).
    """
    if not call.is_free_and_local:
        return None
    opened = call.but(row=journal_row(call), is_undone_whole=True)
    try:
        return (_act_then_record if call.tool.undoable and call.is_new else _act_between)(opened)
    except (_Undone, IntegrityError, InternalError, TransactionManagementError):
        return None  # another writer of the chain was faster, or the tool went on after an error of the database


def _act_then_record(call: Call) -> ToolResult:
    """Run the tool, then judge and record it. What only reads does so before: no lock is held for a search.

    In a caller's transaction it reads within the block, which keeps an error of the database from breaking it all.
    """
    row = call.journal
    started = call_details(row)
    result = None if call.capability.side_effects or in_open_transaction() else _acted(call)
    with transaction.atomic():
        if result is None:
            result = _acted(call)
        if not record_local(row, session=call.session, now=call.now, started=started):
            raise _Undone
    return result


def _act_between(call: Call) -> ToolResult:
    row = call.journal
    with transaction.atomic():
        if not begin_local(row, session=call.session, now=call.now, pace=call.tool.pace):
            raise _Undone
        result = _acted(call)
        if not end_local(row, session=call.session, now=call.now):
            raise _Undone
    return result


def _act_together(calls: Sequence[Call]) -> list[ToolResult] | None:
    """Make local calls of one session in one block. None: nothing was written."""
    session, now = calls[0].session, calls[0].now
    opened = [call.but(row=journal_row(call), is_undone_whole=True) for call in calls]
    rows = [call.journal for call in opened]
    try:
        with transaction.atomic():
            boundary = read_for_update(session).boundary
            stopped = boundary.is_paused or any(_judge(call, boundary) for call in calls)
            if stopped or any(call.phase != boundary.phase for call in calls):
                return None
            if journal_holds(session, [call.key for call in calls]):
                return None
            head = journal_record_all(rows, session=session, now=now)
            if head is None:
                raise _Undone
            results = _acted_together(opened)
            if journal_local_all(rows, session=session, after=head, now=now) is None:
                raise _Undone
    except (_Undone, SessionHalted, InternalError, TransactionManagementError):
        return None
    except OperationalError as error:
        if not was_in_the_way(error):
            raise
        return None
    return results


def _acted_together(calls: Sequence[Call]) -> list[ToolResult]:
    """Run the tools of local calls. If their rows cannot be written, each is made on its own and has its own end."""
    blocks = dict.fromkeys(call.tool.together for call in calls if call.tool.together is not None)
    try:
        with ExitStack() as stack:
            for block in blocks:
                stack.enter_context(block())
            return [_acted(call) for call in calls]
    except (DataError, IntegrityError, ProgrammingError, ValueError) as error:
        raise _Undone from error


def _acted(call: Call) -> ToolResult:
    """Run the tool of a local call and fill in its journal row. A failure undoes the whole block."""
    result, _ = _dispatch(call, _never)
    if not result.ok:
        raise _Undone
    call.journal.end(result)
    return result


def _quoted(call: Call, price_row: tuple[Any, ...]) -> Call | UnpricedModel:
    """Return the call with its estimate, its price, and its worst case for the whole answer that it asks for."""
    try:
        price = declared_price(call.model, price_row)
    except UnpricedModel as refusal:
        return refusal
    call = _estimated(call)
    assert call.outgoing is not None  # noqa: S101 it has a model request
    asked = call.outgoing.request
    held = costs.worst_case(price, costs.input_bound(asked, price), asked.max_tokens)
    return call.but(price=price, held=held)


def _estimated(call: Call) -> Call:
    """Return the call with its estimate and the request that would leave the process; each is made once."""
    if call.outgoing is not None:
        return call
    estimate = costs.usd(estimate_tool_cost(call.intent, call.priced_by, now=call.now))
    outgoing = outgoing_request(call.session, call.request) if call.request else None
    return call.but(estimate=estimate, outgoing=outgoing)


def _fill(row: ToolCall, call: Call) -> dict[str, Any]:
    """Fill in the money of a priced call's journal row; return what its event notes beside."""
    if call.outgoing is None:
        return {}
    request = call.outgoing.request
    row.model = request.model
    row.max_tokens = request.max_tokens
    row.approved_usd = call.estimate
    row.held_usd = call.held
    return {} if request.anonymize else {"anonymize": False}


# --- R5, R6 and consent ---


def _decide(call: Call) -> Call | ToolResult:
    """Return the call that may be authorised, or what the run gets instead."""
    if call.tool.remote and in_open_transaction():
        raise OpenTransaction(f"{call.intent} does I/O and was called inside a transaction; call it outside of one.")
    seen = read_unlocked(call.session, call.key)
    call = call.but(phase=seen.boundary.phase)
    if _judge(call, seen.boundary) is not None:
        with transaction.atomic():
            refusal = _refuse_if_stopped(call, read_for_update(call.session))
        if refusal is not None:
            raise refusal
    if seen.boundary.is_paused:
        raise SessionPaused
    place = journal_place(seen.journal, asked_digest=call.digest, by_fallback=bool(call.fallback))
    if place.replay is not None:
        return place.replay
    if call.holds_a_secret:
        return denied(call, "secret_in_arguments", _HOLDS_SECRET, brake=Brake.ARGUMENTS)
    return _estimated(call.but(asked_digest=call.digest, attempt=place.attempt))


def _consented(call: Call) -> Call | ToolResult:
    """Return the call as people let it be made, by what is read now, or what the run gets instead.

    Ask after the last lock that the call waits for: a prohibition committed before that, such as a rule, holds.
    """
    asked = as_set_now(call)
    if isinstance(asked, ToolResult):
        return asked
    ticket = consent(asked)
    if isinstance(ticket, ToolResult):
        return ticket
    return asked if ticket is None else _as_approved(asked.but(ticket=ticket), ticket)


def _as_approved(call: Call, ticket: Approval) -> Call | ToolResult:
    """Return the call with the arguments of its ticket. If the approver changed them, it is judged once more."""
    call = call.but(arguments=ticket.arguments, outgoing=None)  # one that was made before is of the arguments asked for
    if call.holds_a_secret:
        return denied(call, "secret_in_arguments", _HOLDS_SECRET, brake=Brake.ARGUMENTS)
    if ticket.original_digest:
        call = call.but(tool=usable(call.intent, ticket.arguments).tool)
        if (refused := refuse_edited(call, ticket)) is not None:
            return refused
    return _estimated(call)


def _judge(call: Call, boundary: brakes.Boundary) -> brakes.AlreadyStopped | brakes.HaltNow | brakes.NotGranted | None:
    """Judge twice: an unlocked read before anything else, and again under lock, in the block that commits."""
    return brakes.temporal(boundary) or brakes.contextual(call.intent, boundary.phase)


def _refuse_if_stopped(call: Call, locked: LockedRead) -> Exception | None:
    stop = _judge(call, locked.boundary)
    if stop is None:
        return None
    return refuse_stopped(call, stop, phase=locked.boundary.phase)


# --- R4 ---


def _check_cost(call: Call, locked: LockedRead, ledgers: tuple[Ledger, ...], sharing: int) -> Call | Refusal:
    """Return the call with what it may spend, or the refusal. A call without a model request costs nothing."""
    if call.outgoing is None:
        return call
    request = call.outgoing.request
    keep_price_row(request.model, locked.price_row)
    try:
        if locked.model_suspended:
            raise ModelSuspended(request.model)
        price = declared_price(request.model, locked.price_row)
    except (ModelSuspended, UnpricedModel) as refusal:
        denied(call, refusal.code, str(refusal), brake=Brake.COST)
        return refusal
    verdict = _verdict(call, request, locked, price, ledgers=ledgers, sharing=sharing)
    if call.has_fallback and brakes.is_for_price(verdict):
        return refuse_too_dear(call)
    if not isinstance(verdict, brakes.Affordable):
        return refuse_unaffordable(call, verdict)
    away_until = locked.model_away_until
    if away_until is not None and not outage_probe(request.model, now=call.now):
        return RetryLater(request.model, away_until)
    return call.but(
        outgoing=call.outgoing.limited(verdict.max_tokens),
        price=price,
        held=verdict.held,
        ledgers=ledgers,
        is_probe=away_until is not None,
    )


def _verdict(
    call: Call, request: ModelRequest, locked: LockedRead, price: Price, *, ledgers: tuple[Ledger, ...], sharing: int
) -> brakes.Verdict:
    return brakes.economic(
        brakes.Quote(call.estimate, request, price, costs.input_bound(request, price)),
        session=locked.ledger,
        shared=ledgers,
        token_budget=locked.token_budget,
        total_tokens=locked.total_tokens,
        sharing=sharing,
    )


def can_be_paid(session: AgentSession, intent: ToolIntent, params: Mapping[str, Any]) -> bool:
    """Return whether a model call would pass R4 now, with room for at least half of the answer that it asks for.

    It decides and writes nothing. With it a run ends early by itself, before the brake ends it without a result.
    """
    call = plan_call(session, intent, params, key="", now=clock())
    return any(_can_be_paid(call.but(fallback=model)) for model in ("", *fallbacks_of(call.model)))


def _can_be_paid(call: Call) -> bool:
    call = _estimated(call)
    if call.outgoing is None:
        return True
    with transaction.atomic():
        locked = read_for_update(call.session, model=call.model)
        try:
            price = declared_price(call.model, locked.price_row)
        except UnpricedModel:
            return True  # no question of money: the call itself is refused
        ledgers = budgets_lock(session_id=call.session.pk, now=call.now)
        verdict = _verdict(call, call.outgoing.request, locked, price, ledgers=ledgers, sharing=1)
    if isinstance(verdict, brakes.Affordable):
        return 2 * verdict.max_tokens >= call.outgoing.request.max_tokens
    return isinstance(verdict, brakes.Busy)


# --- Authorise, dispatch, settle ---


@contextmanager
def _written_if_overtaken(call: Call) -> Iterator[None]:
    """Write down the refusal of a call whose block a halt of all work undid between its verdict and its commit."""
    try:
        yield
    except SessionHalted as halted:
        with transaction.atomic():
            refusal = _refuse_if_stopped(call, read_for_update(call.session))
        raise refusal or halted from None


def _act_locally(call: Call) -> ToolResult:
    """The whole effect is rows of ours: one block, which joins the caller's transaction if one is open."""
    with _written_if_overtaken(call), transaction.atomic():
        opened = _authorise(call)
        end = settle(opened, *_dispatch(opened, _never), now=call.now) if isinstance(opened, Call) else opened
    return _conclude(end)


def _open(call: Call, *, sharing: int = 1, is_first: bool = True) -> Call | ToolResult:
    """Authorise a remote call in a durable block of its own: intent before effect.

    A pause that comes when the first call of a group is open lets the others follow: the group is in flight.
    """
    with _written_if_overtaken(call), transaction.atomic(durable=True):
        opened = _authorise(call, sharing=sharing, is_first=is_first)
    return opened if isinstance(opened, Call) else _conclude(opened)


def _finish(call: Call | ToolResult) -> ToolResult:
    if isinstance(call, ToolResult):
        return call
    if call.row is None:
        return _act_locally(call)
    started = time.monotonic()
    with watching(call.session) as stopped:
        result, meter = _dispatch(call, stopped)
    took = timedelta(seconds=time.monotonic() - started)
    end = settle_durably(call, result, meter, took=took)
    if isinstance(end, ToolResult):
        end = _after(call, end, meter, now=call.now + took)
    return _conclude(end)


def _after(call: Call, result: ToolResult, meter: Meter, *, now: datetime) -> Refusal:
    """Return what follows from a settled call: the halt that ended it, the wait for its model, or its result."""
    if result.detail == RETRY_LATER and meter.timed_out and not call.is_probe and is_busy(call.model, since=call.now):
        return ModelBusy(call.model, now + BUSY_PAUSE)
    if result.detail == RETRY_LATER:
        next_try = outage_note(
            call.model, result.error, pause=meter.pause, is_try=call.is_probe, is_gone=meter.is_unreached, now=now
        )
        return RetryLater(call.model, next_try)
    if call.is_probe and meter.contacted and not meter.halted:
        outage_over(call.model, now=now)  # whatever it answered, it is there
    elif call.is_probe:
        outage_try_now(call.model, now=now)  # by another run
    if result.detail == HALTED:
        with transaction.atomic():
            return _refuse_if_stopped(call.but(now=now), read_for_update(call.session)) or result
    return result


def _conclude(end: Refusal) -> ToolResult:
    """Raise or return only now that the block which wrote it down has ended normally."""
    if isinstance(end, Exception):
        raise end
    return end


def _authorise(call: Call, *, sharing: int = 1, is_first: bool = True) -> Call | Refusal:
    """Decide under lock and write the intent down: reservation, journal row, audit row.

    Every lock that others may hold for long is taken before anybody's consent is read: the session's, those of its
    budgets, and that of the count of a skill's calls.
    """
    locked = read_for_update(call.session, model=call.model)
    if (stopped := _refuse_if_stopped(call, locked) or _put_aside(locked, is_first=is_first)) is not None:
        return stopped
    ledgers = budgets_lock(session_id=call.session.pk, now=call.now) if call.outgoing else ()
    if call.tool.pace is not None:
        skill_count_lock(call.tool.pace, now=call.now)
    allowed = _consented(call)
    if isinstance(allowed, ToolResult):
        return allowed
    if allowed.model != call.model:  # the approver named another
        locked = read_for_update(call.session, model=allowed.model)
    paid = _check_cost(allowed, locked, ledgers, sharing)
    if not isinstance(paid, Call):
        return paid
    if (refused := use_ticket(paid)) is not None:
        return refused
    row = journal_row(paid)
    noted = _fill(row, paid)
    if paid.ticket is not None:
        ticket_record(paid.ticket, call_id=str(row.public_id), now=call.now)
    if paid.outgoing is not None:
        row.budget_ids = [ledger.id for ledger in paid.ledgers]
        warn_at_80_percent(call.session, (locked.ledger, *paid.ledgers), estimate=paid.estimate, now=call.now)
    if call.is_free_and_local:
        head = journal_record(row, now=call.now)
    else:
        head = journal_open(row, session=call.session, ledgers=paid.ledgers, now=call.now, **noted)
    return paid.but(row=row, head=head)


def _put_aside(locked: LockedRead, *, is_first: bool) -> SessionPaused | None:
    return SessionPaused() if locked.boundary.is_paused and is_first else None


def _never() -> bool:
    """A local call is one transaction; no halt interrupts it."""
    return False


def _dispatch(call: Call, stopped: Callable[[], bool]) -> tuple[ToolResult, Meter]:
    """Run the handler as one span, and with the ids of run and call on every log line."""
    with traced(call) as span:
        result, meter = _handle(call, stopped)
        if makes_spans():
            span.update(outcome_attributes(result, meter.last))
    return result, meter


def _handle(call: Call, stopped: Callable[[], bool]) -> tuple[ToolResult, Meter]:
    """Run the handler; nothing else does. A halt that came in meanwhile still stops the first byte.

    `stopped` tells of a halt that comes while the call is out.
    """
    row = call.journal
    meter = Meter(
        call.outgoing,
        book=lambda attempt: book_attempt(call, attempt),
        stopped=stopped,
        tries=Tries(most=most_tries(), rate_limited=row.attempt - 1),
    )
    session = call.session
    context = SkillContext(
        session_pk=session.pk,
        session_id=session.public_id,
        owner_id=session.owner_id,
        call_id=row.public_id,
        idempotency_key=f"{session.chain}:{call.key}",  # of every attempt: a server that honours it acts once
        now=call.now,
        infer=meter.infer,
        stopped=stopped,
    )
    outcome = Outcome.SUCCESS
    data = None
    data_json = error = detail = ""
    try:
        if call.tool.remote and not call.is_fresh and is_halted(session):
            outcome = Outcome.DENIED
            error = "The session was halted."
            detail = "halted_before_dispatch"
        else:
            with nullcontext() if call.tool.remote or call.is_undone_whole else transaction.atomic():
                data = dispatch.run(_make_pass(row.public_id), call.tool, context, deepcopy(call.arguments))
                data = redact_data(json_safe(data))
                data_json = canonical(data)  # what cannot be stored is the tool's fault, not the journal's
    except Exception as raised:  # whatever a tool raises is its outcome, and the run can go on from it
        if not call.tool.remote and isinstance(raised, OperationalError | InterfaceError):
            raise  # the database failed, not the tool: this block is undone, and the run is left to be taken over
        data, data_json = None, ""
        outcome, error, detail = _failure(call, meter, raised)
    finally:
        meter.close()
    if meter.halted:
        outcome, error, detail = Outcome.ERROR, "A halt ended the request to the model.", HALTED
    elif meter.failed and outcome == Outcome.SUCCESS:
        outcome, error = Outcome.GATEWAY_ERROR, meter.failure  # a handler may not turn a failed inference into success
    # Charged is the very Decimal that R4 approved: once, and only when the provider was reached.
    charged = row.approved_usd if meter.contacted and detail not in {RETRY_LATER, KEY_REFUSED} else ZERO
    error = json_safe(error)[:2_000]
    return ToolResult(charged, data, outcome, error, detail, row.call_id, data_json=data_json), meter


def _failure(  # noqa: PLR0911 one line for each kind of failure
    call: Call, meter: Meter, raised: Exception
) -> tuple[Outcome, str, str]:
    """Return the outcome, the error and the detail of a call whose handler raised."""
    lost = Outcome.ERROR if call.capability.repeatable else Outcome.UNKNOWN
    match raised:
        case ProviderError():
            return Outcome.GATEWAY_ERROR, meter.failure, KEY_REFUSED if raised.fault == Fault.AUTH else ""
        case ModelAway():
            return Outcome.GATEWAY_ERROR, redact(str(raised)), RETRY_LATER
        case SkillStopped():
            return lost, str(raised), HALTED
        case SkillTimeout():
            return Outcome.TIMEOUT if call.capability.repeatable else lost, f"TimeoutError: {raised}", ""
        case OutcomeUnknown():
            return lost, str(raised), ""
        case ToolFailed():
            return raised.outcome, redact(str(raised)), ""
        case _:
            return Outcome.ERROR, redact_exception(raised), ""
