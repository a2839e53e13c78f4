"""`halt --all` by three statements, without loading models: their imports take seconds on a busy machine.

Writes the rows that `halt_all_work` (agents/sessions/halts.py) writes for a new halt. The ticker, or the release, does
the rest: it gives the audit event its place in the chain, ends active sessions and pauses those that are spared.
Whatever is not a plain new halt is left to the command: other arguments, a user who does not exist, a halt that is in
force, an error.

Needs Django's settings of the database, and no others.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction

from agents.conf import clock
from agents.management.halt_answer import all_halted_facts, all_halted_text

COMMAND: Final = "command"  # as in agents/people/access.py
_FLAGS: Final = {"--all": "everything", "--end-waiting": "ends_waiting", "--json": "as_json"}
_TEXTS: Final = {"--reason": "reason", "--user": "user"}
# Words and conditions are those of `ended_by` in agents/sessions/halts.py; each status has an index of its own.
_OF: Final = "(SELECT count(*) FROM agents_agentsession WHERE status = '{}'{})"
_ACTIVE: Final = " + ".join(_OF.format(status, "") for status in ("queued", "running", "sleeping", "waiting"))
_ASIDE: Final = " + ".join(_OF.format(status, " AND paused_at IS NOT NULL") for status in ("queued", "sleeping"))
_PUT_ASIDE: Final = _OF.format("waiting", " AND (paused_at IS NOT NULL OR id IN (SELECT id FROM person))")
_COUNTS: Final = f"""
    WITH RECURSIVE person (id, parent_id) AS (
        SELECT id, parent_id FROM agents_agentsession
        WHERE status = 'waiting' AND waiting_on IN ('approval', 'input', 'operator', 'resume')
        UNION
        SELECT above.id, above.parent_id FROM agents_agentsession above JOIN person ON person.parent_id = above.id
        WHERE above.status = 'waiting' AND above.waiting_on = 'runs'
    )
    SELECT {_ACTIVE}, {_ASIDE} + {_PUT_ASIDE}"""  # noqa: S608 our own words


@dataclass(frozen=True)
class Wanted:
    """The arguments of `halt --all` that need no more than this module."""

    everything: bool = False
    ends_waiting: bool = False
    as_json: bool = False
    reason: str = ""
    user: str = ""


def wanted(arguments: Sequence[str]) -> Wanted | None:
    """Read the arguments of `halt`; None for any that the command has to judge itself."""
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in _TEXTS:
            value = value if equals else next(rest, "-")
            if value.startswith("-") and not equals:
                return None
            found[_TEXTS[name]] = value
        elif argument in _FLAGS:
            found[_FLAGS[argument]] = True
        else:
            return None
    halt = Wanted(**found)
    return halt if halt.everything and ("user" not in found or halt.user) else None


def halt_quickly(halt: Wanted, *, now: datetime | None = None) -> str | None:
    """Halt all work and return what to print; None, with nothing written, if it is for the command to do."""
    now = now or clock()
    with transaction.atomic():
        user_pk = _user(halt.user)
        if halt.user and user_pk is None:
            return None
        halt_pk = _put_in_force(halt, user_pk, now)
        if halt_pk is None:
            transaction.set_rollback(True)
            return None
    active, waiting = _counts()
    spared = 0 if halt.ends_waiting else waiting
    if not halt.as_json:
        return all_halted_text(ending=active - spared, spared=spared)
    return json.dumps(
        all_halted_facts(
            halt_id=halt_pk,
            by=halt.user or None,
            since=now,
            reason=halt.reason,
            ending=active - spared,
            spared=spared,
        )
    )


def _user(name: str) -> int | None:
    if not name:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM auth_user WHERE username = %s AND is_active", [name])
        row = cursor.fetchone()
    return row[0] if row else None


def _put_in_force(halt: Wanted, user_pk: int | None, now: datetime) -> int | None:
    """Write the halt and its audit event; return the halt's id, or None while another one is in force."""
    moment = connection.ops.adapt_datetimefield_value(now)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO agents_halt (scope, reason, requested_at, actor, spares_waiting, requested_by_id) "
            "VALUES ('organisation', %s, %s, %s, %s, %s) RETURNING id",
            [halt.reason, moment, COMMAND, not halt.ends_waiting, user_pk],
        )
        [(pk,)] = cursor.fetchall()
        cursor.execute("UPDATE agents_installation SET halt_id = %s WHERE id = 1 AND halt_id IS NULL", [pk])
        if not cursor.rowcount:
            return None
        details = {"halt_id": pk, "reason_digest": hashlib.sha256(json.dumps(halt.reason).encode("ascii")).hexdigest()}
        cursor.execute(
            "INSERT INTO audit_pendingevent (chain, kind, at, actor, subject, request_id, details) "
            "VALUES ('system', 'organisation.halted', %s, %s, '', '', %s)",
            [moment, COMMAND if user_pk is None else f"user:{user_pk}", json.dumps(details)],
        )
    return int(pk)


def _counts() -> tuple[int, int]:
    """How many sessions are active, and how many of them only wait for a person or are put aside."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS)
        active, spared = cursor.fetchone()
    return int(active), int(spared)
