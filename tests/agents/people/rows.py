"""What the tests of people's acts share: rows with sensible defaults, and a short look at the record."""

from django.contrib.auth.models import Permission

from agents.models import Memory, Precedent, Project
from agents.text.wording import text_key
from audit.models import AuditEvent
from tests.factories import NOW, make_user


def make_project(owner=None, **fields):
    return Project.objects.create(owner=owner or make_user(), **{"name": "Supplier contracts", **fields})


def make_precedent(owner=None, summary="Liability is not capped.", **fields):
    return Precedent.objects.create(
        owner=owner or make_user(),
        summary=summary,
        summary_hash=text_key(summary),
        **{"pattern_kind": "deviation", "observed_count": 3, "first_seen_at": NOW, "last_seen_at": NOW, **fields},
    )


def make_memory(owner=None, **fields):
    return Memory.objects.create(owner=owner or make_user(), **{"content": "Acme signs late.", **fields})


def allowed(*codenames):
    """A user with these permissions of lqops, and nothing else."""
    user = make_user()
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="agents", codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return user


def told(*prefixes):
    """The rows of `system` whose kind begins like this: kind, actor, details."""
    rows = AuditEvent.objects.filter(chain="system").order_by("seq")
    return [(row.kind, row.actor, row.details) for row in rows if row.kind.startswith(prefixes)]
