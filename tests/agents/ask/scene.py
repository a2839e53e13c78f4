"""A person with one of everything that a request can name, and helpers to ask and to inspect the result."""

from datetime import timedelta
from types import SimpleNamespace

from django.contrib.auth.models import Permission

from agents.ask.entry import ask
from agents.enums import Status, TriggerKind, WaitingOn
from agents.models import Approval, InferenceLog, Precedent, PromptSkill, ToolCall
from audit import recorder
from audit.models import AuditEvent
from tests.agents.admin.rows import make_approval
from tests.agents.triggers.rows import make_collection, make_document, make_playbook, make_skill
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user


def make_scene(**fields):
    """The rows, and their ids as text."""
    owner = make_user(**fields)
    owner.user_permissions.add(*Permission.objects.filter(codename__in=("resolve_approval", "add_agentsession")))
    session = make_session(owner=owner)
    began = {"mode": "loop", "owner_id": owner.pk}
    recorder.append(session.chain, "autonomous_session.started", now=NOW, details=began)
    approval = waiting_call(owner)
    Precedent.objects.create(
        owner=owner, pattern_kind="clause", summary="No term", summary_hash="h", first_seen_at=NOW, last_seen_at=NOW
    )
    collection = make_collection(owner, name="Leases")
    playbook = make_playbook(owner, name="Lease")
    weekly = {"name": "Weekly scan", "kind": TriggerKind.MANUAL, "collection": collection, "playbook": playbook}
    return SimpleNamespace(
        owner=owner,
        session=session,
        approval=approval,
        agent=make_agent(owner=owner, name="Clerk"),
        trigger=make_trigger(owner=owner, **weekly),
        playbook=playbook,
        skill=PromptSkill.objects.filter(name="nda-review").first() or make_skill(name="nda-review"),
        collection=collection,
        document=make_document(owner, name="acme.txt"),
        s=str(session.public_id),
        a=str(approval.public_id),
        d=approval.digest[:12],
    )


def waiting_call(owner, **fields):
    waits = make_session(owner=owner, status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    return make_approval(waits, **{"expires_at": NOW + timedelta(hours=1), "created_at": NOW, **fields})


def asked(scene, text, **more):
    """The answer to a text; {s}, {a} and {d} are the ids of the session, the approval and its digest."""
    by = more.pop("by", scene.owner)
    return ask(text=text.format(s=scene.s, a=scene.a, d=scene.d), by=by, now=NOW, **more)


def nothing_was_inferred():
    return not InferenceLog.objects.exists() and not ToolCall.objects.exists()


def trail(since=0):
    """The audit events after this row, without what differs between two of the same kind."""
    rows = AuditEvent.objects.filter(pk__gt=since).order_by("pk")
    return [(row.kind, row.actor.partition(":")[0], row.subject.partition(":")[0], sorted(row.details)) for row in rows]


def last_row():
    return AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def is_pending(approval):
    return Approval.objects.get(pk=approval.pk).status == "pending"
