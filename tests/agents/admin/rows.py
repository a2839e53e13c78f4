"""One row for every admin page, and users in each role."""

from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db.models import F
from django.urls import reverse

from agents.conf import clock
from agents.enums import EventKind, Level, Outcome, Phase, Status, ToolIntent, WaitingOn
from agents.models import (
    ApiKey,
    Approval,
    ApprovalRule,
    Attachment,
    Budget,
    Chunk,
    Collection,
    ContextProposal,
    ContextRevision,
    DeclaredModel,
    Delegation,
    Document,
    Finding,
    Halt,
    InboundEvent,
    InferenceLog,
    Memory,
    Notification,
    OutboxMessage,
    Playbook,
    PlaybookPosition,
    Precedent,
    Project,
    PromptSkill,
    SecretBinding,
    SkillSetting,
    SuspendedModel,
    ToolCall,
)
from agents.people.activity import event_emit
from agents.policy.consent import call_digest
from audit import recorder
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from tests.agents.ask.rows import make_question
from tests.factories import (
    NOW,
    make_agent,
    make_channel,
    make_price,
    make_session,
    make_trigger,
    make_unread_input,
    make_user,
)

ROLES = ("viewer", "operator", "approver", "admin")


def sign_in(client, role="", **fields):
    """A member of staff in a role; without one, a superuser."""
    user = make_user(is_staff=True, is_superuser=not role, **fields)
    if role:
        type(user).groups.through.objects.create(user=user, group=Group.objects.get(name=role))
    _begin_session(client, user)
    return user


def _begin_session(client, user):
    """As `force_login` does, by one statement: with one session instead of two, and without its signals."""
    data = {
        SESSION_KEY: str(user.pk),
        BACKEND_SESSION_KEY: settings.AUTHENTICATION_BACKENDS[0],
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }
    store = SessionStore()
    key, ends = uuid4().hex, store.get_expiry_date(expiry=settings.SESSION_COOKIE_AGE)
    Session.objects.create(session_key=key, session_data=store.encode(data), expire_date=ends)
    client.cookies[settings.SESSION_COOKIE_NAME] = key


def text_of(response):
    return response.content.decode()


def page(model, name, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{name}", args=args)


def act_page(row, name):
    return page(type(row), "act", row.pk, name)


def kinds_since(pk):
    return list(AuditEvent.objects.filter(pk__gt=pk).order_by("pk").values_list("kind", flat=True))


def last_event():
    return AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def make_approval(session=None, *, key="k", arguments=None, level=Level.RESTRICTED, action="send_letter", **fields):
    session = session or make_session(status=Status.WAITING, waiting_on=WaitingOn.APPROVAL)
    given = {"to": "x@example.org"} if arguments is None else arguments
    named = {"intent": ToolIntent.RUN_SKILL, "name": action, "version": "1", "phase": Phase.DELIVERY}
    digest = call_digest(session_id=str(session.public_id), key=key, arguments=given, **named)
    now = clock()
    defaults = {
        "session": session,
        "call_key": key,
        "intent": ToolIntent.RUN_SKILL,
        "action": action,
        "version": "1",
        "phase": Phase.DELIVERY,
        "level": level,
        "description": action,
        "arguments": given,
        "digest": digest,
        "signature": digest,
        "expires_at": now + timedelta(hours=1),
        "created_at": now,
    }
    return Approval.objects.create(**{**defaults, **fields})


def make_call(session=None, *, outcome=Outcome.SUCCESS, **fields):
    session = session or make_session()
    settled = None if outcome == Outcome.STARTED else NOW
    defaults = {
        "session": session,
        "key": "k",
        "intent": ToolIntent.NOTIFY,
        "phase": Phase.TURN,
        "arguments": {},
        "digest": "d",
        "asked_digest": "d",
        "fencing": session.fencing,
        "outcome": outcome,
        "started_at": NOW,
        "settled_at": settled,
        "unknown_since": settled if outcome == Outcome.UNKNOWN else None,
    }
    return ToolCall.objects.create(**{**defaults, **fields})


def make_document(owner=None, *, name="nda.txt", text="The term is five years.", collection=None, **fields):
    owner = owner or make_user()
    digest = f"{Document.objects.count():064x}"
    document = Document.objects.create(
        **{
            "owner": owner,
            "name": name,
            "media_type": "text/plain",
            "digest": digest,
            "size": 9,
            "text": text,
            **fields,
        }
    )
    Chunk.objects.create(document=document, number=1, start=0, end=len(text), text=text)
    if collection:
        Attachment.objects.create(document=document, collection=collection, watches_fired_at=NOW)
        Collection.objects.filter(pk=collection.pk).update(documents=F("documents") + 1)
    return document


def make_skill(**fields):
    given = {
        "name": "summarise",
        "folder": "skills/summarise",
        "body": "b",
        "digest": "1" * 64,
        "found_digest": "1" * 64,
    }
    return PromptSkill.objects.create(**{**given, **fields})


def make_playbook(owner, name="Playbook"):
    playbook = Playbook.objects.create(owner=owner, name=name, digest="0" * 64)
    PlaybookPosition.objects.create(playbook=playbook, order=1, issue="Term", must_contain=["two years"])
    return playbook


def make_everything(viewer=None):
    """Make at least one row for every page. The notification belongs to the viewer: users see only their own."""
    owner = make_user()
    agent, project = make_agent(owner=owner), Project.objects.create(owner=owner, name="Project")
    trigger = make_trigger(owner=owner, agent=agent)
    session = make_session(owner=owner, agent=agent, trigger=trigger, project=project)
    collection = Collection.objects.create(owner=owner, name="Collection")
    document = make_document(owner, collection=collection)
    precedent = Precedent.objects.create(owner=owner, pattern_kind="kind", summary="summary", summary_hash="h")
    make_call(session)
    make_approval(session)
    make_question(session)
    ApprovalRule.objects.create(name="Rule", effect="allow", skill="now", agent=agent)
    make_price()
    DeclaredModel.objects.create(model="offline", settings={"context_window": 90_000}, changed_at=NOW)
    event_emit(EventKind.TURN_STARTED, session=session, now=NOW, turn=1)
    recorder.append(SYSTEM_CHAIN, "people.opted_in", now=NOW, details={"user_id": owner.pk})
    SkillAudit.objects.create(skill_name="skill", capability_level="CONTROLLED", duration_ms=1)
    ContextRevision.objects.create(project=project, version=1, text="context")
    Notification.objects.create(owner=viewer or owner, session=session, title="notice")
    Budget.objects.create(scope="trigger", subject_id=trigger.pk, day=NOW.date())
    Halt.objects.create(scope="session", session=session, reason="reason")
    InboundEvent.objects.create(owner=owner, trigger=trigger, outcome="spawned", title="event")
    make_unread_input(trigger=trigger, session=session)
    InferenceLog.objects.create(session=session, model="test-model", purpose="chat", outcome="success")
    SkillSetting.objects.create(name="send_email", hourly_limit=3)
    SecretBinding.objects.create(name="shop", hosts=["shop.example.org"])
    SuspendedModel.objects.create(model="greedy", bound_usd=1, actual_usd=2)
    Delegation.objects.create(owner=owner, delegate=make_user(), until=clock() + timedelta(days=1), created_at=NOW)
    channel = make_channel(viewer or owner)
    notice = Notification.objects.create(owner=viewer or owner, title="dead letter")
    OutboxMessage.objects.create(channel=channel, notification=notice, status="failed")
    ApiKey.objects.create(user=owner, name="key", prefix="abcdef", hash="h" * 64, scopes=["read"])
    Finding.objects.create(
        session=session, title="finding", document=document, quote="five years", quote_start=12, quote_end=22
    )
    return SimpleNamespace(
        owner=owner,
        agent=agent,
        project=project,
        trigger=trigger,
        session=session,
        collection=collection,
        document=document,
        precedent=precedent,
        playbook=make_playbook(owner),
        skill=make_skill(found_digest="2" * 64),
        memory=Memory.objects.create(owner=owner, session=session, content="note"),
        proposal=ContextProposal.objects.create(owner=owner, project=project, precedent=precedent, text="line"),
    )
