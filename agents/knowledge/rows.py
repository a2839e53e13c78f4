"""Locks and audit events that all rows of this folder share.

A row is locked before it is judged and changed; every change is one audit event of the `system` chain.
"""

from datetime import datetime
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import models

from agents.exceptions import NotFound
from agents.people.access import SYSTEM, actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN

Row = TypeVar("Row", bound=models.Model)


def lock_row(rows: models.QuerySet[Row], name: str) -> Row:
    """Return the row, locked until the transaction ends. On SQLite the transaction is the lock."""
    row = rows.select_for_update(no_key=True).first()
    if row is None:
        raise NotFound(f"There is no such {name}.")
    return row


def record_change(
    row: Any, kind: str, *, now: datetime, by: User | None = None, actor: str = SYSTEM, what: str = "", **details: Any
) -> None:
    """Append an audit event about a row; `what` names the row where that is not the name of its model."""
    name, key = what or row._meta.model_name, str(row.public_id)
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by, actor),
        subject=f"{name}:{key}",
        details={f"{name}_id": key, **details},
    )
