"""When a schedule is due: five cron fields in an IANA time zone (cronsim); and active hours. Pure.

Fields that name certain hours mean local time: a time that a clock change skips or repeats is met once. With every hour
named, a schedule runs every real hour. Must not decide what becomes of a missed time.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from typing import Final, Self
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from agents.exceptions import Invalid

FIELDS: Final = 5
MAX_CHARS: Final = 120
HOURS: Final = 24
MOST_COUNTED: Final = 1_000
_ANY_TIME: Final = datetime(2024, 1, 1, tzinfo=UTC)
_FIRST_LOOK_BACK: Final = timedelta(hours=1)


def validate(expression: str, zone: str) -> None:
    """Refuse what can never be due: a wrong form, an impossible date, an unknown zone."""
    next_after(expression, zone, _ANY_TIME)


def next_after(expression: str, zone: str, after: datetime) -> datetime:
    """Return the first time, in UTC, at which the schedule is due after `after`."""
    return next(_times(expression, zone, after))


def next_times(expression: str, zone: str, after: datetime, number: int) -> list[datetime]:
    """Return the next times at which the schedule is due, in the zone."""
    return [due.astimezone(_zone(zone)) for due in islice(_times(expression, zone, after), number)]


def in_words(expression: str) -> str:
    """Say in words when the schedule is due, such as: At 06:00 on Monday."""
    _plain(expression)
    words: str = CronSim(expression, _ANY_TIME).explain()
    return words


def missed_since(
    expression: str, zone: str, *, after: datetime, now: datetime, most: int = MOST_COUNTED
) -> tuple[datetime | None, int]:
    """Return the last time due after `after` up to `now`, and how many there were, counted up to `most`."""
    missed = takewhile(lambda due: due <= now, _times(expression, zone, after))
    number = sum(1 for _ in islice(missed, most))
    return (_last_before(expression, zone, after=after, now=now), number) if number else (None, 0)


def _last_before(expression: str, zone: str, *, after: datetime, now: datetime) -> datetime | None:
    """Look back twice as far each time, so that little is counted however long ago `after` was."""
    look_back = _FIRST_LOOK_BACK
    while True:
        start = max(after, now - look_back)
        last = deque(takewhile(lambda due: due <= now, _times(expression, zone, start)), maxlen=1)
        if last or start == after:
            return last.pop() if last else None
        look_back *= 2


def _times(expression: str, zone: str, after: datetime) -> Iterator[datetime]:
    """Yield all times after `after`. Of two equal local times in a repeated hour the first counts."""
    simulated = CronSim(_plain(expression), after.astimezone(_zone(zone)))
    for local in simulated:
        due = local.astimezone(UTC)
        if due > after:
            yield due
    raise Invalid(f"The schedule {expression!r} is due on no day of the next 50 years; 30 February is an example.")


@lru_cache(maxsize=1_024)
def _plain(expression: str) -> str:
    """Write out minutes and hours, unless every hour is named.

    cronsim takes a field that begins with a star as real time, whatever follows; here only all 24 hours are.
    """
    if len(expression) > MAX_CHARS:
        raise Invalid(f"A schedule has at most {MAX_CHARS} characters, not {len(expression)}.")
    fields = expression.split()
    if len(fields) != FIELDS:
        raise Invalid(
            f"The schedule {expression!r} has {len(fields)} fields; it needs five: minute, hour, day of the month, "
            "month, day of the week, such as 0 6 * * 1."
        )
    try:
        parsed = CronSim(expression, _ANY_TIME)
    except CronSimError as error:
        raise Invalid(f"The schedule {expression!r} cannot be read: {str(error).lower()}.") from None
    if len(parsed.hours) == HOURS:
        return " ".join(["*" if number == 1 else field for number, field in enumerate(fields)])
    return " ".join([_listed(parsed.minutes), _listed(parsed.hours), *fields[2:]])


def _listed(numbers: set[int]) -> str:
    return ",".join(str(number) for number in sorted(numbers))


@lru_cache(maxsize=1_024)
def _zone(name: str) -> tzinfo:
    if name not in _zones():
        raise Invalid(f"{name!r} is no time zone; use an IANA name such as Europe/Paris, or UTC.")
    return UTC if name == "UTC" else ZoneInfo(name)


def require_zone(name: str) -> None:
    """Refuse a name that is no time zone."""
    _zone(name)


def zone_names() -> list[str]:
    return sorted(_zones())


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() | {"UTC"})


def hour_of(now: datetime) -> datetime:
    """Return the clock hour, in UTC."""
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


# --- Active hours in a zone ---
#
# By the wall clock of the zone: from the start inclusive to the end exclusive, over midnight if the end is
# earlier. If clocks are set forward over the start, the hours begin when they have been set; if they are set back
# over it, the hours begin twice.


_TWO_DAYS: Final = 2 * 24 * 60  # in minutes


@dataclass(frozen=True)
class Hours:
    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def of(cls, start: str, end: str, zone: str) -> Self:
        """Build from times such as 08:00 and the name of a zone."""
        return cls(time.fromisoformat(start), time.fromisoformat(end), ZoneInfo(zone))

    def hold(self, now: datetime) -> bool:
        """Return whether a moment is within the hours. Equal start and end mean the whole day."""
        here = now.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= here < self.end
        return here >= self.start or here < self.end

    def next_start(self, now: datetime) -> datetime:
        """Return the first minute after `now` that is within the hours, in UTC; in two days if they hold no minute."""
        moment = now.astimezone(UTC).replace(second=0, microsecond=0)
        minutes = [moment + timedelta(minutes=number) for number in range(1, _TWO_DAYS + 1)]
        return next(filter(self.hold, minutes), minutes[-1])


# --- Waits between tries that double up to a limit. Pure: seconds in, seconds out; the caller waits ---


_MOST_DOUBLINGS: Final = 64  # far beyond any limit, and a float holds it


# A fallback is asked in the same slice if the model failed within this time; else in the next.
FALLBACK_SECONDS: Final = 30.0


def backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: `first`, then twice as long each time."""
    doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
    return min(first * 2.0**doublings, max(longest, first))
