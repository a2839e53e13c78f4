"""Hot state: what a loop sees of the world each turn. Typed fields with an age and a source, of one loop run alone.

It is working memory, not a record: a new run begins with none, and that of a run that is over is soon forgotten.
Sensors, refreshes and the agent itself write it, through here; values are masked and bounded on the way in.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, FieldSpec
from agents.enums import HotSource, Mode
from agents.exceptions import Invalid
from agents.models import AgentSession, HotField
from agents.policy.transitions import TERMINAL
from agents.sessions.lifecycle import session_lock
from agents.text.clean import storable
from audit.redaction import redact_data
from audit.rows import digest

logger = logging.getLogger(__name__)


VALUE_BYTES: Final = 65_536
SHORT_CHARS: Final = 120
FORGOTTEN_AT_ONCE: Final = 5_000
BEFORE_CHARS: Final = 20  # shown of what did not change, before what did
CUT: Final = "…[cut]"
ELIDED: Final = "[…]"
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "number": (int, float),
    "string": str,
    "array": list,
    "boolean": bool,
}


@dataclass(frozen=True)
class FieldView:
    """A field as a turn sees it. Without an age it was never loaded; one with a time to live is then stale, too."""

    name: str
    value: Any = None
    age_seconds: int | None = None
    stale: bool = False
    source: str = ""
    source_name: str = ""
    previous: Any = None
    updated_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def loaded(self) -> bool:
        return self.age_seconds is not None

    @property
    def short(self) -> str:
        return _shortened(_json(self.value))

    @property
    def digest(self) -> str:
        return _digest(self.value)


@dataclass(frozen=True)
class Change:
    """A field that is not what it was, in short."""

    name: str
    old: str
    new: str

    @property
    def is_shown(self) -> bool:
        """False when what differs stands where nobody can see it any more."""
        return self.old != self.new


# --- Reading ---


def hot_snapshot(session: AgentSession, definition: AgentDefinition, *, now: datetime) -> tuple[FieldView, ...]:
    """Every declared field, in the order of the definition."""
    rows = {row.name: row for row in HotField.objects.filter(session=session)}
    return tuple(_view(name, spec, rows.get(name), now) for name, spec in definition.hot_state.fields.items())


def _view(name: str, spec: FieldSpec, row: HotField | None, now: datetime) -> FieldView:
    empty = FieldView(name, stale=spec.ttl is not None)
    if row is None:
        return empty
    empty = replace(empty, previous=row.previous, updated_at=row.updated_at, changed_at=row.changed_at)
    if row.value is None:
        return empty
    age = now - row.updated_at
    return replace(
        empty,
        value=row.value,
        age_seconds=max(int(age.total_seconds()), 0),
        stale=spec.ttl is not None and age.total_seconds() > spec.ttl,
        source=row.source,
        source_name=row.source_name,
    )


def hot_summary(views: Sequence[FieldView]) -> dict[str, dict[str, Any]]:
    """What a turn was shown, in short: enough to tell later what has changed since."""
    return {
        view.name: {"value": view.short, "digest": view.digest, "stale": view.stale} for view in views if view.loaded
    }


def diff_since(views: Sequence[FieldView], t: datetime) -> list[Change]:
    """The fields that were written after `t`: what each held before its last change, and what it holds now, in short.

    One that was written with what it held already is listed, too, with the same value twice.
    """
    return [_written(view, t) for view in views if view.updated_at is not None and view.updated_at > t]


def _written(view: FieldView, t: datetime) -> Change:
    became = view.changed_at is not None and view.changed_at > t
    before = view.previous if became else view.value
    return Change(view.name, _told(before), _told(view.value))


def _told(value: Any) -> str:
    return "" if value is None else _shortened(_json(value))


def changes_from(seen: Mapping[str, Mapping[str, Any]], views: Sequence[FieldView]) -> list[Change]:
    """The fields whose values are not those of an earlier summary: what was seen then, against what there is now.

    Values are compared, not times, so a field that came back to what it was has not changed, and one that was written
    while somebody looked is not missed.
    """
    changes = []
    for view in views:
        before = seen.get(view.name)
        was, now = before["digest"] if before else None, view.digest if view.loaded else None
        if was != now:
            changes.append(_change(view, before["value"] if before else "", was))
    return changes


def _change(view: FieldView, short: str, was: str | None) -> Change:
    """In short, from where it differs: what was seen is known whole as long as it is what the field held before."""
    if not view.loaded or short != view.short or _digest(view.previous) != was:
        return Change(view.name, short, view.short if view.loaded else "")
    old, new = _json(view.previous), _json(view.value)
    differ = (place for place, (before, now) in enumerate(zip(old, new, strict=False)) if before != now)
    start = max(next(differ, min(len(old), len(new))) - BEFORE_CHARS, 0)
    return Change(view.name, f"{ELIDED}{_shortened(old[start:])}", f"{ELIDED}{_shortened(new[start:])}")


# --- Writing ---


def hot_refusal(definition: AgentDefinition, name: str, value: Any) -> str:
    """Why a value cannot be written; empty when it can. Nothing (null) empties any field."""
    spec = definition.hot_state.fields.get(name)
    if spec is None:
        known = f"declared are {', '.join(fields)}" if (fields := definition.hot_state.fields) else "none is declared"
        return f"There is no field {name[:64]!r} of the hot state: {known}."
    if value is None:
        return ""
    if not isinstance(value, _TYPES[spec.type]) or (isinstance(value, bool) and spec.type != "boolean"):
        return f"The field {name} is of type {spec.type}; a value of type {type(value).__name__} does not fit."
    size = len(_json(_cut(spec, value)).encode())
    if size > VALUE_BYTES:
        return f"The value of {name} is {size} bytes long; at most {VALUE_BYTES} are kept."
    return ""


@transaction.atomic
def hot_write(
    session: AgentSession,
    *,
    definition: AgentDefinition,
    name: str,
    value: Any,
    source: HotSource,
    source_name: str = "",
    now: datetime,
) -> bool:
    """Sets a field. False, with a warning and no effect, when it is not declared or the value does not fit it."""
    given = redact_data(storable(value))
    if not _is_taken(session, definition, name, given):
        return False
    row = _locked(session, name, source, now)
    _store(row, _cut(definition.hot_state.fields[name], given), source, source_name, now)
    return True


def hot_forget() -> int:
    """Removes the fields of runs that are over. One that is being written is not waited for: it goes next time."""
    over = HotField.objects.filter(session__status__in=sorted(TERMINAL))
    with transaction.atomic():
        free = over.select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE]
        return HotField.objects.filter(pk__in=list(free)).delete()[0]


def _is_taken(session: AgentSession, definition: AgentDefinition, name: str, value: Any) -> bool:
    if why := hot_refusal(definition, name, value):
        logger.warning("hot state of session %s: %s", session.public_id, why)
        return False
    return AgentSession.objects.filter(pk=session.pk).exclude(status__in=sorted(TERMINAL)).exists()


def _locked(session: AgentSession, name: str, source: HotSource, now: datetime) -> HotField:
    empty = HotField(session=session, name=name, source=source, updated_at=now, changed_at=now)
    HotField.objects.bulk_create([empty], ignore_conflicts=True)
    return HotField.objects.select_for_update().get(session=session, name=name)


def _store(row: HotField, value: Any, source: HotSource, source_name: str, now: datetime) -> None:
    if row.value != value:
        row.previous, row.value, row.changed_at = row.value, value, now
    row.source, row.source_name, row.updated_at = source, source_name[:64], now
    row.save(update_fields=["value", "previous", "changed_at", "source", "source_name", "updated_at"])


def _cut(spec: FieldSpec, value: Any) -> Any:
    """Arrays keep their newest items, and texts their beginning."""
    if isinstance(value, list) and spec.max_items is not None:
        return value[-spec.max_items :]
    if isinstance(value, str) and len(_json(value).encode()) > VALUE_BYTES:
        return f"{value.encode()[: VALUE_BYTES // 2].decode(errors='ignore')}{CUT}"
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= SHORT_CHARS else f"{text[: SHORT_CHARS - len(CUT)]}{CUT}"


def _digest(value: Any) -> str:
    return digest(value)[:16]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


# --- An agent's own state: the fields that were declared for it, and what the agent last wrote into them ---
#
# In a loop these are the fields of its hot state; elsewhere those that the session names.


NAME_CHARS: Final = 64
STATE_VALUE_BYTES: Final = 4_096


@transaction.atomic
def session_set_state(session_pk: int, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    """Writes one declared field, and gives back the state. Outside of loops `params["state_fields"]` declares."""
    row = session_lock(session_pk)
    if row.mode == Mode.LOOP:
        return _set_hot(row, name=name, value=value, now=now)
    listed = row.params.get("state_fields")
    declared = [field for field in listed if isinstance(field, str)] if isinstance(listed, list) else []
    if name not in declared:
        known = f"declared are {', '.join(declared)}" if declared else "none is declared for this run"
        raise Invalid(f"There is no field {name[:NAME_CHARS]!r} of the state: {known}.")
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > STATE_VALUE_BYTES:
        raise Invalid(f"The value of {name} is {size} bytes long; at most {STATE_VALUE_BYTES} are kept. Shorten it.")
    state: dict[str, Any] = {**row.metadata.get("state", {}), name: value}
    row.metadata["state"] = state
    row.metadata["state_set_at"] = {**row.metadata.get("state_set_at", {}), name: now.isoformat()}
    row.save(update_fields=["metadata"])
    return state


def _set_hot(row: AgentSession, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    if row.agent is None:
        raise Invalid("The agent of this run is gone, and its fields with it.")
    definition = definition_of(row.agent)
    if why := hot_refusal(definition, name, value):
        raise Invalid(why)
    hot_write(row, definition=definition, name=name, value=value, source=HotSource.AGENT, now=now)
    return {name: value}
