"""Hot state: what a loop sees of the world each turn. Typed fields with an age and a source, for one run of a loop.

It is working memory, not a record: a new run starts with none, and that of an ended run is deleted soon. Sensors,
refreshes and the agent itself write it, through this module; values are masked and bounded on the way in.
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
from agents.text.clean import json_safe
from audit.redaction import redact_data
from audit.rows import digest

logger = logging.getLogger(__name__)

VALUE_BYTES: Final = 65_536
SHORT_CHARS: Final = 120
DELETED_AT_ONCE: Final = 5_000
BEFORE_CHARS: Final = 20  # shown of the unchanged text before a change
NAME_CHARS: Final = 64
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
    """A field as a turn sees it. Without an age it was never loaded, and is stale if it has a time to live."""

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
        return cut(_json(self.value), SHORT_CHARS)

    @property
    def digest(self) -> str:
        return _digest(self.value)


@dataclass(frozen=True)
class Change:
    """A field with another value than before, both cut short."""

    name: str
    old: str
    new: str

    @property
    def is_shown(self) -> bool:
        """False when the difference was cut off."""
        return self.old != self.new


# --- Reading ---


def hot_snapshot(session: AgentSession, definition: AgentDefinition, *, now: datetime) -> tuple[FieldView, ...]:
    """Return every declared field, in the order of the definition."""
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
    """Return what a turn was shown, cut short: enough to find later what has changed since."""
    return {
        view.name: {"value": view.short, "digest": view.digest, "stale": view.stale} for view in views if view.loaded
    }


def diff_since(views: Sequence[FieldView], t: datetime) -> list[Change]:
    """Return the fields written after `t`, with the value before their last change and the value now.

    A field that was written with the value it had is listed with the same value twice.
    """
    changes = []
    for view in views:
        if view.updated_at is not None and view.updated_at > t:
            before = view.previous if view.changed_at is not None and view.changed_at > t else view.value
            old, new = ("" if value is None else cut(_json(value), SHORT_CHARS) for value in (before, view.value))
            changes.append(Change(view.name, old, new))
    return changes


def changes_from(seen: Mapping[str, Mapping[str, Any]], views: Sequence[FieldView]) -> list[Change]:
    """Return the fields whose values differ from an earlier summary.

    Values are compared, not times: a field that returned to its value has not changed, and one that was written during
    the turn is not missed.
    """
    changes = []
    for view in views:
        before = seen.get(view.name)
        old_digest = before["digest"] if before else None
        if old_digest != (view.digest if view.loaded else None):
            changes.append(_change(view, before["value"] if before else "", old_digest))
    return changes


def _change(view: FieldView, short: str, old_digest: str | None) -> Change:
    """Return both values cut short; from where they differ, if they look alike and the old one is still known."""
    if not view.loaded or short != view.short or _digest(view.previous) != old_digest:
        return Change(view.name, short, view.short if view.loaded else "")
    old, new = _json(view.previous), _json(view.value)
    differ = (place for place, (before, now) in enumerate(zip(old, new, strict=False)) if before != now)
    start = max(next(differ, min(len(old), len(new))) - BEFORE_CHARS, 0)
    texts = [f"{ELIDED}{cut(text[start:], SHORT_CHARS)}" for text in (old, new)]
    return Change(view.name, *texts)


# --- Writing ---


def hot_refusal(definition: AgentDefinition, name: str, value: Any) -> str:
    """Return why a value cannot be written; empty when it can. Null empties any field."""
    spec = definition.hot_state.fields.get(name)
    if spec is None:
        known = f"declared are {', '.join(fields)}" if (fields := definition.hot_state.fields) else "none is declared"
        return f"There is no field {name[:NAME_CHARS]!r} of the hot state: {known}."
    if value is None:
        return ""
    if not isinstance(value, _TYPES[spec.type]) or (isinstance(value, bool) and spec.type != "boolean"):
        return f"The field {name} is of type {spec.type}; a value of type {type(value).__name__} does not fit."
    size = len(_json(_fitted(spec, value)).encode())
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
    """Set a field. False when the run is over or, with a warning, when the value cannot be written."""
    given = redact_data(json_safe(value))
    if problem := hot_refusal(definition, name, given):
        logger.warning("hot state of session %s: %s", session.public_id, problem)
        return False
    if not AgentSession.objects.filter(pk=session.pk).exclude(status__in=sorted(TERMINAL)).exists():
        return False
    empty = HotField(session=session, name=name, source=source, updated_at=now, changed_at=now)
    HotField.objects.bulk_create([empty], ignore_conflicts=True)
    row = HotField.objects.select_for_update().get(session=session, name=name)
    new = _fitted(definition.hot_state.fields[name], given)
    if row.value != new:
        row.previous, row.value, row.changed_at = row.value, new, now
    row.source, row.source_name, row.updated_at = source, source_name[:NAME_CHARS], now
    row.save(update_fields=["value", "previous", "changed_at", "source", "source_name", "updated_at"])
    return True


def hot_delete_old() -> int:
    """Delete the fields of ended runs. One that is being written is skipped, and deleted next time."""
    over = HotField.objects.filter(session__status__in=sorted(TERMINAL))
    with transaction.atomic():
        free = over.select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True)[:DELETED_AT_ONCE]
        return HotField.objects.filter(pk__in=list(free)).delete()[0]


def _fitted(spec: FieldSpec, value: Any) -> Any:
    """Cut a value to what is stored: arrays keep their newest items, texts their beginning."""
    if isinstance(value, list) and spec.max_items is not None:
        return value[-spec.max_items :]
    if isinstance(value, str) and len(_json(value).encode()) > VALUE_BYTES:
        return f"{value.encode()[: VALUE_BYTES // 2].decode(errors='ignore')}{CUT}"
    return value


def cut(text: str, most: int) -> str:
    """Cut a text to so many characters, with a mark at its end."""
    if len(text) <= most:
        return text
    return f"{text[: most - len(CUT)]}{CUT}" if most > len(CUT) else CUT[: max(most, 0)]


def _digest(value: Any) -> str:
    return digest(value)[:16]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


# --- The agent's own state ---


def session_set_state(session_pk: int, *, name: str, value: Any, now: datetime) -> dict[str, Any]:
    """Write a declared field of the hot state of a loop, and return it."""
    row = AgentSession.objects.select_related("agent").get(pk=session_pk)
    if row.mode != Mode.LOOP or row.agent is None:
        raise Invalid("Only the loop of an agent has fields to set.")
    definition = definition_of(row.agent)
    if problem := hot_refusal(definition, name, value):
        raise Invalid(problem)
    hot_write(row, definition=definition, name=name, value=value, source=HotSource.AGENT, now=now)
    return {name: value}
