"""Errors that the rest of lqops matches on. A brake is a decision of the guard, not a fault.

`code` is what the API shows; brakes and conflicts answer 409.
"""

from datetime import datetime
from decimal import Decimal

from agents.enums import Outcome


class LqopsError(Exception):
    code = "error"


class AutonomousBrake(LqopsError):
    """The guard refused a call and the run ends, or, for a window that resets, may sleep."""

    http_status = 409


class SessionHalted(AutonomousBrake):
    """R5: somebody, or a watchdog, has stopped the session, or all work."""

    code = "session_halted"

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or f"The session is halted: {reason}.")
        self.reason = reason


class SessionPaused(LqopsError):
    """Somebody paused the session. It is put aside, and goes on where it was when it is resumed."""

    code = "session_paused"

    def __init__(self) -> None:
        super().__init__("The session is paused.")


class RunsAwaited(LqopsError):
    """A run needs what the runs that it started hold: it is put aside until one of them is over."""

    code = "runs_awaited"

    def __init__(self, runs: frozenset[int]) -> None:
        super().__init__("The run waits for runs that it started.")
        self.runs = runs


class ToolNotGranted(AutonomousBrake):
    """R6: the phase does not grant the intent."""

    code = "tool_not_granted"

    def __init__(self, intent: str, phase: str) -> None:
        super().__init__(f"Phase {phase} does not grant {intent}.")


class CostCapReached(AutonomousBrake):
    """R4: the session's own cap. The latch is set and stays."""

    code = "cost_cap_reached"

    def __init__(self, projected: Decimal, cap: Decimal, loans: str = "") -> None:
        super().__init__(f"The call would bring the session to {projected} USD; its cap is {cap} USD. {loans}".strip())


class BudgetExceeded(AutonomousBrake):
    """R4: what was really spent leaves no room for another call, or the token budget is used up."""

    code = "budget_exceeded"

    def __init__(self, dimension: str, message: str) -> None:
        super().__init__(message)
        self.dimension = dimension


class BudgetRefused(AutonomousBrake):
    """R4: a budget shared with other sessions is used up until its window resets. Nothing is latched."""

    code = "budget_refused"

    def __init__(self, budget: str, cap: Decimal, resets_at: datetime) -> None:
        super().__init__(f"Budget {budget} of {cap} USD is used up; it resets at {resets_at:%Y-%m-%d %H:%M} UTC.")
        self.budget = budget
        self.cap = cap
        self.resets_at = resets_at


class UnpricedModel(AutonomousBrake):
    """R4: no price is declared for the model, so its cost cannot be bounded."""

    code = "unpriced_model"

    def __init__(self, model: str) -> None:
        super().__init__(f"No price is declared for model {model!r}: declare one (0 is allowed) before it is called.")


class ModelSuspended(AutonomousBrake):
    """R4: the model once cost more than its bound; an operator must accept it again."""

    code = "model_suspended"

    def __init__(self, model: str) -> None:
        super().__init__(f"Model {model!r} is suspended: a reply cost more than its bound. Accept it to use it again.")
        self.model = model


class TooDear(LqopsError):
    """R4 refused a model for its price, and a fallback may be cheap enough. It never leaves the guard."""

    code = "too_dear"

    def __init__(self, model: str) -> None:
        super().__init__(f"Model {model!r} is too dear for what is left; its fallbacks are asked.")
        self.model = model


class LeaseLost(LqopsError):
    """Another worker holds the session now; the write of this one was refused."""

    code = "lease_lost"
    http_status = 409


class InvalidTransition(LqopsError):
    """The row is not in the state that the move starts from."""

    code = "invalid_transition"
    http_status = 409


class Superseded(InvalidTransition):
    """Somebody else has changed it meanwhile: what was made from an older version does not take its place unseen."""

    code = "superseded"


class PruneRefused(LqopsError):
    """Nothing more is archived or dropped, for the reason that the text names. What was done before stays done."""

    code = "prune_refused"


class KeysDiffer(LqopsError):
    """Another host works with other keys."""

    code = "keys_differ"


class VersionsDiffer(LqopsError):
    """Another version of lqops works with the database, or has migrated it, beside which this one cannot work."""

    code = "versions_differ"


class OpenTransaction(LqopsError):
    """A remote call, or the runner, was started inside a transaction; locks would be held across I/O."""

    code = "open_transaction"


class JournalMismatch(LqopsError):
    """A resumed run asks for another call than the one that the journal holds under the same key."""

    code = "journal_mismatch"


class OutcomeUnknown(LqopsError):
    """A call was lost in flight and may have taken effect; a person must say what happened."""

    code = "outcome_unknown"


class RetryLater(LqopsError):
    """The model's server does not answer, or wants a pause; the session waits and asks again."""

    code = "retry_later"

    def __init__(self, model: str, retry_at: datetime) -> None:
        super().__init__(f"Model {model} does not answer; it is tried again at {retry_at:%Y-%m-%d %H:%M:%S} UTC.")
        self.model = model


class ModelBusy(RetryLater):
    """The model's server is at work for other runs, which is no outage; the session asks again soon."""


class TicketRefused(LqopsError):
    """The approval does not fit this call: used, expired, denied, or given for other arguments."""

    code = "ticket_refused"
    http_status = 409


class NotAllowed(LqopsError):
    """The person may not do this."""

    code = "not_allowed"
    http_status = 403


class Unarmed(LqopsError):
    """The self-test found a brake that does not refuse. No work is taken."""

    code = "unarmed"


class NotFound(LqopsError):
    """There is no such thing, or it is somebody else's; the two are not told apart."""

    code = "not_found"
    http_status = 404


class Invalid(LqopsError):
    """The request makes no sense as it stands; the message says what to change."""

    code = "invalid"
    http_status = 422


class SkillChanged(LqopsError):
    """The files of a skill are not those that were accepted; it does not run until somebody accepts them."""

    code = "skill_changed"
    http_status = 409


class ToolFailed(LqopsError):
    """A failure that a tool names by an outcome of its own. The run goes on."""

    outcome = Outcome.ERROR


class NoAnswer(ToolFailed):
    """The model was reached, and answered with a refusal or with nothing."""

    code = "gateway_error"
    outcome = Outcome.GATEWAY_ERROR


class StorageFailed(ToolFailed):
    """The bytes of a document could not be written to disk, so there is no row of it either."""

    code = "storage_error"
    outcome = Outcome.STORAGE_ERROR
    http_status = 503
