"""What a look at a sensor's source came to, on its way from the slice that looked to the rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from agents.sensors.rows import Held
from agents.text.clean import storable
from audit.redaction import redact

SHOWN_CHARS: Final = 500
QUOTED_CHARS: Final = 1_500


@dataclass(frozen=True)
class Fired:
    """A signal that fired. `happening` names what it fired on: the same happening alerts and spawns once.

    `items` are the data that were judged, oldest first.
    """

    name: str
    score: str
    happening: str
    items: tuple[Any, ...] = ()
    notify: bool = True
    spawn: str = ""


@dataclass(frozen=True)
class Reading:
    """What came of a look: data, oldest first. `same`: the source says that nothing is new, and is as it was.

    `late`: no look, but what signals say of data that were handed in before.
    """

    held: Held
    at: datetime
    items: tuple[Any, ...] = ()
    same: bool = False
    late: bool = False
    cursor: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, Any] = field(default_factory=dict)
    fired: tuple[Fired, ...] = ()
    problem: str = ""
    next_due_at: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """A look that came to nothing, for the so-many-th time in a row; `tell` once, when the circuit opens."""

    held: Held
    at: datetime
    problem: str
    failures: int
    wait_seconds: float
    tell: bool = False
    cursor: Mapping[str, Any] | None = None
    next_due_at: datetime | None = None


def shown(item: Any) -> str:
    """The beginning of a value, as text that can be kept."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
    return plain(text[: 2 * SHOWN_CHARS])[:SHOWN_CHARS]


def quoted(items: Sequence[Any]) -> str:
    """Data that were judged together, oldest first; as many of the newest as fit, and how many there are."""
    if len(items) == 1:
        return shown(items[0])
    quotes: list[str] = []
    left = QUOTED_CHARS
    for item in reversed(items):
        quote = shown(item)
        if quotes and len(quote) > left:
            break
        quotes.insert(0, quote)
        left -= len(quote)
    newest = f", the newest {len(quotes)}" if len(quotes) < len(items) else ""
    return f"{len(items)} judged together{newest}: {' | '.join(quotes)}"


def plain(text: str) -> str:
    """Without secrets, and without what no database holds."""
    return redact(str(storable(text)))
