"""What a halt of all work has ended is named after the release, and can be started again with it."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.urls import reverse

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.enums import Mode, NoticeKind, Status, TerminalReason
from agents.loop.reads import loop_current, running
from agents.models import Agent, AgentSession, Halt, Notification, Profile
from agents.roster.agents import agent_start, agent_stop, agent_stop_removed
from agents.roster.release import ended_with, work_release
from agents.sessions.control_room import health
from agents.sessions.halts import halt_all_work, halted_work_end, release_all_work, session_halt
from agents.sessions.lifecycle import session_row
from agents.sessions.restarts import agents_not_running, owners_tell_not_running
from agents.ticker import Ticker
from audit.models import AuditEvent
from tests.agents.admin.rows import sign_in, text_of
from tests.agents.api.conftest import client_of
from tests.factories import NOW, make_agent, make_session, make_starter, make_unread_input, make_user

pytestmark = pytest.mark.django_db

LOOP = "autonomy: {enabled: true}"
BEAT = "heartbeat: {enabled: true, interval: 600, prompt: Look.}"
DAILY = "autonomy: {enabled: true, renew: daily}"


@pytest.fixture
def time():
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


def started(name="Watcher", text=LOOP, **fields):
    agent = make_agent(name=name, definition=text, definition_version=1, **fields)
    agent_start(agent=agent, by=None, now=clock())
    return agent


def drill():
    """Halt all work and end it, as First steps recommends; then release it."""
    halt = halt_all_work(by=None, now=clock()).halt
    halted_work_end(clock())
    release_all_work(by=None, now=clock())
    halt.refresh_from_db()
    return halt


def idle():
    return [row.agent.name for row in agents_not_running()]


def is_going(agent):
    return running(agent.pk, Mode.LOOP, Mode.HEARTBEAT).exists()


# --- Which agents are wanted and do not run ---


@pytest.mark.parametrize("text", [LOOP, DAILY, BEAT])
def test_agent_that_a_halt_of_all_work_ended_is_known_after_the_release(text):
    agent = started(text=text)
    assert idle() == []

    drill()

    assert idle() == [agent.name]
    assert any(fault.code == "agents" and "1 agent" in fault.text for fault in health(clock()).faults)


def test_agents_are_no_fault_while_all_work_is_halted():
    started()
    halt_all_work(by=None, now=clock())
    halted_work_end(clock())

    assert "agents" not in {fault.code for fault in health(clock()).faults}


def test_heartbeat_that_ended_is_known_although_the_loop_of_its_agent_was_spared():
    agent = started(text=f"{LOOP}\n{BEAT}")
    AgentSession.objects.filter(pk=loop_current(agent.pk).pk).update(status=Status.WAITING, waiting_on="input")

    drill()

    assert [row.mode for row in agents_not_running()] == [Mode.HEARTBEAT]


@pytest.mark.parametrize("stop", ["stopped", "halted by itself", "switched off", "no loop any more", "opted out"])
def test_agent_that_a_person_stopped_is_not_missed(stop):
    agent = started()
    drill()
    assert idle() == [agent.name]
    agent_start(agent=agent, by=None, now=clock())

    match stop:
        case "stopped":
            agent_stop(agent=agent, by=None, now=clock())
        case "halted by itself":
            session_halt(loop_current(agent.pk).pk, by=None, reason="", now=clock())
        case "switched off":
            drill()
            Agent.objects.filter(pk=agent.pk).update(enabled=False)
        case "no loop any more":
            drill()
            Agent.objects.filter(pk=agent.pk).update(definition="instructions: Look.")
        case "opted out":
            drill()
            Profile.objects.filter(user=agent.owner).update(opted_in=False)
    assert idle() == []


def test_agent_that_was_stopped_after_the_halt_is_not_missed():
    agent = started()
    drill()

    agent_stop(agent=agent, by=None, now=clock())

    assert idle() == []


@pytest.mark.parametrize("text", [LOOP, BEAT])
def test_agent_that_does_not_run_is_stopped_on_its_page_and_on_record(client, text):
    agent = started(text=text)
    page = reverse("admin:agents_agent_change", args=[agent.pk])
    button = reverse("admin:agents_agent_act", args=[agent.pk, "stop"])
    drill()
    sign_in(client, "operator")
    assert button in client.get(page).content.decode()

    client.post(button, {"confirmed": "1"})

    assert idle() == []
    assert AuditEvent.objects.filter(kind="agent.stopped").count() == 1
    assert button not in client.get(page).content.decode()
    assert not agent_stop(agent=agent, by=None, now=clock())  # nothing is left to stop
    assert AuditEvent.objects.filter(kind="agent.stopped").count() == 1


def test_agent_with_an_unreadable_definition_is_not_offered():
    agent = started()
    drill()
    Agent.objects.filter(pk=agent.pk).update(definition="autonomy: [")

    assert idle() == []


@pytest.mark.parametrize(
    ("reason", "missed"),
    [
        (TerminalReason.COST_CAP_REACHED, True),
        (TerminalReason.OPTED_OUT, True),
        (TerminalReason.AGENT_SHUTDOWN, False),
        (TerminalReason.COMPLETED, False),
        (TerminalReason.WORKER_ERROR, False),  # it starts again by itself
    ],
)
def test_loop_that_nothing_starts_again_is_missed_unless_it_ended_itself(reason, missed):
    agent = started()
    status = {"completed": Status.COMPLETED, "worker_error": Status.FAILED}.get(reason, Status.HALTED)
    AgentSession.objects.filter(agent=agent).update(status=status, terminal_reason=reason, completed_at=clock())

    assert idle() == ([agent.name] if missed else [])


def test_definition_that_loses_its_loop_and_keeps_its_heartbeat_leaves_the_agent_wanted():
    agent = started(text=f"{LOOP}\n{BEAT}")
    Agent.objects.filter(pk=agent.pk).update(definition=BEAT)
    agent.refresh_from_db()
    agent_stop_removed(agent=agent, definition=definition_of(agent), now=clock(), actor="system")

    agent.refresh_from_db()
    assert agent.wanted
    drill()
    assert idle() == [agent.name]


# --- The owner is told ---


def test_owner_is_told_once_of_agents_that_the_release_left_idle(time):
    first, second = started("A", owner=(owner := make_user())), started("B", owner=owner)
    drill()
    Notification.objects.all().delete()

    assert owners_tell_not_running(clock()) == 0  # whoever releases may start them again at once
    time.shift(timedelta(minutes=2))
    assert owners_tell_not_running(clock()) == 1
    assert owners_tell_not_running(clock()) == 0

    told = Notification.objects.get()
    assert (told.owner, told.kind, told.title) == (owner, NoticeKind.RUN_STOPPED, "2 agents are not running")
    assert f"{first.name}, {second.name}" in told.body
    drill()  # nothing new has ended
    time.shift(timedelta(minutes=2))
    assert owners_tell_not_running(clock()) == 0


def test_owner_is_not_told_while_all_work_is_halted_nor_of_what_runs_again(time):
    agent = started()
    halt_all_work(by=None, now=clock())
    halted_work_end(clock())
    Notification.objects.all().delete()
    time.shift(timedelta(minutes=2))
    assert owners_tell_not_running(clock()) == 0
    work_release(by=None, now=clock(), start_again=True)
    time.shift(timedelta(minutes=2))

    assert owners_tell_not_running(clock()) == 0
    assert is_going(agent)
    assert not Notification.objects.exists()


def test_ticker_tells_owners(time):
    started()
    drill()
    Notification.objects.all().delete()
    time.shift(timedelta(minutes=2))

    counts = Ticker().tick(clock())

    assert counts["tell owners of agents that do not run"] == 1


# --- Start again with the release ---


def test_release_starts_again_what_the_halt_ended_as_a_persons_start_does():
    loop, beat, stopped = started("Loop"), started("Beat", BEAT), started("Stopped")
    agent_stop(agent=stopped, by=None, now=clock())
    halt = halt_all_work(by=None, now=clock()).halt
    assert [agent.name for agent in ended_with(halt).agents] == ["Beat", "Loop"]  # before the ticker has ended them
    halted_work_end(clock())
    assert [agent.name for agent in ended_with(halt).agents] == ["Beat", "Loop"]
    before = AuditEvent.objects.order_by("-pk").first().pk

    found = work_release(by=None, now=clock(), start_again=True)

    assert [agent.name for agent in found.agents] == ["Beat", "Loop"]
    assert (found.refused, found.not_running) == ((), ())
    assert is_going(loop)
    assert is_going(beat)
    assert not is_going(stopped)
    kinds = list(AuditEvent.objects.filter(pk__gt=before).order_by("pk").values_list("kind", flat=True))
    assert kinds.count("agent.started") == 2
    assert kinds.index("organisation.released") < kinds.index("agent.started")


def test_release_at_once_starts_again_loops_that_no_ticker_has_ended_yet():
    agent = started()
    before = loop_current(agent.pk)
    halt_all_work(by=None, now=clock())

    work_release(by=None, now=clock(), start_again=True)

    assert loop_current(agent.pk).pk != before.pk
    assert session_row(before.pk).status == Status.HALTED


def test_release_starts_again_only_those_that_were_chosen_and_names_the_rest():
    first, second = started("A"), started("B")
    halt_all_work(by=None, now=clock())

    found = work_release(by=None, now=clock(), start_again={first.pk})

    assert is_going(first)
    assert not is_going(second)
    assert found.not_running == ("B",)


def test_agent_that_ended_before_the_halt_is_named_and_not_started(time):
    agent = started()
    rows = AgentSession.objects.filter(agent=agent)
    rows.update(status=Status.HALTED, terminal_reason="cost_cap_reached", completed_at=clock())
    time.shift(timedelta(seconds=1))
    halt_all_work(by=None, now=clock())

    found = work_release(by=None, now=clock(), start_again=True)

    assert (found.agents, found.not_running) == ((), (agent.name,))


def test_start_that_is_refused_keeps_no_other_from_starting():
    broken, whole = started("A"), started("B")
    halt_all_work(by=None, now=clock())
    by = make_starter()
    by.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    Agent.objects.filter(pk=whole.pk).update(owner=by)
    AgentSession.objects.filter(agent=whole).update(owner=by)
    Profile.objects.filter(user=by).update(opted_in=True)

    found = work_release(by=by, now=clock(), start_again=True)

    assert [agent.name for agent in found.agents] == ["B"]
    assert found.not_running == ("A",)
    assert found.refused[0].startswith("A: ")
    assert not is_going(broken)


# --- Run again ---


def run_of(owner, **fields):
    return make_session(Status.QUEUED, owner=owner, created_at=clock(), max_cost_usd=Decimal("0.10"), **fields)


def test_runs_that_the_halt_ended_are_run_again_if_that_is_asked_for(monkeypatch):
    again = []
    monkeypatch.setattr("agents.roster.release.session_restart", lambda *, session, by, now: again.append(session.pk))
    owner = make_user()
    run = run_of(owner)
    own_halt, child, chat, unread = (
        run_of(owner),
        run_of(owner, parent=run),
        run_of(owner, mode=Mode.CHAT),
        make_unread_input(owner).session,
    )
    session_halt(own_halt.pk, by=None, reason="", now=clock())
    halt = halt_all_work(by=None, now=clock()).halt
    halted_work_end(clock())
    assert [row.pk for row in ended_with(halt).runs] == [run.pk]

    assert work_release(by=None, now=clock()).runs == ()
    assert again == []
    halt_all_work(by=None, now=clock())
    Halt.objects.update(requested_at=halt.requested_at)
    found = work_release(by=None, now=clock(), run_again=True)

    assert again == [run.pk]
    assert [row.pk for row in found.runs] == [run.pk]
    assert {own_halt.pk, child.pk, chat.pk, unread.pk}.isdisjoint(again)


# --- Pages, API and command ---


def test_home_lists_what_does_not_run_with_a_button_that_starts_it(client):
    sign_in(client, "operator")
    agent = started()
    drill()

    home = client.get(reverse("admin:index"))

    button = reverse("admin:agents_agent_act", args=[agent.pk, "start"])
    assert "not running" in text_of(home)
    assert f'href="{button}"' in home.content.decode()
    client.post(button, {"confirmed": "1"})
    assert is_going(agent)
    assert button not in client.get(reverse("admin:index")).content.decode()


def test_those_who_may_not_start_agents_see_them_without_the_button(client):
    sign_in(client, "viewer")
    agent = started()
    drill()

    home = client.get(reverse("admin:index")).content.decode()

    assert agent.name in home
    assert reverse("admin:agents_agent_act", args=[agent.pk, "start"]) not in home


def test_release_page_offers_agents_chosen_and_runs_not_chosen(client):
    sign_in(client)
    agent, run = started(), run_of(make_user())
    client.post(reverse("admin:halt_everything"), {"reason": "Drill."})

    form = client.get(reverse("admin:release")).context["form"]

    assert form.fields["start_again"].initial == [agent.pk]
    assert [key for key, _ in form.fields["run_again"].choices] == [run.pk]
    assert form.fields["run_again"].initial == []
    answer = client.post(reverse("admin:release"), {"start_again": [str(agent.pk)]}, follow=True)
    assert "Started again: 1 agent." in text_of(answer)
    assert is_going(agent)


def test_release_page_says_what_is_left_idle(client):
    sign_in(client)
    started("Left alone")
    client.post(reverse("admin:halt_everything"), {"reason": "Drill."})

    answer = client.post(reverse("admin:release"), {"keep_paused": "on"}, follow=True)

    assert "Started earlier, and not running: Left alone." in text_of(answer)


def releaser():
    user = make_starter()
    user.user_permissions.add(Permission.objects.get(codename="halt_everything"))
    return user


def test_api_starts_again_and_names_what_is_left():
    user = releaser()
    agent, _ = started("Mine", owner=user), started("Theirs")
    halt_all_work(by=None, now=clock())

    answer = client_of(user).post("/api/v1/release", {"start_again": True}, format="json").json()

    assert answer["started_again"] == ["Mine"]
    assert answer["not_running"] == ["Theirs"]
    assert [text.split(":")[0] for text in answer["refused"]] == ["Theirs"]
    assert is_going(agent)


@pytest.mark.parametrize("field", ["start_again", "run_again"])
def test_key_that_may_only_decide_releases_and_starts_nothing(field):
    user = releaser()
    halt_all_work(by=None, now=clock())

    refused = client_of(user, "decide").post("/api/v1/release", {field: True}, format="json")
    released = client_of(user, "decide").post("/api/v1/release", {}, format="json")

    assert (refused.status_code, released.status_code) == (403, 200)


def test_command_starts_again_and_names_what_is_left(capsys):
    started("A")
    halt_all_work(by=None, now=clock())
    call_command("release", "--start-again")
    assert "Started again: A." in capsys.readouterr().out

    halt_all_work(by=None, now=clock())
    call_command("release")
    assert "not running: A. `manage.py agent start" in capsys.readouterr().out
    halt_all_work(by=None, now=clock())
    call_command("release", "--json", "--run-again")
    facts = json.loads(capsys.readouterr().out)
    assert (facts["released"], facts["run_again"], facts["not_running"]) == (True, [], ["A"])
