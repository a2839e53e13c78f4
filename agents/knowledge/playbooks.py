"""Playbooks: the only writer of their rows. Each edit that changes something is a new version with a digest of its own.

What is stored is what a reader of the rendered text reads back. A deleted playbook stays for the record, and cannot
run. Texts that hold what looks like a secret are refused: a mask in a phrase would quietly check for something else.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet, prefetch_related_objects

from agents.definitions import playbook_text, playbooks
from agents.definitions.playbook_text import Position
from agents.exceptions import Invalid, NotFound
from agents.knowledge.playbook_checks import checked_name, checked_positions
from agents.models import Playbook, PlaybookPosition
from agents.people.access import demand_access
from agents.people.actors import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN

MAX_RENDERED_BYTES: Final = 256 * 1024


@transaction.atomic
def playbook_create(
    *, owner: User, name: str, positions: Sequence[Position], by: User | None, now: datetime
) -> Playbook:
    """Version 1 of a playbook of the owner's. Names are the owner's own; a deleted playbook's name is free again."""
    demand_access(by, owner_id=owner.pk, permission="agents.add_playbook")
    name, positions = checked_name(name), checked_positions(positions)
    playbook = Playbook(owner=owner, name=name, digest=_digest(name, 1, positions), created_at=now, updated_at=now)
    _save(playbook)
    _write_positions(playbook, positions)
    _record(playbook, "playbook.created", by=by, now=now, version=1, digest=playbook.digest, positions=len(positions))
    return playbook


@transaction.atomic
def playbook_edit(
    playbook: Playbook,
    *,
    by: User | None,
    now: datetime,
    name: str | None = None,
    positions: Sequence[Position] | None = None,
) -> Playbook:
    """The next version, if anything differs; else the playbook as it is, and nothing is recorded."""
    demand_access(by, owner_id=playbook.owner_id, permission="agents.change_playbook")
    row = _locked(Playbook.objects.filter(pk=playbook.pk))
    before = positions_of(row)
    wanted_name = row.name if name is None else checked_name(name)
    wanted = before if positions is None else checked_positions(positions)
    if (wanted_name, wanted) == (row.name, before):
        return row
    row.name, row.version, row.updated_at = wanted_name, row.version + 1, now
    row.digest = _digest(row.name, row.version, wanted)
    _save(row)
    if wanted != before:
        row.positions.all().delete()
        _write_positions(row, wanted)
    details = {"version": row.version, "digest": row.digest, "positions": len(wanted)}
    _record(row, "playbook.edited", by=by, now=now, **details)
    return row


@transaction.atomic
def playbook_delete(playbook: Playbook, *, by: User | None, now: datetime) -> Playbook:
    """Takes a playbook out of use. Runs that used it keep its id, version and digest in their record."""
    demand_access(by, owner_id=playbook.owner_id, permission="agents.delete_playbook")
    row = _locked(Playbook.objects.filter(pk=playbook.pk))
    row.deleted_at = row.updated_at = now
    row.save(update_fields=["deleted_at", "updated_at"])
    _record(row, "playbook.deleted", by=by, now=now)
    return row


@transaction.atomic
def playbook_import(*, owner: User, text: str, by: User | None, now: datetime) -> Playbook:
    """A new playbook from YAML or, when the owner has one of that name, its next version."""
    name, positions = playbooks.read_playbook(text)
    name = checked_name(name)
    existing = Playbook.objects.filter(owner=owner, name=name, deleted_at__isnull=True).first()
    if existing is None:
        return playbook_create(owner=owner, name=name, positions=positions, by=by, now=now)
    return playbook_edit(existing, positions=positions, by=by, now=now)


def playbook_export(playbook: Playbook) -> str:
    """The playbook as YAML; importing it again changes nothing."""
    return playbooks.write_playbook(playbook.name, positions_of(playbook))


@transaction.atomic
def playbook_runnable(owner_id: int, public_id: UUID | str) -> Playbook:
    """A playbook that a run of this owner may use, with its positions. Somebody else's, or a deleted one, is not found.

    The row is locked while the positions are read, so that version and positions belong together.
    """
    row = _locked(Playbook.objects.filter(owner_id=owner_id, public_id=_uuid(public_id)))
    prefetch_related_objects([row], "positions")
    return row


def playbook_rendered(playbook: Playbook) -> str:
    """The one text that a model, the offline analyst and a person read."""
    return _render(playbook.name, playbook.version, positions_of(playbook))


def positions_of(playbook: Playbook) -> tuple[Position, ...]:
    return tuple(
        Position(
            issue=row.issue,
            severity=row.severity,
            standard=row.standard,
            fallbacks=tuple(row.fallbacks),
            guidance=row.guidance,
            must_contain=tuple(row.must_contain),
            must_not_contain=tuple(row.must_not_contain),
        )
        for row in playbook.positions.all()
    )


def _locked(rows: QuerySet[Playbook]) -> Playbook:
    """The row, locked until the transaction ends, unless it was deleted. SQLite's transaction is the lock."""
    row = rows.filter(deleted_at__isnull=True).select_for_update(no_key=True).first()
    if row is None:
        raise NotFound("There is no such playbook.")
    return row


def _save(playbook: Playbook) -> None:
    try:
        with transaction.atomic():
            playbook.save()
    except IntegrityError:
        raise Invalid(
            f"There is a playbook named {playbook.name!r} already; edit that one, or choose another name."
        ) from None


def _write_positions(playbook: Playbook, positions: Sequence[Position]) -> None:
    PlaybookPosition.objects.bulk_create(
        PlaybookPosition(playbook=playbook, order=number, **_columns(position))
        for number, position in enumerate(positions, 1)
    )


def _columns(position: Position) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(position).items()}


def _render(name: str, version: int, positions: Sequence[Position]) -> str:
    return playbook_text.render_playbook(playbook_text.Playbook(name, version, tuple(positions)))


def _digest(name: str, version: int, positions: Sequence[Position]) -> str:
    rendered = _render(name, version, positions).encode()
    if len(rendered) > MAX_RENDERED_BYTES:
        raise Invalid(
            f"The playbook is {len(rendered)} bytes long when written out; at most {MAX_RENDERED_BYTES} are kept: "
            "shorten it, or split it into two."
        )
    return hashlib.sha256(rendered).hexdigest()


def _uuid(public_id: UUID | str) -> UUID:
    try:
        return public_id if isinstance(public_id, UUID) else UUID(public_id)
    except ValueError:
        raise NotFound("There is no such playbook.") from None


def _record(playbook: Playbook, kind: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"playbook:{playbook.public_id}",
        details={"playbook_id": str(playbook.public_id), **details},
    )
