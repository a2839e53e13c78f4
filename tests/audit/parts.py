"""Work for processes that read a part of the audit log, as audit.parallel calls it."""

import os

from django.db import DatabaseError

from audit.models import AuditEvent


def count(bounds, add):
    """How many rows it sees."""
    add(1)
    return str(AuditEvent.objects.count())


def fail(bounds, add):
    raise DatabaseError(f"no rows before {bounds.end}")


def end(bounds, add):
    os._exit(3)
