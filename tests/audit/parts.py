"""Work for processes that read a part of the audit log, as audit.parallel calls it."""

import os
import sys

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


def how_begun(bounds, add):
    """Whether it has what the process that verifies has loaded."""
    return "forked" if "tests.conftest" in sys.modules else "started"
