"""The three brakes as pure decisions: R5 temporal, R6 contextual, R4 economic. No rows, no I/O, no clock.

The guard asks them in that order and acts on the first that refuses. It reads what they decide on under the session's
lock, so a verdict holds until the transaction commits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from agents.enums import HaltState, Phase, TerminalReason, ToolIntent
from agents.policy import costs
from agents.policy.transitions import TERMINAL
from agents.types import Ledger, ModelRequest, Price

# --- Grants: what each phase may do ---


_I = ToolIntent

PHASE_GRANTS: Final[Mapping[str, frozenset[ToolIntent]]] = MappingProxyType(
    {
        Phase.INTAKE: frozenset({_I.RETRIEVE_CHUNKS}),
        Phase.ANALYSIS: frozenset({_I.RETRIEVE_CHUNKS, _I.RUN_SKILL, _I.RUN_PLAYBOOK, _I.PROPOSE_PRECEDENT}),
        Phase.DRAFTING: frozenset(
            {_I.RUN_SKILL, _I.EMIT_FINDING, _I.PROPOSE_MEMORY, _I.PROPOSE_PRECEDENT, _I.EMIT_ARTIFACT}
        ),
        Phase.ETHICS_REVIEW: frozenset({_I.EMIT_FINDING}),
        Phase.DELIVERY: frozenset({_I.NOTIFY}),
        Phase.TURN: frozenset(_I) - {_I.EMIT_ARTIFACT},
    }
)


# --- R5: temporal ---


@dataclass(frozen=True)
class Boundary:
    """The facts that show a halt, read afresh from the database.

    A pause is no brake: it refuses nothing, and is looked at when R5 and R6 have nothing to say.
    """

    status: str
    halt_state: str
    terminal_reason: str | None
    all_work_halt: int | None
    phase: str
    is_paused: bool = False


@dataclass(frozen=True)
class AlreadyStopped:
    """The session was stopped before; it is refused again, and its end is not recorded twice."""

    reason: str


@dataclass(frozen=True)
class HaltNow:
    """A requested halt takes effect at this boundary. `reason` is what the run ends with."""

    halt_id: int | None
    reason: str = TerminalReason.EXTERNAL_HALT


def temporal(boundary: Boundary) -> AlreadyStopped | HaltNow | None:
    if boundary.status in TERMINAL or boundary.halt_state == HaltState.HALTED:
        return AlreadyStopped(boundary.terminal_reason or TerminalReason.EXTERNAL_HALT)
    if boundary.all_work_halt is not None or boundary.halt_state == HaltState.HALT_REQUESTED:
        return HaltNow(boundary.all_work_halt, boundary.terminal_reason or TerminalReason.EXTERNAL_HALT)
    return None


# --- R6: contextual ---


@dataclass(frozen=True)
class NotGranted:
    """The phase does not grant the intent."""

    intent: ToolIntent
    phase: str


def contextual(intent: ToolIntent, phase: str) -> NotGranted | None:
    """An unknown phase grants nothing."""
    return None if intent in PHASE_GRANTS.get(phase, frozenset()) else NotGranted(intent, phase)


# --- R4: economic ---


@dataclass(frozen=True)
class Quote:
    """A priced call as R4 judges it: the estimate that is charged, and what its worst case depends on."""

    estimate: Decimal
    request: ModelRequest
    price: Price
    input_tokens: int

    def worst(self, max_tokens: int) -> Decimal:
        return costs.worst_case(self.price, self.input_tokens, max_tokens)


@dataclass(frozen=True)
class Affordable:
    """The call may be sent; `held` is its worst case at `max_tokens`."""

    estimate: Decimal
    held: Decimal
    max_tokens: int


@dataclass(frozen=True)
class CapPassed:
    """The session's own cap is passed: this latches."""

    projected: Decimal
    cap: Decimal


@dataclass(frozen=True)
class SpentUp:
    """Nothing is left of the session's tokens, or of its cap after what was billed."""

    dimension: str
    needed: Decimal
    left: Decimal


@dataclass(frozen=True)
class SharedSpentUp:
    """A shared budget has no room until its window resets."""

    ledger: Ledger
    needed: Decimal


@dataclass(frozen=True)
class Busy:
    """The money is there, but held by calls in flight."""

    ledger: Ledger


Verdict = Affordable | CapPassed | SpentUp | SharedSpentUp | Busy


def is_for_price(verdict: Verdict) -> bool:
    """Return whether a cheaper call might pass where this one did not."""
    return isinstance(verdict, SharedSpentUp) or is_for_own_cap(verdict)


def is_for_own_cap(verdict: Verdict) -> bool:
    """Return whether the session's own money is too little; more of it, and the call might pass."""
    match verdict:
        case SpentUp(dimension):
            return dimension == "cost"
        case _:
            return isinstance(verdict, CapPassed)


def economic(
    quote: Quote,
    *,
    session: Ledger,
    shared: tuple[Ledger, ...],
    token_budget: int = 0,
    total_tokens: int = 0,
    sharing: int = 1,
) -> Verdict:
    """Judge the approved ledger first (the latch), then the reported one (what the worst case could bill).

    `sharing` is the number of calls, this one included, that are still to be paid from what is left.
    """
    if token_budget and total_tokens >= token_budget:
        return SpentUp("tokens", Decimal(total_tokens), Decimal(token_budget))
    if session.cap is not None and session.approved + quote.estimate > session.cap:
        return CapPassed(session.approved + quote.estimate, session.cap)
    for ledger in shared:
        if ledger.cap is not None and ledger.approved + quote.estimate > ledger.cap:
            return SharedSpentUp(ledger, quote.estimate)
    return _exposure(quote, session, shared, sharing)


def _exposure(quote: Quote, session: Ledger, shared: tuple[Ledger, ...], sharing: int) -> Verdict:
    wanted = quote.request.max_tokens
    needed = quote.worst(min(wanted, quote.request.min_tokens))
    capped = [(ledger, ledger.cap) for ledger in (session, *shared) if ledger.cap is not None]
    for ledger, cap in capped:
        if ledger.actual + needed > cap:
            if ledger is session:
                return SpentUp("cost", needed, max(cap - ledger.actual, Decimal(0)))
            return SharedSpentUp(ledger, needed)
    for ledger, cap in capped:
        if ledger.exposed + needed > cap:
            return Busy(ledger)
    tokens = wanted
    for ledger, cap in capped:
        tokens = costs.affordable_tokens(
            (cap - ledger.exposed) / sharing, price=quote.price, input_tokens=quote.input_tokens, wanted=tokens
        )
    tokens = max(tokens, min(wanted, quote.request.min_tokens))  # an even share may be too little to be useful
    return Affordable(quote.estimate, quote.worst(tokens), tokens)
