"""What a person makes of a note that an agent proposes: keeps it, perhaps in other words, dismisses it, or deletes it.

state: proposed ──► kept ◄──► dismissed ◄── proposed; a deleted note is gone for everybody, and its row stays.
"""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from agents.exceptions import Invalid, NotFound
from agents.models import Memory
from agents.people.access import demand_access
from agents.people.actors import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.redaction import redact

CONTENT_CHARS = 10_000


@transaction.atomic
def memory_keep(*, memory: Memory, by: User | None, now: datetime, content: str | None = None) -> Memory:
    """From now on prompts may hold it. `kept_at` is the first time that it was kept, whatever happens later."""
    row = _lock(memory, by, "agents.change_memory")
    wanted = row.content if content is None else _content(content)
    edited = wanted != row.content
    if row.state == "kept" and not edited:
        return row
    row.state, row.content, row.kept_at = "kept", wanted, row.kept_at or now
    row.save(update_fields=["state", "content", "kept_at"])
    _record(row, "autonomous_memory.keep", by=by, now=now, edited=edited)
    return row


@transaction.atomic
def memory_dismiss(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """No prompt holds it any more. Dismissing it again changes nothing."""
    row = _lock(memory, by, "agents.change_memory")
    if row.state != "dismissed":
        row.state = "dismissed"
        row.save(update_fields=["state"])
        _record(row, "autonomous_memory.dismiss", by=by, now=now)
    return row


@transaction.atomic
def memory_delete(*, memory: Memory, by: User | None, now: datetime) -> Memory:
    """Puts it away for good."""
    row = _lock(memory, by, "agents.delete_memory")
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    _record(row, "autonomous_memory.delete", by=by, now=now)
    return row


def _lock(memory: Memory, by: User | None, permission: str) -> Memory:
    demand_access(by, owner_id=memory.owner_id, permission=permission)
    row = Memory.objects.select_for_update().filter(pk=memory.pk, deleted_at__isnull=True).first()
    if row is None:
        raise NotFound("There is no such note.")
    return row


def _content(value: str) -> str:
    content = redact(value.replace("\x00", "")).strip()
    if not content:
        raise Invalid("A note that is kept needs some words; dismiss it instead.")
    if len(content) > CONTENT_CHARS:
        raise Invalid(f"The note is {len(content)} characters long; at most {CONTENT_CHARS} are kept: shorten it.")
    return content


def _record(row: Memory, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"memory:{row.public_id}",
        details={"memory_id": str(row.public_id), **details},
    )
