"""Hours of the day in a zone: whether they hold, and when they begin next. Pure.

The wall clock of the zone decides: from the start inclusive to the end exclusive, over midnight if the end is earlier.
Where clocks are set forward over the start, the hours begin when the clocks have been set; where they are set back over
it, they begin twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo

_DAYS: Final = 4  # a zone may leave out a whole day
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Hours:
    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def of(cls, start: str, end: str, zone: str) -> Self:
        """From times such as 08:00 and the name of a zone."""
        return cls(time.fromisoformat(start), time.fromisoformat(end), ZoneInfo(zone))

    def hold(self, now: datetime) -> bool:
        """True within the hours. A start that is the end as well means the whole day."""
        here = now.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= here < self.end
        return here >= self.start or here < self.end

    def next_start(self, now: datetime) -> datetime:
        """The first moment after now at which they begin, in UTC."""
        today = now.astimezone(self.zone).date()
        starts = sorted(at for days in range(_DAYS) for at in self._starts(today + timedelta(days=days)))
        return next(at for at in starts if at > now and self.hold(at))

    def _starts(self, day: date) -> Iterator[datetime]:
        """When a day's start comes: once; twice, where clocks are set back; or when they have been set forward."""
        first, second = (
            datetime.combine(day, self.start, self.zone).replace(fold=fold).astimezone(UTC) for fold in (0, 1)
        )
        yield first if first <= second else self._set_forward(second, first)
        yield max(first, second)

    def _set_forward(self, before: datetime, after: datetime) -> datetime:
        """The moment between the two at which the clocks of the zone are set, to the second."""
        offset = before.astimezone(self.zone).utcoffset()
        while after - before > _SECOND:
            middle = before + (after - before) // 2
            if middle.astimezone(self.zone).utcoffset() == offset:
                before = middle
            else:
                after = middle
        return after.replace(microsecond=0)
