"""How a slice of work on a session can end. Engines return one of these; the runner records it."""

from dataclasses import dataclass
from datetime import datetime

from agents.enums import TerminalReason, WaitingOn


@dataclass(frozen=True)
class Finished:
    reason: TerminalReason = TerminalReason.COMPLETED
    error: str = ""


@dataclass(frozen=True)
class SliceOver:
    """There is more to do; the session goes back into the queue and resumes from its journal."""


@dataclass(frozen=True)
class Asleep:
    wake_at: datetime


@dataclass(frozen=True)
class Waiting:
    on: WaitingOn


End = Finished | SliceOver | Asleep | Waiting
