"""The admin pages: every one opens, none of the runtime rows can be edited, and halting goes through the service."""

import pytest
from django.contrib import admin
from django.urls import reverse

from agents.enums import HaltState, Status
from agents.models import AgentSession, Halt, ToolCall
from tests.factories import NOW, make_agent, make_price, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

PAGES = [model for model in admin.site._registry if model._meta.app_label in {"agents", "audit"}]


@pytest.fixture
def operator(client):
    user = make_user(is_staff=True, is_superuser=True)
    client.force_login(user)
    return user


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_every_list_opens_and_nothing_can_be_added(model, client, operator):
    session = make_session(agent=make_agent(), trigger=make_trigger())
    make_price()
    ToolCall.objects.create(
        session=session, key="k", intent="notify", phase="turn", arguments={}, digest="d", asked_digest="d",
        fencing=0, started_at=NOW,
    )  # fmt: skip
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    assert client.get(reverse(f"{name}_changelist")).status_code == 200
    assert client.get(reverse(f"{name}_add")).status_code == 403


def test_a_session_can_be_read_and_not_edited(client, operator):
    session = make_session()
    address = reverse("admin:agents_agentsession_change", args=[session.pk])
    assert client.get(address).status_code == 200
    assert client.post(address, {"status": Status.COMPLETED}).status_code == 403
    assert client.post(reverse("admin:agents_agentsession_delete", args=[session.pk])).status_code == 403


def halt(client, *sessions):
    chosen = {"action": "halt_selected", "_selected_action": [session.pk for session in sessions]}
    return client.post(reverse("admin:agents_agentsession_changelist"), chosen, follow=True)


def test_halting_in_the_admin_counts_what_it_did(client, operator):
    running = make_session()
    halted = make_session(halt_state=HaltState.HALT_REQUESTED)
    over = make_session(status=Status.COMPLETED, terminal_reason="completed", completed_at=NOW)
    page = halt(client, running, halted, over)
    assert "1 asked to halt, 1 halted before, 1 over." in page.content.decode()
    assert Halt.objects.get().requested_by == operator
    running.refresh_from_db()
    assert running.halt_state == HaltState.HALT_REQUESTED


def test_who_may_only_look_cannot_halt(client):
    viewer = make_user(is_staff=True)
    from django.contrib.auth.models import Permission

    viewer.user_permissions.add(Permission.objects.get(codename="view_agentsession"))
    client.force_login(viewer)
    session = make_session()
    halt(client, session)
    assert AgentSession.objects.get(pk=session.pk).halt_state == HaltState.RUNNING


def test_the_list_of_sessions_shows_money_against_its_cap(client, operator):
    make_session(max_cost_usd=None)
    make_session(max_cost_usd="0.25", cost_total_usd="0.005")
    page = client.get(reverse("admin:agents_agentsession_changelist")).content.decode()
    assert "$0 / no cap" in page
    assert "$0.005 / $0.25" in page
