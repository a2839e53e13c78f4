"""The ask box: answers without a model, buttons for what changes something, the console for the rest."""

import re

import pytest
from django.urls import reverse

from agents.conf import clock, console_cap
from agents.enums import ApprovalStatus, Status
from agents.models import Agent, AgentSession, Approval, Halt, InferenceLog, ToolCall, Trigger
from agents.providers.scripted import ScriptedProvider
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.triggers.rows import make_collection, make_playbook
from tests.factories import make_agent, make_session, make_trigger, make_user
from tests.serving import serving

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
    live = found.partition('id="home-live"')[2].partition("<h2>Spend</h2>")[0]
    assert 'name="text"' not in live
    assert client.get(reverse("admin:ask")).status_code == 200


def test_rows_are_a_table_with_links_and_cost_no_model(ask, operator):
    session = make_session(owner=operator, status=Status.QUEUED)
    make_session()
    answer = ask("runs queued")
    shown = text_of(answer)

    assert answer.status_code == 200
    assert page(AgentSession, "change", session.pk) in shown
    assert "answered without a model" in shown
    assert shown.count("<tr>") == 2
    assert not InferenceLog.objects.exists()
    assert not ToolCall.objects.exists()


def test_costs_of_runs_without_an_agent_have_a_row_without_a_link(ask, operator):
    agent = make_agent(owner=operator, name="Clerk")
    make_session(owner=operator, agent=agent, cost_total_usd=2, created_at=clock())
    make_session(owner=operator, agent=None, cost_total_usd=1, created_at=clock())
    answer = ask("costs per agent")
    shown = text_of(answer)

    assert answer.status_code == 200
    assert page(Agent, "change", agent.pk) in shown
    assert "without an agent" in shown


def press(client, shown, number=0):
    """Press a button of the page."""
    tokens = re.findall(r'name="token" value="([^"]+)"', shown)
    return client.post(reverse("admin:ask_confirm"), {"token": tokens[number]}, follow=True)


def test_change_needs_the_button(ask, client, operator):
    session = make_session(owner=operator)
    shown = text_of(ask(f"halt {session.public_id}"))
    session.refresh_from_db()
    assert ("proposed, not done" in shown, session.halt_state) == (True, "running")
    assert page(AgentSession, "change", session.pk) in text_of(press(client, shown))
    session.refresh_from_db()
    assert session.halt_state == "halt_requested"


def test_decision_shows_the_call_and_needs_the_permission(ask, client, operator):
    approval = make_approval(make_session(owner=operator))
    refused = text_of(ask(f"approve {approval.public_id}"))
    assert ("not possible" in refused, 'name="token"' in refused) == (True, False)
    sign_in(client, "approver")
    shown = text_of(ask(f"approve {approval.public_id}"))
    assert "x@example.org" in shown
    assert page(Approval, "change", approval.pk) in shown
    press(client, shown)
    assert Approval.objects.get().status == ApprovalStatus.APPROVED


def test_emergency_shows_the_halt_button_first(ask, client, operator):
    shown = text_of(ask("kill all agents now"))
    assert shown.index("Halt everything</button>") < shown.index("answered without a model")
    assert not Halt.objects.exists()
    press(client, shown)
    assert Halt.objects.get().requested_by == operator


def test_draft_is_made_by_the_button_and_stays_off(ask, client, operator):
    shown = text_of(ask(SCHEDULE))
    assert not Trigger.objects.exists()
    press(client, shown)
    assert Trigger.objects.get().enabled is False


def test_wrong_token_does_nothing_and_a_token_needs_a_post(client, operator):
    answer = client.post(reverse("admin:ask_confirm"), {"token": "x"}, follow=True)
    assert "not a token" in text_of(answer)
    assert client.get(reverse("admin:ask_confirm")).status_code == 405


def test_question_starts_a_chat_with_the_console_if_there_is_a_model(ask, operator, settings):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "console": ["test-model"]}
    with serving("test-model", ScriptedProvider()):
        answer = ask("What is a break clause?")
    session = AgentSession.objects.get()
    assert (session.params["way"], session.max_cost_usd) == ("console", console_cap())
    assert answer.redirect_chain == [(reverse("admin:chat", args=[session.public_id]), 302)]


def test_question_without_a_model_is_a_search_with_links(ask, operator):
    agent = make_agent(owner=operator, name="Lease clerk")
    shown = text_of(ask("who looks after the lease?"))
    assert page(Agent, "change", agent.pk) in shown
    assert not AgentSession.objects.exists()


def test_manual_pages_are_shown_by_section(client, operator):
    shown = text_of(client.get(reverse("admin:manual", args=["glossary"])))
    assert 'id="glossary"' in shown
    assert client.get(reverse("admin:manual", args=["nothing"])).status_code == 404


def test_viewer_reads_and_starts_nothing(ask, client):
    sign_in(client, "viewer")
    assert ask("list my sessions").status_code == 200
    assert "operators" in text_of(ask("What is a break clause?")) or "No model" in text_of(ask("What is it?"))
    assert not AgentSession.objects.exists()
    client.force_login(make_user(is_staff=True))
    assert ask("help").status_code == 403
    assert reverse("admin:ask") not in text_of(client.get(reverse("admin:index")))


def test_refusals_are_shown_at_the_box(ask, operator):
    unknown = ask("receipt 1f2e3d4c")
    assert (unknown.status_code, "You have no run 1f2e3d4c" in text_of(unknown)) == (404, True)
    assert ask(" ").status_code == 422


def test_request_and_answer_are_escaped(ask, operator, some):
    for payload in some(PAYLOADS[::6], 4):
        make_trigger(owner=operator, name=payload[:120])
        assert read(text_of(ask(payload))).live == [], payload
    found = read(text_of(ask("show my triggers")))
    assert (found.live, found.seen > 0) == ([], True)
