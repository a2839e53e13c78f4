"""guarded_tool_call: the one way for an agent to act. Read from top to bottom, it is the safety argument.

R5 (is it halted?) → R6 (does the phase grant it?) → a person's consent where one is needed → R4 (can it be paid?).
The first that refuses wins, an error refuses, and what is refused leaves a record and no effect. What is allowed is
written down and paid for before it happens, and closed when its outcome is known. The guard never commits for its
caller, and no transaction is open while a remote call is out.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from agents.conf import clock
from agents.enums import Outcome, Risk, ToolIntent
from agents.exceptions import ModelSuspended, OpenTransaction, OutcomeUnknown, ToolFailed, UnpricedModel
from agents.guard import dispatch
from agents.guard.calls import Asked, Call, plan_call
from agents.guard.consent import consent, denied, spend
from agents.guard.metering import LongWait, Meter, Question
from agents.guard.refusals import Refusal, refuse_stopped, refuse_unaffordable
from agents.guard.settlement import Opened, Payment, book_attempt, journal_row, settle, settle_durably, withdraw
from agents.guard.tools import CallContext, most_tries
from agents.ledger.boundary import Locked, glance, is_halted, lock
from agents.ledger.budgets import budgets_lock, warn_at_80_percent
from agents.ledger.journal import RETRY_LATER, journal_open, journal_place, journal_record
from agents.ledger.prices import declared_price, estimate_tool_cost
from agents.models import AgentSession, Approval
from agents.policy import brakes, costs
from agents.providers.base import ProviderError, Tries
from agents.queue import in_open_transaction
from agents.sessions.approvals import ticket_record
from agents.skills.running import SkillTimeout, at_once, timed
from agents.text.clean import storable
from agents.types import ZERO, ToolResult
from audit.redaction import redact, redact_data, redact_exception
from audit.rows import canonical

_mint = dispatch.take_mint()


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
    """Does one thing for a session that the caller holds, or refuses it.

    `key` is the call's place in its run: the same key again gives the stored result, without a second effect or charge.
    Raises an AutonomousBrake when the run must end; returns a result for everything that the run can go on from.
    """
    call = plan_call(session, intent, params, key=key, now=now or clock(), risk=risk, simulation=simulation)
    draft = _drafted(call)
    if isinstance(draft, ToolResult):
        return draft
    return _act_remotely(draft) if call.tool.remote else _act_locally(draft)


def guarded_group(session: AgentSession, asked: Sequence[Asked], *, now: datetime | None = None) -> list[ToolResult]:
    """Does several things at once: all of them are authorised before any of them happens.

    A call that is refused has its refusal for a result, and the others go on. A brake stops the whole group before the
    first byte leaves: what was reserved for the others is given back.
    """
    at = now or clock()
    calls = [
        plan_call(session, one.intent, one.params, key=one.key, now=at, risk=one.risk, simulation=one.simulation)
        for one in asked
    ]
    drafts = [_drafted(call) for call in calls]
    ready: list[ToolResult | _Draft | Opened] = []
    try:
        for place, draft in enumerate(drafts):
            if isinstance(draft, _Draft) and draft.call.tool.remote:
                ready.append(_opened(draft, sharing=len(drafts) - place))
            else:
                ready.append(draft)  # refused already, or an effect of one block, which has its turn below
    except BaseException:
        for opened in ready:
            if isinstance(opened, Opened):
                withdraw(opened)
        raise
    return at_once([partial(timed, partial(_finished, one)) for one in ready])


def _drafted(call: Call) -> "ToolResult | _Draft":
    """R5, R6 and consent, as they stand now: what may be authorised, or what the run is told instead."""
    session = call.session
    if call.tool.remote and in_open_transaction():
        raise OpenTransaction(f"{call.intent} does I/O and was called inside a transaction; call it outside of one.")
    seen = glance(session, call.key)
    call = replace(call, phase=seen.boundary.phase)
    if _judge(call, seen.boundary) is not None:
        with transaction.atomic():
            refusal = _refuse_if_stopped(call, lock(session))
        if refusal is not None:
            raise refusal
    place = journal_place(seen.journal, asked_digest=call.digest)
    if place.replay is not None:
        return place.replay
    if call.holds_a_secret:
        return denied(call, "secret_in_arguments", "The arguments hold a masked secret; pass secrets by handle.")
    ticket = consent(call)
    if isinstance(ticket, ToolResult):
        return ticket
    asked_digest = call.digest
    if ticket is not None:
        call = replace(call, arguments=ticket.arguments)  # the approver may have changed them
        if call.holds_a_secret:
            return denied(call, "secret_in_arguments", "The arguments hold a masked secret; pass secrets by handle.")
    estimate = costs.usd(estimate_tool_cost(call.intent, call.priced_by, now=call.now))
    question = Question.of(session, call.tool.request(call.arguments)) if call.tool.request else None
    return _Draft(call, estimate, question, ticket, asked_digest, place.attempt)


# --- R5 and R6 ---


def _judge(call: Call, boundary: brakes.Boundary) -> brakes.AlreadyStopped | brakes.HaltNow | brakes.NotGranted | None:
    """Asked twice: of a fresh read, before anything else, and again under lock, in the block that commits."""
    return brakes.temporal(boundary) or brakes.contextual(call.intent, boundary.phase)


def _refuse_if_stopped(call: Call, locked: Locked) -> Exception | None:
    stop = _judge(call, locked.boundary)
    if stop is None:
        return None
    return refuse_stopped(call.session, call.intent, stop, phase=locked.boundary.phase, now=call.now)


# --- R4 ---


@dataclass(frozen=True)
class _Draft:
    """A call that R5, R6 and consent let through, with the one estimate that R4 will judge and the books will show."""

    call: Call
    estimate: Decimal
    question: Question | None
    ticket: Approval | None
    asked_digest: str
    attempt: int


def _afford(draft: _Draft, locked: Locked, sharing: int) -> Payment | Refusal:
    call, question = draft.call, draft.question
    if question is None:
        return Payment()
    request = question.request
    try:
        if locked.model_suspended:
            raise ModelSuspended(request.model)
        price = declared_price(request.model, locked.price_row)
    except (ModelSuspended, UnpricedModel) as refusal:
        denied(call, refusal.code, str(refusal), model=request.model)
        return refusal
    quote = brakes.Quote(draft.estimate, request, price, costs.input_bound(request, price))
    ledgers = budgets_lock(agent_id=locked.agent_id, trigger_id=locked.trigger_id, now=call.now)
    verdict = brakes.economic(
        quote,
        session=locked.ledger,
        shared=ledgers,
        token_budget=locked.token_budget,
        total_tokens=locked.total_tokens,
        sharing=sharing,
    )
    if not isinstance(verdict, brakes.Affordable):
        return refuse_unaffordable(call.session, call.intent, verdict, phase=call.phase, now=call.now)
    return Payment(question.limited(verdict.max_tokens), price, verdict.held, ledgers)


# --- Authorise, dispatch, settle ---


def _act_locally(draft: _Draft) -> ToolResult:
    """Effect and record are rows of ours: one block, which joins the caller's transaction if one is open."""
    with transaction.atomic():
        opened = _authorise(draft)
        end = settle(opened, *_dispatch(opened), now=draft.call.now) if isinstance(opened, Opened) else opened
    return _conclude(end)


def _act_remotely(draft: _Draft) -> ToolResult:
    """Intent, then effect, then outcome: two durable blocks, and no transaction open in between."""
    return _finished(_opened(draft))


def _opened(draft: _Draft, *, sharing: int = 1) -> Opened | ToolResult:
    with transaction.atomic(durable=True):
        opened = _authorise(draft, sharing=sharing)
    return opened if isinstance(opened, Opened) else _conclude(opened)


def _finished(opened: Opened | ToolResult | _Draft) -> ToolResult:
    if isinstance(opened, ToolResult):
        return opened
    if isinstance(opened, _Draft):
        return _act_locally(opened)
    started = time.monotonic()
    result, meter = _dispatch(opened)
    return _conclude(settle_durably(opened, result, meter, took=timedelta(seconds=time.monotonic() - started)))


def _conclude(end: Refusal) -> ToolResult:
    """Raised, or returned, only now that the block which wrote it down has ended normally."""
    if isinstance(end, Exception):
        raise end
    return end


def _authorise(draft: _Draft, *, sharing: int = 1) -> Opened | Refusal:
    call = draft.call
    locked = lock(call.session, model=call.model)
    if (refusal := _refuse_if_stopped(call, locked)) is not None:
        return refusal
    payment = _afford(draft, locked, sharing)
    if not isinstance(payment, Payment):
        return payment
    if (refused := spend(call, draft.ticket)) is not None:
        return refused
    row, noted = journal_row(call, asked_digest=draft.asked_digest, attempt=draft.attempt), {}
    if draft.ticket is not None:
        ticket_record(draft.ticket, call_id=str(row.public_id), now=call.now)
    if payment.question is not None:
        request = payment.question.request
        noted = {} if request.anonymize else {"anonymize": False}
        row.model, row.max_tokens = request.model, request.max_tokens
        row.approved_usd, row.held_usd = draft.estimate, payment.held
        row.budget_ids = [ledger.id for ledger in payment.ledgers]
        warn_at_80_percent(call.session, (locked.ledger, *payment.ledgers), estimate=draft.estimate, now=call.now)
    if call.is_free_and_local:
        head = journal_record(row, now=call.now)
    else:
        head = journal_open(row, session=call.session, ledgers=payment.ledgers, now=call.now, **noted)
    return Opened(call, row, payment, head)


def _dispatch(opened: Opened) -> tuple[ToolResult, Meter]:
    """The only place from which a handler is run. A halt that came in meanwhile still stops the first byte."""
    call, row = opened.call, opened.row
    meter = Meter(
        opened.payment.question,
        book=lambda attempt: book_attempt(opened, attempt),
        halted=lambda: is_halted(call.session),
        tries=Tries(most=most_tries(), rate_limited=row.attempt - 1),
    )
    context = CallContext(
        session_pk=call.session.pk,
        session_id=call.session.public_id,
        owner_id=call.session.owner_id,
        call_id=row.public_id,
        key=call.key,
        now=call.now,
        infer=meter.infer,
    )
    outcome, data, error, detail = Outcome.SUCCESS, None, "", ""
    try:
        if call.tool.remote and is_halted(call.session):
            outcome, error, detail = Outcome.DENIED, "The session was halted.", "halted_before_dispatch"
        else:
            with nullcontext() if call.tool.remote else transaction.atomic():
                data = dispatch.run(_mint(row.public_id), call.tool, context, deepcopy(call.arguments))
                data = redact_data(storable(data))
                canonical(data)  # what cannot be stored is the tool's fault, not the journal's
    except ProviderError:
        outcome, error = Outcome.GATEWAY_ERROR, meter.failure
    except LongWait as wait:
        outcome, error, detail = Outcome.GATEWAY_ERROR, str(wait), RETRY_LATER
        meter.wait_seconds = wait.seconds
    except SkillTimeout as late:
        outcome, error = Outcome.TIMEOUT if call.capability.repeatable else Outcome.UNKNOWN, f"TimeoutError: {late}"
    except OutcomeUnknown as lost:
        outcome, error = Outcome.ERROR if call.capability.repeatable else Outcome.UNKNOWN, str(lost)
    except ToolFailed as failed:
        outcome, error = failed.outcome, redact(str(failed))
    except Exception as raised:  # noqa: BLE001 whatever a tool raises is its outcome, and the run can go on from it
        outcome, data, error = Outcome.ERROR, None, redact_exception(raised)
    finally:
        meter.close()
    if meter.failed and outcome == Outcome.SUCCESS:
        outcome, error = Outcome.GATEWAY_ERROR, meter.failure  # a handler may not turn a failed inference into success
    # Charged is the very Decimal that R4 approved: once, and only when the provider was reached.
    charged = row.approved_usd if meter.contacted and detail != RETRY_LATER else ZERO
    return ToolResult(charged, data, outcome, storable(error)[:2_000], detail, str(row.public_id)), meter
