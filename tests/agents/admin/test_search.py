"""Searching lists by the id of a session, with or without hyphens."""

import pytest
from django.urls import reverse

from agents.models import AgentSession, Approval, Finding, InferenceLog, ToolCall
from audit import recorder
from audit.models import AuditEvent
from tests.agents.admin.links import unrendered
from tests.agents.admin.rows import make_approval, make_call, make_document, make_playbook, page, sign_in, text_of
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

LISTS = [AgentSession, ToolCall, Approval, Finding, InferenceLog, AuditEvent]


def make_run():
    session = make_session()
    make_call(session)
    make_approval(session)
    Finding.objects.create(session=session, title="finding")
    InferenceLog.objects.create(session=session, model="test-model", purpose="chat", outcome="success")
    recorder.append(session.chain, "session.paused", now=NOW, details={"idle_seconds": 1})
    return session


def session_of(row):
    if isinstance(row, AgentSession):
        return row.chain
    return row.chain if isinstance(row, AuditEvent) else row.session.chain


def test_session_is_found_by_id_with_or_without_hyphens(client, some):
    sign_in(client)
    wanted = make_run()
    make_run()

    for model in some(LISTS, 3):
        for typed in (str(wanted.public_id), wanted.public_id.hex, f" {wanted.public_id} ".upper()):
            rows = unrendered(client, page(model, "changelist"), {"q": typed}).context_data["cl"].result_list
            assert [session_of(row) for row in rows] == [wanted.chain], (model, typed)


def test_sessions_are_found_by_purpose(client):
    sign_in(client)
    owner = make_user()
    document = make_document(owner, name="northgate.md")
    playbook = make_playbook(owner, name="Supplier review")
    rows = {
        "Inbox": make_session(agent=make_agent(name="Inbox clerk"), mode="loop"),
        "weekly": make_session(trigger=make_trigger(name="Weekly scan")),
        "northgate": make_session(params={"document": str(document.public_id)}),
        "supplier review": make_session(params={"playbook": str(playbook.public_id)}),
        "break clause": make_session(mode="chat", params={"message": "What is a break clause?"}),
        owner.username: make_session(owner=owner),
    }
    for typed, wanted in rows.items():
        found = unrendered(client, page(AgentSession, "changelist"), {"q": typed})
        assert list(found.context_data["cl"].result_list) == [wanted], typed
    assert "Words of its purpose, the name of its agent" in text_of(client.get(page(AgentSession, "changelist")))


def test_run_is_found_by_the_beginning_of_its_id(client):
    sign_in(client)
    wanted = make_session(public_id="0a1b2c3d-4e5f-4000-8000-000000000000")
    make_session(public_id="0a1b2c3e-4e5f-4000-8000-000000000000")
    for typed in ("0a1b2c3d", "0A1B2C3D-4e5", " 0a1b2c3d4e5f "):
        found = client.get(page(AgentSession, "changelist"), {"q": typed})
        assert list(found.context["cl"].result_list) == [wanted], typed


def test_other_words_are_searched_as_usual(client):
    sign_in(client)
    make_run()
    recorder.append("system", "people.opted_in", now=NOW, details={"user_id": 1})

    found = client.get(page(Finding, "changelist"), {"q": "find"}).context["cl"].result_list
    record = client.get(page(AuditEvent, "changelist"), {"q": "system"}).context["cl"].result_list

    assert len(found) == 1
    assert {row.chain for row in record} == {"system"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", LISTS[1:], ids=[model.__name__ for model in LISTS[1:]])
def test_short_id_links_to_the_session_or_its_receipt(client, model):
    sign_in(client)
    session = make_run()
    receipt = model is AuditEvent
    link = reverse("audit:receipt", args=[session.chain]) if receipt else page(AgentSession, "change", session.pk)

    found = text_of(client.get(page(model, "changelist")))

    assert f'href="{link}" title="{session.chain}">' in found
    if model is not Approval:
        assert f">{session.chain[:8]}</a>" in found
