"""propose_precedent: counts a recurring pattern. One statement, so that concurrent sightings are never lost.

It neither reads nor writes a project; promotion is a person's act.
"""

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from django.db import connection

from agents.guard.context import CallContext
from agents.guard.params import text
from agents.models import Precedent

_UPSERT = """
INSERT INTO {table}
    (public_id, owner_id, pattern_kind, summary, summary_hash, observed_count, first_seen_at, last_seen_at)
VALUES (%s, %s, %s, %s, %s, 1, %s, %s)
ON CONFLICT (owner_id, pattern_kind, summary_hash) WHERE dismissed_at IS NULL
DO UPDATE SET observed_count = {table}.observed_count + 1, last_seen_at = excluded.last_seen_at
RETURNING public_id, observed_count
"""


def propose_precedent(context: CallContext, params: Mapping[str, Any]) -> dict[str, Any]:
    summary = text(params, "summary")
    row = {
        "public_id": uuid.uuid4(),
        "owner": context.owner_id,
        "pattern_kind": text(params, "pattern_kind", limit=64),
        "summary": summary,
        "summary_hash": hashlib.sha256(summary.encode("utf-8", "surrogatepass")).hexdigest(),
        "first_seen_at": context.now,
        "last_seen_at": context.now,
    }
    meta = Precedent._meta
    fields = {field.name: field for field in meta.concrete_fields}
    values = [fields[name].get_db_prep_save(value, connection) for name, value in row.items()]
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(table=meta.db_table), values)
        [(public_id, count)] = cursor.fetchall()
    return {"precedent_id": str(uuid.UUID(str(public_id))), "observed_count": count}
