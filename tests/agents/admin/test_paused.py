"""The page of everything that is paused."""

from datetime import timedelta

import pytest
from django.urls import reverse

from agents.ledger.trigger_health import trigger_stop
from agents.models import Agent, AgentSession, Trigger
from agents.sessions.pauses import agent_pause, session_pause, work_pause
from agents.triggers.triggers import trigger_pause
from tests.agents.admin.rows import page, sign_in, text_of
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db
PAGE = "admin:paused"


@pytest.fixture
def things():
    by = make_user(username="pia", is_superuser=True)
    agent, trigger, session = make_agent(name="Scanner"), make_trigger(name="Nightly"), make_session()
    agent_pause(agent=agent, by=by, reason="Too <b>dear</b>", now=NOW)
    trigger_pause(trigger=trigger, by=by, now=NOW, with_runs=True)
    session_pause(session.pk, by=None, now=NOW)
    work_pause(by=by, reason="Maintenance", now=NOW)
    return agent, trigger, session


def resumes(things):
    agent, trigger, session = things
    rows = ((Agent, agent), (Trigger, trigger), (AgentSession, session))
    return [*(page(model, "act", row.pk, "resume") for model, row in rows), reverse("admin:resume_everything")]


def test_says_what_is_paused_by_whom_and_why(client, things):
    sign_in(client, "admin")
    found = text_of(client.get(reverse(PAGE)))
    for words in ("Scanner", "Nightly", "All work", "pia", "Too &lt;b&gt;dear&lt;/b&gt;", "Maintenance"):
        assert words in found, words
    for link in resumes(things):
        assert f'href="{link}"' in found, link


def test_names_who_paused_a_trigger_and_nobody_for_one_that_stopped_itself(client):
    sign_in(client, "admin")
    by_hand, by_itself = make_trigger(name="By hand"), make_trigger(name="By itself")
    trigger_pause(trigger=by_hand, by=make_user(username="quinn", is_superuser=True), now=NOW)
    trigger_stop(by_itself, "failing", now=NOW + timedelta(seconds=1))
    rows = {row.name: row.by for row in client.get(reverse(PAGE)).context["paused"]}
    assert rows == {"By hand": "quinn", "By itself": ""}


@pytest.mark.parametrize(("paused", "shown", "is_cut"), [(2, 2, False), (3, 2, True)])
def test_says_that_the_list_is_cut_only_if_it_is(client, monkeypatch, paused, shown, is_cut):
    monkeypatch.setattr("agents.admin.home.SHOWN_PAUSES", 2)
    for number in range(paused):
        trigger_pause(trigger=make_trigger(name=f"Trigger {number}"), by=None, now=NOW)
        agent_pause(agent=make_agent(name=f"Agent {number}"), by=None, reason="", now=NOW)
    sign_in(client, "viewer")
    answer = client.get(reverse(PAGE))
    assert len(answer.context["paused"]) == 2 * shown
    assert ("the newest 2 of a kind" in text_of(answer)) is is_cut


def test_viewer_is_offered_no_resume(client, things):
    sign_in(client, "viewer")
    found = text_of(client.get(reverse(PAGE)))
    assert "Scanner" in found
    assert not [link for link in resumes(things) if f'href="{link}"' in found]


def test_trigger_that_stopped_itself_says_why(client):
    trigger_pause(trigger=make_trigger(name="Nightly"), by=None, now=NOW, reason="failing")
    sign_in(client, "viewer")
    assert "its last runs failed" in text_of(client.get(reverse(PAGE)))


def test_nothing_paused_says_so(client):
    sign_in(client, "viewer")
    assert "Nothing is paused." in text_of(client.get(reverse(PAGE)))


def test_staff_without_a_role_is_refused(client):
    client.force_login(make_user(is_staff=True))
    assert client.get(reverse(PAGE)).status_code == 403
