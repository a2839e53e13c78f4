"""What came of a call goes into the books, the journal and the record. Imported by the guard alone.

Each attempt at a model is booked before the next one goes out; the last one with the end of the call.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import InterfaceError, OperationalError, connection, transaction

from agents.enums import Outcome, TerminalReason
from agents.exceptions import BudgetExceeded, LeaseLost, RetryLater
from agents.guard.calls import Call, note_skill
from agents.guard.metering import Attempt, Meter, Question
from agents.guard.refusals import Refusal, brake_session
from agents.ledger.journal import RETRY_LATER, inference_record, journal_local, journal_retry, journal_settle
from agents.ledger.prices import model_suspend
from agents.models import ToolCall
from agents.types import ZERO, Ledger, Price, ToolResult
from audit.recorder import Head

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Payment:
    """What R4 approved: the question as it may be sent, its price, and the books it was reserved in."""

    question: Question | None = None
    price: Price | None = None
    held: Decimal = ZERO
    ledgers: tuple[Ledger, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A call that is written down and paid for, and may now happen."""

    call: Call
    row: ToolCall
    payment: Payment
    head: Head

    def booked(self, attempt: Attempt | None) -> Decimal:
        """What an attempt goes into the real ledger with."""
        price = self.payment.price
        return ZERO if attempt is None or price is None else attempt.booked(price, worst=self.row.held_usd)


def journal_row(call: Call, *, asked_digest: str, attempt: int) -> ToolCall:
    """The row of a call that is about to be written down."""
    return ToolCall(
        session=call.session,
        key=call.key,
        attempt=attempt,
        intent=call.intent,
        name=call.capability.name,
        version=call.capability.version,
        phase=call.phase,
        arguments=call.arguments,
        digest=call.digest,
        asked_digest=asked_digest,
        fencing=call.session.fencing,
        repeatable=call.capability.repeatable,
        started_at=call.now,
    )


def book_attempt(opened: Opened, attempt: Attempt) -> bool:
    """A failed attempt goes into the books, or, when there is no room for another, there is no other."""
    booked, row = opened.booked(attempt), opened.row
    with transaction.atomic(durable=True):
        room = journal_retry(row, session=opened.call.session, booked=booked, tokens=attempt.tokens)
        if room:
            _log(opened, attempt, booked, now=opened.call.now)
    if room:
        row.actual_usd, row.tokens = row.actual_usd + booked, row.tokens + attempt.tokens
    return room


def settle_durably(opened: Opened, result: ToolResult, meter: Meter, *, took: timedelta) -> Refusal:
    """Settles a remote call in a block of its own; a connection that broke meanwhile is replaced once.

    If that fails too, the session is left to its lease: whoever takes it over closes the call and charges it in full.
    """
    before = opened.row.actual_usd, opened.row.tokens
    try:
        return _settled(opened, result, meter, took=took)
    except (OperationalError, InterfaceError) as error:
        logger.warning(
            "call %s could not be settled (%s); trying once more", opened.row.public_id, type(error).__name__
        )
        connection.close()
    opened.row.actual_usd, opened.row.tokens = before
    try:
        return _settled(opened, result, meter, took=took)
    except (OperationalError, InterfaceError) as error:
        raise LeaseLost(f"Call {opened.row.public_id} could not be settled; it is left to recovery.") from error


def withdraw(opened: Opened) -> None:
    """Closes a call that was authorised and does not happen after all: nothing went out, nothing is charged."""
    row = opened.row
    row.outcome, row.detail, row.error, row.charged_usd = Outcome.SKIPPED, "group_stopped", "", ZERO
    with transaction.atomic(durable=True):
        journal_settle(row, session=opened.call.session, booked=ZERO, tokens=0, after=None, now=opened.call.now)


def _settled(opened: Opened, result: ToolResult, meter: Meter, *, took: timedelta) -> Refusal:
    with transaction.atomic(durable=True):
        return settle(opened, result, meter, now=opened.call.now + took)


def settle(opened: Opened, result: ToolResult, meter: Meter, *, now: datetime) -> Refusal:
    """Closes the call. Gives back its result, or what is to be raised once this block has ended."""
    call, row = opened.call, opened.row
    row.outcome, row.detail, row.error, row.result = result.outcome, result.detail, result.error, result.data
    note_skill(call, result, now=now)
    if call.is_free_and_local:
        journal_local(row, session=call.session, after=opened.head, now=now)
        return result
    row.charged_usd = result.cost_usd
    attempt, booked = meter.last, opened.booked(meter.last)
    tokens = attempt.tokens if attempt else 0
    journal_settle(row, session=call.session, booked=booked, tokens=tokens, after=opened.head, now=now)
    if attempt is not None:
        _log(opened, attempt, booked, now=now)
    if booked <= row.held_usd:
        return RetryLater(now + timedelta(seconds=meter.wait_seconds)) if result.detail == RETRY_LATER else result
    # The provider billed more than its bound: booked in full, and nobody calls that model again until it is accepted.
    model_suspend(row, actual_usd=booked, now=now)
    brake_session(call.session, TerminalReason.BUDGET_EXCEEDED, now=now, detail="dimension:cost")
    return BudgetExceeded("cost", f"Model {row.model} billed {booked} USD; its bound was {row.held_usd} USD.")


def _log(opened: Opened, attempt: Attempt, booked: Decimal, *, now: datetime) -> None:
    question = opened.payment.question
    assert question is not None  # noqa: S101 there is no attempt without a question
    inference_record(opened.row, attempt, purpose=question.request.purpose, booked=booked, now=now)
