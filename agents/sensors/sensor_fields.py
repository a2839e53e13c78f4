"""A reading, into the fields of the hot state that the sensor's definition names."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agents.definitions.schema import Update
from agents.definitions.values import NothingThere, part_of
from agents.enums import HotSource, SensorKind
from agents.loop.state import VALUE_BYTES, hot_refusal, hot_write
from agents.models import AgentSession, HotField
from agents.sensors.rows import Held
from agents.sensors.sensor_results import Reading
from agents.text.clean import storable

MOST_APPENDED: Final = 200  # of one batch of a stream, to one array
ESCAPED: Final = 3  # a character takes at most so many times its bytes when JSON is written in ASCII


def fields_write(reading: Reading, loop: AgentSession) -> Iterator[tuple[str, str]]:
    """Each field that is due, when it has been written, and why it could not be, if it could not. The others are."""
    for update in reading.held.spec.updates:
        if reading.same and update.gated_by is None:  # what a gate let through may not be what the source shows
            row = HotField.objects.filter(session=loop, name=update.field).first()
            if row is not None and row.value is not None and _set(reading, loop, update.field, row.value):
                yield update.field, ""  # as it was, and fresh again
        elif items := _items(reading, update.gated_by):
            problem = _write(reading, items, loop, update)
            if problem is not None:
                yield update.field, problem


def _items(reading: Reading, gate: str | None) -> tuple[Any, ...]:
    """What the field is to have: a gated one what was judged, and nothing while its gate is closed."""
    if gate is None:
        return () if reading.late else reading.items
    fired = next((one for one in reading.fired if one.name == gate), None)
    if fired is None:
        return ()
    return reading.items if reading.held.spec.type == SensorKind.WATCH else fired.items


def _write(reading: Reading, items: Sequence[Any], loop: AgentSession, update: Update) -> str | None:
    """Why the field was not written; empty when it was, and None when there is nobody to write it for any more.

    A value takes the place of the one before; what is no list is added to an array, item by item.
    """
    held, name = reading.held, update.field
    try:
        last = _newest(held, name, _bounded(part_of(items[-1], update.path)))
    except (NothingThere, ValueError) as error:
        return f"{name}: {error}"
    adds = _adds(held, name, last)
    if why := hot_refusal(held.definition, name, [last] if adds else last):
        return why
    return "" if _set(reading, loop, name, _added(items, loop, update) if adds else last) else None


def _bounded(value: Any) -> Any:
    """Fit to be looked at: masking and storing take their time, and nobody gets what is far too large anyway."""
    if isinstance(value, str):
        return storable(value[:VALUE_BYTES])
    if (size := len(json.dumps(value, default=str))) > ESCAPED * VALUE_BYTES:
        raise ValueError(f"the value is about {size} bytes long; at most {VALUE_BYTES} are kept")
    return storable(value)


def _set(reading: Reading, loop: AgentSession, name: str, value: Any) -> bool:
    return hot_write(
        loop,
        definition=reading.held.definition,
        name=name,
        value=value,
        source=HotSource.SENSOR,
        source_name=reading.held.spec.name,
        now=reading.at,
    )


def _adds(held: Held, name: str, value: Any) -> bool:
    spec = held.definition.hot_state.fields.get(name)
    return spec is not None and spec.type == "array" and not isinstance(value, list)


def _added(items: Sequence[Any], loop: AgentSession, update: Update) -> list[Any]:
    """As many of the newest as a field holds: an array that nobody bounds must not come to a stop when it is full."""
    row = HotField.objects.select_for_update().filter(session=loop, name=update.field).first()
    values = [*(row.value or [] if row else []), *_parts(items, update.path)]
    left, place = VALUE_BYTES - 2, len(values)
    while place > 0 and (left := left - len(json.dumps(values[place - 1], default=str).encode()) - 1) >= 0:
        place -= 1
    return values[place:]


def _parts(items: Sequence[Any], path: str | None) -> Iterator[Any]:
    for item in items[-MOST_APPENDED:]:
        try:
            yield _bounded(part_of(item, path))
        except (NothingThere, ValueError):
            continue


def _newest(held: Held, name: str, value: Any) -> Any:
    """The changes of a folder have the newest first; an array of the hot state keeps its end."""
    spec = held.definition.hot_state.fields.get(name)
    if held.spec.type == SensorKind.WATCH and isinstance(value, list) and spec is not None and spec.max_items:
        return value[: spec.max_items]
    return value
