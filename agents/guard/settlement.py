"""Settlement: the outcome of a call goes into the ledgers, the journal and the audit log. Imported by the guard alone.

Each failed attempt at a model is booked before the next one is sent; the last attempt is booked when the call ends.
"""

import logging
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction

from agents.enums import Outcome, Status, TerminalReason
from agents.exceptions import BudgetExceeded, LeaseLost
from agents.guard.calls import Call, skill_audit
from agents.guard.metering import Meter
from agents.guard.refusals import Refusal, brake_session
from agents.ledger.at_once import settle_call
from agents.ledger.journal import (
    Attempt,
    inference_log,
    journal_local,
    journal_retry,
    journal_settle,
)
from agents.ledger.model_servers import form_note
from agents.ledger.prices import model_suspend
from agents.models import AgentSession, InferenceLog, ToolCall
from agents.policy import costs
from agents.types import ZERO, ToolResult

logger = logging.getLogger(__name__)


def booked_usd(call: Call, attempt: Attempt | None) -> Decimal:
    """Return what an attempt adds to the ledger of reported costs.

    Of one that a halt ended, what came in is known: it is booked at most that, and the request in full. A model that
    thinks may have used more tokens than came in: it is booked at its worst case.
    """
    if attempt is None or call.price is None:
        return ZERO
    worst = call.held
    if attempt.stopped_after is not None and call.outgoing is not None:
        sent = costs.input_bound(call.outgoing.request, call.price)
        worst = min(worst, costs.worst_case(call.price, sent, attempt.stopped_after))
    return attempt.booked(call.price, worst=worst)


def journal_row(call: Call) -> ToolCall:
    """Build the journal row of a call that is about to be opened."""
    return ToolCall.begun(
        call.session,
        key=call.key,
        attempt=call.attempt,
        intent=call.intent,
        name=call.capability.name,
        version=call.capability.version,
        phase=call.phase,
        arguments=call.arguments,
        arguments_json=call.arguments_json,
        digest=call.digest,
        asked_digest="" if call.asked_digest == call.digest else call.asked_digest,
        repeatable=call.capability.repeatable,
        started_at=call.now,
    )


def book_attempt(call: Call, attempt: Attempt) -> bool:
    """Book a failed attempt. Return False, writing nothing, if there is no room for another one."""
    booked = booked_usd(call, attempt)
    row = call.journal
    with transaction.atomic(durable=True):
        room = journal_retry(row, session=call.session, booked=booked, tokens=attempt.tokens)
        if room:
            InferenceLog(**_log(call, attempt, booked, now=call.now)).save(force_insert=True)
    if room:
        row.actual_usd = row.actual_usd + booked
        row.tokens = row.tokens + attempt.tokens
    return room


def settle_durably(call: Call, result: ToolResult, meter: Meter, *, took: timedelta) -> Refusal:
    """Settle a remote call in a transaction of its own, replacing a broken connection once.

    If that fails too, the lease runs out: the next worker closes the call and charges it in full.
    """
    before = call.journal.actual_usd, call.journal.tokens
    try:
        return _settled(call, result, meter, took=took)
    except (OperationalError, InterfaceError) as error:
        logger.warning(
            "call %s could not be settled (%s); trying once more", call.journal.public_id, type(error).__name__
        )
        connection.close()
    call.journal.actual_usd, call.journal.tokens = before
    try:
        return result if _is_settled(call) else _settled(call, result, meter, took=took)
    except (OperationalError, InterfaceError) as error:
        raise LeaseLost(f"Call {call.journal.public_id} could not be settled; it is left to recovery.") from error


def _is_settled(call: Call) -> bool:
    """Return whether the first try has settled the call after all: it was committed, and only its answer was lost."""
    held = AgentSession.objects.filter(pk=call.session.pk, fencing=call.session.fencing, status=Status.RUNNING)
    return ToolCall.objects.filter(pk=call.journal.pk, session__in=held).exclude(outcome=Outcome.STARTED).exists()


def withdraw(call: Call) -> None:
    """Close an authorised call that does not happen after all: nothing was sent, nothing is charged."""
    row = call.journal
    row.outcome = Outcome.SKIPPED
    row.detail = "group_stopped"
    row.error = ""
    row.charged_usd = ZERO
    with transaction.atomic(durable=True):
        journal_settle(row, session=call.session, booked=ZERO, tokens=0, after=None, now=call.now)


def _settled(call: Call, result: ToolResult, meter: Meter, *, took: timedelta) -> Refusal:
    now = call.now + took
    if _settled_at_once(call, result, meter, now=now):
        return result
    with transaction.atomic(durable=True):
        return settle(call, result, meter, now=now)


def _settled_at_once(call: Call, result: ToolResult, meter: Meter, *, now: datetime) -> bool:
    row, attempt = call.journal, meter.last
    booked = booked_usd(call, attempt)
    if booked > row.held_usd:
        return False
    settled = settle_call(
        row,
        session=call.session,
        charged=result.cost_usd,
        booked=booked,
        result=result,
        tokens=attempt.tokens if attempt else 0,
        log=_log(call, attempt, booked, now=now) if attempt else None,
        skill_call=skill_audit(call, result, now=now),
        now=now,
    )
    if settled and attempt is not None:
        form_note(row.model, attempt, now=now)
    return settled


def settle(call: Call, result: ToolResult, meter: Meter, *, now: datetime) -> Refusal:
    """Close the call. Return its result, or the exception to raise after this transaction."""
    row = call.journal
    row.end(result)
    audited = skill_audit(call, result, now=now)
    if call.is_free_and_local:
        journal_local(row, session=call.session, after=call.head, now=now, skill_call=audited)
        return result
    row.charged_usd = result.cost_usd
    attempt = meter.last
    booked = booked_usd(call, attempt)
    tokens = attempt.tokens if attempt else 0
    journal_settle(
        row, session=call.session, booked=booked, tokens=tokens, after=call.head, now=now, skill_call=audited
    )
    if attempt is not None:
        InferenceLog(**_log(call, attempt, booked, now=now)).save(force_insert=True)
        form_note(row.model, attempt, now=now)
    if booked <= row.held_usd:
        return result
    # The provider billed more than its bound: book it in full, and suspend the model until an operator accepts it.
    model_suspend(row, actual_usd=booked, now=now)
    brake_session(call.session, TerminalReason.BUDGET_EXCEEDED, now=now, detail="dimension:cost")
    return BudgetExceeded("cost", f"Model {row.model} billed {booked} USD; its bound was {row.held_usd} USD.")


def _log(call: Call, attempt: Attempt, booked: Decimal, *, now: datetime) -> dict[str, Any]:
    assert call.outgoing is not None  # noqa: S101 an attempt is always one at a model request
    return inference_log(call.journal, attempt, purpose=call.outgoing.request.purpose, booked=booked, now=now)
