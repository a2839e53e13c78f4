"""One row of every resource of the API for one owner, and the routes of the API."""

import hashlib
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import SimpleNamespace

from django.db import transaction

from agents.api import urls
from agents.conf import clock
from agents.enums import EventKind, EventOutcome, Level, Outcome, Phase, Status, TriggerKind, WaitingOn
from agents.knowledge.documents import bytes_store
from agents.models import (
    Approval,
    ApprovalRule,
    Attachment,
    Chunk,
    Collection,
    ContextProposal,
    Delegation,
    Document,
    Finding,
    InboundEvent,
    Memory,
    Notification,
    OutboxMessage,
    Playbook,
    PlaybookPosition,
    Precedent,
    Project,
    PromptSkill,
    ToolCall,
)
from agents.people.activity import event_emit
from agents.policy.consent import call_digest
from audit import recorder
from tests.agents.ask.rows import make_chat, make_question
from tests.factories import (
    NOW,
    make_agent,
    make_channel,
    make_session,
    make_starter,
    make_trigger,
    make_unread_input,
    make_user,
)

TEXT = b"The term of this lease is two years. Notice is three months."


@dataclass(frozen=True)
class Route:
    """One method of one path: GET sessions/<uuid:id>, for example, is `session-retrieve`."""

    name: str
    method: str
    path: str
    module: str

    @property
    def basename(self):
        return self.name.rpartition(":")[0]

    @property
    def is_detail(self):
        return "<uuid:id>" in self.path

    def address(self, world=None):
        path = self.path.replace("<str:name>", "send_email").replace("<path:name>", "offline")
        if self.is_detail:
            path = path.replace("<uuid:id>", str(world.rows[self.basename].public_id))
        return f"/api/{path}"


@cache
def routes():
    return [route for pattern in urls.urlpatterns for route in _routes(pattern, "")]


def _routes(pattern, prefix):
    path = prefix + str(pattern.pattern)
    if hasattr(pattern, "url_patterns"):
        for inner in pattern.url_patterns:
            yield from _routes(inner, path)
        return
    actions = getattr(pattern.callback, "actions", None)
    if actions is not None:
        basename = pattern.callback.initkwargs["basename"]
        module = pattern.callback.cls.__module__
        yield from (
            Route(f"{basename}:{action}", method, path, module)
            for method, action in actions.items()
            if method != "head"
        )
    elif path.startswith("v1/"):
        view = pattern.callback.view_class
        methods = [method for method in ("get", "post", "patch", "put", "delete") if hasattr(view, method)]
        yield from (Route(f"{pattern.name}:{method}", method, path, view.__module__) for method in methods)


def digest_of(session, arguments):
    return call_digest(
        session_id=str(session.public_id), key="k", intent="run_skill", name="send_letter", version="1", phase="turn",
        arguments=arguments,
    )  # fmt: skip


def make_approval(session, **fields):
    arguments = fields.pop("arguments", {"to": "Jane", "text": "Hello"})
    digest = digest_of(session, arguments)
    defaults = {
        "session": session, "call_key": "k", "intent": "run_skill", "action": "send_letter", "version": "1",
        "phase": Phase.TURN, "level": Level.RESTRICTED, "description": "send_letter", "arguments": arguments,
        "digest": digest, "signature": digest, "expires_at": clock() + timedelta(days=1), "created_at": NOW,
    }  # fmt: skip
    return Approval.objects.create(**{**defaults, **fields})


def make_call(session, **fields):
    defaults = {
        "session": session, "key": "k", "intent": "notify", "phase": "turn", "arguments": {"title": "hello"},
        "digest": "d", "asked_digest": "d", "fencing": 0, "started_at": NOW,
    }  # fmt: skip
    return ToolCall.objects.create(**{**defaults, **fields})


def make_document(owner, *, data=TEXT, **fields):
    digest = hashlib.sha256(data).hexdigest()
    bytes_store(data, digest=digest)
    defaults = {"owner": owner, "name": "lease.txt", "media_type": "text/plain", "digest": digest, "size": len(data)}
    document = Document.objects.create(**{**defaults, "text": data.decode(), "created_at": NOW, **fields})
    Chunk.objects.create(document=document, number=1, start=0, end=len(document.text), text=document.text)
    return document


def make_skill(name="nda-review", **fields):
    return PromptSkill.objects.create(
        **{"name": name, "folder": "skills/nda", "body": "Read it.", "digest": "d", "found_digest": "d", **fields}
    )


def as_made(world):
    """A world that was made for a module, for one test: objects of its own, and the bytes in the test's folder."""
    bytes_store(TEXT, digest=world.rows["document"].digest)
    return deepcopy(world)


def make_world(owner=None):
    """A row of every resource, each in its earliest state."""
    owner = owner or make_starter()
    project = Project.objects.create(owner=owner, name="Acme lease", created_at=NOW)
    collection = Collection.objects.create(owner=owner, name="Leases", documents=1, created_at=NOW)
    document = make_document(owner)
    Attachment.objects.create(document=document, collection=collection, attached_at=NOW, watches_fired_at=NOW)
    playbook = Playbook.objects.create(owner=owner, name="Lease", created_at=NOW, updated_at=NOW)
    PlaybookPosition.objects.create(playbook=playbook, issue="Term", standard="Two years.")
    session = make_session(owner=owner)
    began = {"mode": "loop", "owner_id": owner.pk}
    recorder.append(session.chain, "autonomous_session.started", now=NOW, details=began)
    waiting = make_session(owner=owner, status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    over = make_session(
        owner=owner, status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW,
        params={"playbook": str(playbook.public_id), "collection": str(collection.public_id)},
    )  # fmt: skip
    event_emit(EventKind.TURN_STARTED, session=session, now=NOW, turn=1)
    finding = Finding.objects.create(session=session, title="The term is missing", document=document, created_at=NOW)
    precedent = Precedent.objects.create(
        owner=owner, pattern_kind="clause", summary="No term", summary_hash="h", first_seen_at=NOW, last_seen_at=NOW
    )
    similar = Precedent.objects.create(
        owner=owner, pattern_kind="clause", summary="No end", summary_hash="i", first_seen_at=NOW, last_seen_at=NOW
    )
    proposal = ContextProposal.objects.create(owner=owner, project=project, text="Seen 1 time: No term", created_at=NOW)
    trigger = make_trigger(
        owner=owner, kind=TriggerKind.EVENT, name="Upload", playbook=playbook, collection=collection, source="monitor"
    )
    agent = make_agent(owner=owner)
    notification = Notification.objects.create(owner=owner, title="Done", created_at=NOW)
    channel = make_channel(owner)
    rows = {
        "agent": agent,
        "approval": make_approval(waiting),
        "approval-rule": ApprovalRule.objects.create(name="Rule", effect="ask", agent=agent, created_at=NOW),
        "channel": channel,
        "chat": make_chat(owner),
        "collection": collection,
        "delegation": Delegation.objects.create(
            owner=owner, delegate=make_user(), until=clock() + timedelta(days=1), created_at=NOW
        ),
        "delivery": OutboxMessage.objects.create(
            channel=channel, notification=notification, status="failed", due_at=NOW, created_at=NOW
        ),
        "document": document,
        "event": InboundEvent.objects.create(owner=owner, outcome=EventOutcome.NO_MATCH, received_at=NOW),
        "finding": finding,
        "memory": Memory.objects.create(owner=owner, content="Prefers short terms.", created_at=NOW),
        "notification": notification,
        "playbook": playbook,
        "precedent": precedent,
        "project": project,
        "proposal": proposal,
        "question": make_question(session),
        "session": session,
        "skill": PromptSkill.objects.first() or make_skill(),
        "stream": session,
        "tool-call": make_call(session, outcome=Outcome.STARTED),
        "transcript": session,
        "trigger": trigger,
        "unread-input": make_unread_input(trigger=trigger),
    }
    return SimpleNamespace(owner=owner, rows=rows, waiting=waiting, over=over, similar=similar)


@contextmanager
def undone():
    """Roll back all changes at the end of the block."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
