"""Waits between tries that double up to a limit. Pure: seconds in, seconds out; the caller waits."""

from typing import Final

_MOST_DOUBLINGS: Final = 64  # far beyond any limit, and a float holds it


def backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: `first`, then twice as long each time."""
    doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
    return min(first * 2.0**doublings, max(longest, first))
