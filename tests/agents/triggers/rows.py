"""Rows that the tests of triggers need beside those of tests.factories, and short ways to look at what was written."""

from itertools import count

from agents.enums import TriggerKind
from agents.models import (
    Attachment,
    Collection,
    Document,
    Halt,
    InboundEvent,
    Installation,
    Playbook,
    PromptSkill,
)
from audit.models import AuditEvent
from tests.factories import NOW, make_trigger, make_user

_number = count(1)


def make_collection(owner=None, **fields):
    owner = owner or make_user()
    return Collection.objects.create(owner=owner, **{"name": f"collection-{next(_number)}", **fields})


def make_document(owner=None, **fields):
    number = next(_number)
    defaults = {"name": f"document-{number}", "media_type": "text/plain", "digest": f"{number:064x}", "size": 1}
    return Document.objects.create(owner=owner or make_user(), **{**defaults, **fields})


def attach(collection, document=None, **fields):
    document = document or make_document(collection.owner)
    return Attachment.objects.create(document=document, collection=collection, **{"attached_at": NOW, **fields})


def make_watch(collection, **fields):
    return make_trigger(owner=collection.owner, kind=TriggerKind.WATCH, collection=collection, **fields)


def make_playbook(owner=None, **fields):
    return Playbook.objects.create(owner=owner or make_user(), **{"name": f"playbook-{next(_number)}", **fields})


def make_skill(**fields):
    return PromptSkill.objects.create(**{"name": f"skill-{next(_number)}", "folder": "s", "body": "b", **fields})


def halt_all(**fields):
    halt = Halt.objects.create(scope="organisation", requested_at=NOW, **fields)
    Installation.objects.filter(pk=1).update(halt=halt)


def release_all():
    Installation.objects.filter(pk=1).update(halt=None)


def rows_of(kind, trigger=None):
    """The details of the rows of a kind, oldest first."""
    found = AuditEvent.objects.filter(kind=kind).order_by("id")
    if trigger is not None:
        found = found.filter(subject=f"trigger:{trigger.public_id}")
    return [row.details for row in found]


def reasons_of(trigger, kind="autonomous_trigger.refused"):
    return [details["reason"] for details in rows_of(kind, trigger)]


def events():
    return list(InboundEvent.objects.order_by("id"))
