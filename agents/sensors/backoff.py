"""When a sensor looks again. Pure: seconds in, seconds out.

A source that answers is looked at every `interval`, by a fixed pace that does not drift. One that fails is left alone
for the interval, then twice as long each time, at most five minutes; the first answer brings the pace back. After ten
failures in a row somebody is told, once, and the sensor goes on trying.
"""

from typing import Final

LONGEST: Final = 300.0
CIRCUIT: Final = 10
MOST_DOUBLINGS: Final = 64  # far beyond the longest wait; a float holds it


def wait_after(failures: int, interval: float) -> float:
    """Seconds to wait after so many failures in a row. A source is never asked more often than while it was well."""
    doublings = min(max(failures - 1, 0), MOST_DOUBLINGS)
    return min(interval * 2.0**doublings, max(LONGEST, interval))


def next_due(due: float, now: float, interval: float) -> float:
    """When to look after a look that was due at `due`: one interval later, or at once if that has passed already."""
    return max(due + interval, now)


def is_to_be_told(failures: int) -> bool:
    """True for the one failure that opens the circuit: whoever minds the agent is told of that one, and of no other."""
    return failures == CIRCUIT
