"""When a loop that has ended starts again. Pure.

A restart goes on with the rest of the cap, after a pause that doubles. There is a limit: a loop that keeps failing is
left to a person, or to the next day if it is renewed daily.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from agents.enums import Status, TerminalReason
from agents.policy.schedule import backoff
from agents.policy.transitions import REASON_STATUS

FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 3_600.0
FORGOTTEN_AFTER: Final = timedelta(hours=1)  # a loop that lived so long starts to count its restarts anew
# Ends that somebody wanted: the agent itself, an operator, the owner. Nothing starts such a loop again.
WANTED_ENDS: Final = frozenset({TerminalReason.AGENT_SHUTDOWN, TerminalReason.EXTERNAL_HALT, TerminalReason.OPTED_OUT})
_SPENT: Final = frozenset({TerminalReason.COST_CAP_REACHED, TerminalReason.BUDGET_EXCEEDED})  # only a new day helps
REVIVED: Final = frozenset(TerminalReason) - WANTED_ENDS
_RESTARTED: Final = {
    "never": frozenset[TerminalReason](),
    "on-failure": frozenset(reason for reason in TerminalReason if REASON_STATUS[reason] == Status.FAILED),
    "always": REVIVED - _SPENT - {TerminalReason.COMPLETED},
}


@dataclass(frozen=True)
class EndedLoop:
    """A loop that is over: how it ended, how long it lived, and its restarts in a row before."""

    reason: TerminalReason
    started_at: datetime
    ended_at: datetime
    restarts: int = 0
    has_room: bool = True  # something is left of its cap and its tokens

    @property
    def next_restart(self) -> int:
        """The number of the restart that would follow, in a row."""
        return 1 if self.ended_at - self.started_at >= FORGOTTEN_AFTER else self.restarts + 1


def restart_at(ended: EndedLoop, *, restart: str, max_restarts: int) -> datetime | None:
    """Return when the loop is restarted; None: not at all."""
    number = ended.next_restart
    if ended.reason not in _RESTARTED[restart] or number > max_restarts or not ended.has_room:
        return None
    return ended.ended_at + timedelta(seconds=backoff(number, first=FIRST_PAUSE, longest=LONGEST_PAUSE))


def renewal_at(ended: EndedLoop) -> datetime | None:
    """Return when a loop that is renewed daily starts again: at once after its day, else with the next one."""
    if ended.reason in WANTED_ENDS:
        return None
    if ended.reason == TerminalReason.COMPLETED:
        return ended.ended_at
    day = ended.ended_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1)
