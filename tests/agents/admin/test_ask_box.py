"""The ask box: answers without a model, drafts to confirm, runs for the rest."""

import pytest
from django.urls import reverse

from agents.ask.fast_paths import FAST_PATHS
from agents.enums import ApprovalStatus, Status
from agents.models import Agent, AgentSession, Approval, InferenceLog, ToolCall, Trigger
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.triggers.rows import make_collection, make_playbook
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db
SCHEDULE = "every 6 hours run playbook Lease on collection Leases"


@pytest.fixture
def ask(client):
    return lambda text: client.post(reverse("admin:ask"), {"text": text}, follow=True)


@pytest.fixture
def operator(client):
    user = sign_in(client, "operator")
    make_playbook(user, name="Lease")
    make_collection(user, name="Leases")
    return user


def test_ask_box_is_outside_the_refreshing_part(client, operator):
    found = text_of(client.get(reverse("admin:index")))
    assert f'action="{reverse("admin:ask")}"' in found
    assert found.index('name="text"') < found.index('id="home-live"')
    assert client.get(reverse("admin:ask")).status_code == 200


def test_rows_are_a_table_with_links_and_cost_no_model(ask, operator):
    session = make_session(owner=operator, status=Status.QUEUED)
    make_session()
    answer = ask("which sessions are queued?")
    shown = text_of(answer)

    assert answer.status_code == 200
    assert page(AgentSession, "change", session.pk) in shown
    assert "answered without a model" in shown
    assert shown.count("<tr>") == 2
    assert not InferenceLog.objects.exists()
    assert not ToolCall.objects.exists()


@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
def test_every_fast_path_has_a_page(ask, operator, path):
    make_agent(owner=operator, name="Clerk")
    make_trigger(owner=operator, name="Scan")
    row = make_session(owner=operator)
    text = path.example.partition(";")[0]
    if path.name == "decide_approval":
        row = make_approval(make_session(owner=operator))
    answer = ask(text.replace("1f2e3d4c", str(row.public_id)))
    assert answer.status_code == 200
    assert "answered without a model" in text_of(answer) or answer.redirect_chain


def test_actions_use_the_users_permissions(ask, client, operator):
    session = make_session(owner=operator)
    assert "Halt requested" in text_of(ask(f"halt session {session.public_id}"))
    approval = make_approval(make_session(owner=operator))
    refused = ask(f"approve {approval.public_id} {approval.digest[:12]}")
    assert (refused.status_code, Approval.objects.get().status) == (403, ApprovalStatus.PENDING)
    sign_in(client, "approver")
    assert page(Approval, "change", approval.pk) in text_of(ask(f"approve {approval.public_id}"))
    ask(f"approve {approval.public_id} {approval.digest[:12]}")
    assert Approval.objects.get().status == ApprovalStatus.APPROVED


def test_request_for_a_model_starts_a_linked_session(ask, operator):
    answer = ask("What is a break clause?")
    session = AgentSession.objects.get()
    assert (session.owner, session.status, session.mode) == (operator, Status.QUEUED, "chat")
    assert answer.redirect_chain == [(reverse("admin:chat", args=[session.public_id]), 302)]
    assert page(AgentSession, "change", session.pk) in text_of(answer)


def test_change_redirects_to_a_reloadable_page(ask, client, operator):
    session = make_session(owner=operator)
    make_agent(owner=operator, name="Clerk")
    for text in (
        f"halt session {session.public_id}",
        "pause Clerk",
        SCHEDULE,
        "run playbook Lease on collection Leases",
    ):
        answer = client.post(reverse("admin:ask"), {"text": text})
        assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, reverse("admin:ask")), text
    assert Trigger.objects.count() == 1
    assert ask("list triggers").redirect_chain == []


def confirm(client, **given):
    return client.post(reverse("admin:ask_confirm"), given)


def test_draft_does_nothing_until_it_is_confirmed(ask, client, operator):
    assert "Enable trigger</button>" in text_of(ask(SCHEDULE))
    trigger = Trigger.objects.get()
    assert trigger.enabled is False

    answered = confirm(client, kind="trigger", id=trigger.public_id)
    assert answered.headers["Location"] == page(Trigger, "change", trigger.pk)
    trigger.refresh_from_db()
    assert trigger.enabled is True


def test_draft_of_an_agent_is_confirmed(ask, client, operator):
    assert "Enable agent</button>" in text_of(ask("create a new agent called Night Clerk that reads leases"))
    agent = Agent.objects.get()
    assert agent.enabled is False
    confirm(client, kind="agent", id=agent.public_id)
    agent.refresh_from_db()
    assert agent.enabled is True


def test_only_own_drafts_are_confirmed(client, operator):
    theirs = make_trigger(enabled=False)
    for given in (
        {"kind": "trigger", "id": theirs.public_id},
        {"kind": "trigger", "id": "nonsense"},
        {"kind": "user", "id": theirs.public_id},
        {},
    ):
        assert confirm(client, **given).status_code == 404
    assert client.get(reverse("admin:ask_confirm")).status_code == 405
    sign_in(client, "viewer")
    assert confirm(client, kind="trigger", id=theirs.public_id).status_code == 403
    theirs.refresh_from_db()
    assert theirs.enabled is False


def test_viewer_reads_and_starts_nothing(ask, client):
    sign_in(client, "viewer")
    assert ask("list my sessions").status_code == 200
    for text in ("What is a break clause?", "show sessions 1f2e3d4c", "list runs 0", "sessions abc12345"):
        refused = ask(text)
        assert (refused.status_code, "operators" in text_of(refused)) == (403, True), text
    assert not AgentSession.objects.exists()
    client.force_login(make_user(is_staff=True))
    assert ask("help").status_code == 403
    assert reverse("admin:ask") not in text_of(client.get(reverse("admin:index")))


def test_refusals_are_shown_at_the_box(ask, operator):
    unknown = ask("show receipt 1f2e3d4c")
    assert (unknown.status_code, "You have no run 1f2e3d4c" in text_of(unknown)) == (404, True)
    assert ask(" ").status_code == 422


def test_request_and_answer_are_escaped(ask, operator):
    for payload in PAYLOADS[::6]:
        make_trigger(owner=operator, name=payload[:120])
        assert read(text_of(ask(payload))).live == [], payload
    found = read(text_of(ask("show my triggers")))
    assert (found.live, found.seen > 0) == ([], True)
