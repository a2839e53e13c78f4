"""A secret that comes in by every way there is stands nowhere: in no table, log line, receipt, answer or page."""

import io
import json
import logging

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from agents.ask.chats import chat, chat_send
from agents.enums import NoticeKind, Status, WaitingOn
from agents.models import Agent, Approval, Message, Notification, Question, ToolCall
from agents.people.activity import event_emit
from agents.people.notifications import notification_create
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.roster.agents import agent_create
from agents.runner import run_session
from agents.sessions.approvals import approval_approve
from agents.sessions.questions import question_answer
from agents.skills.registry import installed_skills
from agents.types import RequestedCall
from audit.models import SkillAudit
from audit.receipts import build_receipt
from audit.redaction.redactor import RedactingFilter
from lqops.logs import OneLine
from tests.agents.api.conftest import client_of
from tests.agents.conftest import MODEL, script
from tests.agents.skills.leaky import CANARY
from tests.factories import NOW, make_price, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.leaky"]
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    settings.LQOPS_LOOP = {"streaming": True, "max_tool_rounds": 20}
    make_price(MODEL)
    installed_skills.cache_clear()
    user = make_user(is_staff=True, is_superuser=True)
    user.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    yield user
    installed_skills.cache_clear()


def asks(name, **arguments):
    return Step(f"With {CANARY} I call.", calls=(RequestedCall("1", name, json.dumps(arguments)),))


def puts_together(*parts):
    """A call in tags whose argument is no secret before it is read."""
    return Step(f"<skill>leak(place={' '.join(parts)})</skill>")


def work_on(session):
    run_session(session.pk, chat, owner="worker")
    session.refresh_from_db()
    return session


def conversation(owner):
    """Every way in: message, words of the model, arguments, output, error, simulation, approval, question, failure."""
    agent = agent_create(owner=owner, by=owner, name=f"Clerk {CANARY}", now=NOW)
    Agent.objects.filter(pk=agent.pk).update(definition="skills: all\n")
    agent.refresh_from_db()
    session = chat_send(
        owner=owner,
        by=owner,
        agent=agent,
        text=f"Please leak, burst and carry with the key {CANARY}",
        now=NOW,
    )
    steps = [
        asks("leak", place=f"at {CANARY}"),  # refused: a secret in the arguments
        puts_together(f'"to {CANARY[:6]}"', f'"{CANARY[6:]}"'),
        puts_together(f'"by \\x{ord(CANARY[0]):02x}{CANARY[1:]}"'),
        Step("", calls=(RequestedCall("1", "leak", f'{{"place": "in \\u{ord(CANARY[0]):04x}{CANARY[1:]}"}}'),)),
        asks("leak", place="home"),
        asks("burst", place="home"),
        asks("ask_person", question="Which key?"),
        asks("carry", what="the letter"),
        Step(f"It would be carried with {CANARY}."),  # the simulation
        Step(error=ProviderError(f"503: {CANARY} is busy", fault=Fault.SERVER)),
        Step(f"Done. The key is {CANARY}."),
    ]
    with script(*steps):
        assert work_on(session).waiting_on == WaitingOn.INPUT
        question_answer(Question.objects.get(), answer=f"It is {CANARY}", by=owner, now=NOW)
        assert work_on(session).waiting_on == WaitingOn.APPROVAL
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=owner, digest=ticket.digest, now=NOW, note=f"fine, with {CANARY}")
        assert work_on(session).status == Status.COMPLETED, session.error
    event_emit("session:error", session=session, now=NOW, message=f"it broke with {CANARY}")
    notification_create(
        owner_id=owner.pk, kind=NoticeKind.AGENT, title=f"Key {CANARY}", body=CANARY, session_id=session.pk, now=NOW
    )
    return session


def tables():
    """Everything that is stored, table by table, as text."""
    for model in apps.get_models(include_auto_created=True):
        for row in model._default_manager.values():
            yield model._meta.label, json.dumps(row, default=str, ensure_ascii=False)


@pytest.fixture
def written():
    """What the product's own log handlers would write, from DEBUG on."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.addFilter(RedactingFilter())
    handler.setFormatter(OneLine())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lines
    root.setLevel(level)
    root.removeHandler(handler)


def test_a_canary_is_found_nowhere(owner, written):
    session = conversation(owner)
    logging.getLogger("agents").warning("a line with %s", CANARY)

    assert {call.name for call in ToolCall.objects.all()} >= {"leak", "burst", "carry"}
    kept = [json.loads(call["arguments"]) for row in Message.objects.all() for call in row.calls]
    assert [one["place"][:3] for one in kept if "[redacted:" in one.get("place", "")] == ["at ", "to ", "by ", "in "]
    assert SkillAudit.objects.count() >= 3
    assert Notification.objects.filter(kind=NoticeKind.AGENT).exists()
    assert [label for label, text in tables() if CANARY in text] == []
    assert CANARY not in json.dumps(build_receipt(session.chain), default=str)
    for address, content in shown(owner, session):
        assert CANARY.encode() not in content, address
    assert "a line with" in written.getvalue()
    assert CANARY not in written.getvalue()


def shown(owner, session):
    """What the pages and the API say about it."""
    page = Client()
    page.force_login(owner)
    addresses = [
        reverse("admin:index"),
        reverse("admin:agents_agentsession_change", args=[session.pk]),
        reverse("admin:agents_approval_change", args=[Approval.objects.get().pk]),
        reverse("admin:agents_question_change", args=[Question.objects.get().pk]),
        reverse("audit:receipt", args=[session.chain]),
        *(reverse("admin:agents_toolcall_change", args=[call.pk]) for call in ToolCall.objects.all()),
        *(
            reverse(f"admin:{name}_changelist")
            for name in (
                "agents_agentsession", "agents_approval", "agents_question", "agents_toolcall", "agents_notification",
                "audit_skillaudit", "audit_auditevent", "agents_inferencelog",
            )
        ),
    ]  # fmt: skip
    api = client_of(owner)
    asked = [
        f"/api/v1/sessions/{session.public_id}",
        f"/api/v1/sessions/{session.public_id}/transcript?internal=true",
        f"/api/v1/chats/{session.params['chat']}",
        *(f"/api/v1/{noun}" for noun in ("approvals", "questions", "tool-calls", "notifications", "skill-audits")),
    ]
    for client, places in ((page, addresses), (api, asked)):
        for address in places:
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.content[:200])
            yield address, answer.content
