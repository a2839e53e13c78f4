"""The page of an agent with a loop: start and stop, hot state, sensors, turns, activity."""

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse

from agents.admin import agents as agent_page
from agents.conf import clock
from agents.models import Agent, AgentEvent, AgentSession, Sensor, Turn
from agents.people.activity import event_emit
from agents.roster.agents import agent_start
from agents.sessions.halts import sessions_halt
from agents.sessions.leases import lease_claim
from agents.text.shown import visible
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, page, sign_in, text_of
from tests.agents.autonomy import TEXT, make_autonomous, make_going
from tests.factories import NOW, make_agent, make_user

pytestmark = pytest.mark.django_db


def look(client, agent, **query):
    answer = client.get(page(type(agent), "change", agent.pk), query)
    assert answer.status_code == 200
    return " ".join(text_of(answer).split())


def confirm(client, agent, act):
    return client.post(act_page(agent, act), {"confirmed": "1"})


def loops(agent):
    return AgentSession.objects.filter(agent=agent, mode="loop").order_by("pk")


# --- Start, stop and restart ---


def test_start_stop_and_restart_ask_first(client):
    by = sign_in(client)
    agent = make_autonomous(owner=by)
    assert "sensors" in text_of(client.get(act_page(agent, "start")))
    assert not loops(agent).exists()

    assert confirm(client, agent, "start").status_code == 302
    assert confirm(client, agent, "start").status_code == 302
    [loop] = loops(agent)
    assert loop.metadata["asked_by"] == f"user:{by.pk}"
    assert "Open run" in look(client, agent)

    confirm(client, agent, "restart")
    before, after = loops(agent)
    assert (before.terminal_reason, after.restarted_from) == ("external_halt", before)

    confirm(client, agent, "stop")
    after.refresh_from_db()
    assert after.terminal_reason == "external_halt"
    assert not Sensor.objects.filter(agent=agent, wanted=True).exists()


def test_starter_of_an_agent_is_in_the_audit_log(client):
    by = sign_in(client)
    agent = make_autonomous()
    confirm(client, agent, "start")
    lease_claim(loops(agent).get().pk, owner="worker", now=clock())
    [birth] = AuditEvent.objects.filter(kind="autonomous_session.started")
    assert (birth.details["asked_by"], birth.details["owner_id"]) == (f"user:{by.pk}", agent.owner_id)


def test_start_that_is_refused_says_why(client):
    sign_in(client)
    for agent, why in (
        (make_agent(), "has nothing to start"),
        (make_autonomous(enabled=False), "is switched off"),
        (make_autonomous(owner=make_user(opted_in=False)), "opted in"),
        (make_agent(definition="autonomy: 7"), "autonomy"),
    ):
        answer = confirm(client, agent, "start")
        assert answer.status_code == 200
        assert why in text_of(answer)
        assert not loops(agent).exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "fields", "offered"),
    [
        (TEXT, {}, {"start"}),
        (TEXT, {"enabled": False}, set()),
        ("heartbeat: {prompt: Look.}", {}, {"start"}),
        ("", {}, set()),
        ("autonomy: 7", {}, set()),
    ],
)
def test_actions_are_offered_by_state(client, text, fields, offered):
    sign_in(client)
    agent = make_agent(definition=text, definition_version=1, **fields)

    def buttons():
        shown = look(client, agent)
        return {act for act in ("start", "stop", "restart") if f'href="{act_page(agent, act)}">' in shown}

    assert buttons() == offered
    if offered:
        agent_start(agent=agent, by=None, now=clock())
        assert buttons() == {"stop", "restart"}


def test_agent_waiting_for_tomorrow_can_be_stopped(client):
    agent = make_autonomous("autonomy: {enabled: true, renew: daily}", owner=sign_in(client))
    agent_start(agent=agent, by=None, now=clock())
    loops(agent).update(status="halted", terminal_reason="cost_cap_reached", completed_at=clock())
    assert f'href="{act_page(agent, "stop")}">' in look(client, agent)
    before = last_event()

    confirm(client, agent, "stop")
    assert f'href="{act_page(agent, "stop")}">' not in look(client, agent)
    assert kinds_since(before) == ["agent.stopped"]


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_readers_cannot_start_or_stop_agents(client, role):
    sign_in(client, role)
    agent = make_going().agent
    assert {confirm(client, agent, act).status_code for act in ("start", "stop", "restart")} == {403}
    shown = look(client, agent)
    assert act_page(agent, "stop") not in shown
    confirmed = make_autonomous()
    assert "An operator can start it" in look(client, confirmed)


def test_agents_are_started_and_stopped_together_from_the_list(client):
    sign_in(client)
    agents = [make_autonomous(), make_autonomous(), make_agent()]
    chosen = {"action": "start", "_selected_action": [agent.pk for agent in agents], "confirmed": "1"}
    told = text_of(client.post(page(type(agents[0]), "changelist"), chosen, follow=True))
    assert "2 agents started." in told
    assert "has nothing to start" in told
    AgentSession.objects.filter(agent=agents[0], mode="loop").update(status="sleeping", next_wake_at=NOW)
    listed = text_of(client.get(page(type(agents[0]), "changelist")))
    assert "sleeping until 09:26:53" in listed
    assert "queued" in listed


def test_list_shows_which_agents_have_a_loop(client):
    sign_in(client)
    for make, said in ((make_autonomous, "not running"), (make_agent, "none")):
        agent = make()
        listed = client.get(page(type(agent), "changelist"), {"q": agent.name}).context["cl"]
        listed.model_admin.prepare_rows(rows := list(listed.result_list))
        assert [listed.model_admin.loop(row)[1] for row in rows] == [said]


# --- The page ---


def test_page_shows_the_loop_and_its_limits(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    pace = {"consecutive": 12, "idle_ms": 250_000, "actions": [clock().isoformat()]}
    AgentSession.objects.filter(pk=going.loop.pk).update(
        status="sleeping", next_wake_at=NOW, metadata={"loop": pace}, cost_total_usd="0.42"
    )
    shown = look(client, going.agent)
    assert "until 14 Mar, 09:26:53 UTC" in shown
    for said in ("12 of 50", "0 of 100,000", "1 of 10", "250 of 900", "$0.42"):
        assert said in shown
    assert "1 alert for the next turn" in shown
    assert "The price fell." in shown


def test_page_shows_a_missing_token_limit(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    Agent.objects.filter(pk=going.agent.pk).update(
        definition=going.agent.definition.replace("enabled: true,", "enabled: true, token_budget_per_hour: 0,")
    )
    assert "0, no limit" in look(client, going.agent)


def test_page_shows_hot_state_with_its_staleness(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    shown = look(client, going.agent)
    hot = shown[shown.index('id="hot-state"') : shown.index('id="sensors"')]
    assert "31.5" in hot
    assert hot.count("stale") == 1
    assert "5 min ago" in hot
    assert "not loaded yet" in hot


def test_page_shows_sensors_with_their_last_value_and_error(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    shown = look(client, going.agent)
    sensors = shown[shown.index('id="sensors"') : shown.index('id="turns"')]
    for said in ("failing", "3 in a row", "The server said 503.", "invalid", "a poll needs one", "skipped", "due"):
        assert said in sensors


def test_page_shows_the_next_reading_of_a_sensor():
    now = clock()
    sensor = Sensor(kind="poll", state="fine", wanted=True, next_due_at=now)
    for fields, said in (
        ({}, "due"),
        ({"kind": "watch"}, "listening"),
        ({"wanted": False}, "idle"),
        ({"state": "unresolved"}, "skipped"),
    ):
        assert agent_page._next(Sensor(**{**_fields(sensor), **fields}), now) == said


def _fields(row):
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_page_shows_turns_and_avoided_wakes(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    shown = look(client, going.agent)
    turns = shown[shown.index('id="turns"') : shown.index('id="agent-activity"')]
    for said in ("sleep 1 min", "1 action", "Nothing to do.", "1200", "$0.012", "skipped", "unchanged"):
        assert said in turns
    assert reverse("admin:agents_agentsession_change", args=[going.loop.pk]) in turns
    spared = shown[shown.index('id="spared"') :]
    assert "8 of 10" in spared
    assert "$0.096" in spared


def test_empty_parts_say_what_to_do(client):
    owner = sign_in(client)
    for text, fields, *said in [
        ("", {}, "No loop."),
        (TEXT, {}, "The loop is not running."),
        (TEXT, {"enabled": False}, "Enable it</a>, then start it."),
        ("autonomy: 7", {}, "The definition has errors."),
        ("autonomy: {enabled: true}", {}, "No sensors.", "No turns yet.", "No activity yet. Events of the agent"),
        ("heartbeat: {prompt: Look.}", {}, "The heartbeat is not started."),
    ]:
        agent = make_agent(owner=owner, definition=text, definition_version=1, **fields)
        shown = look(client, agent)
        assert all(words in shown for words in said), (text, fields, said)


def test_page_shows_how_the_last_loop_ended(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    AgentSession.objects.filter(pk=going.loop.pk).update(status="running")
    sessions_halt([going.loop.pk], by=None, reason="x", now=clock())
    assert "is stopping" in look(client, going.agent)
    AgentSession.objects.filter(pk=going.loop.pk).update(
        status="halted", halt_state="halted", terminal_reason="idle_timeout", completed_at=NOW
    )
    assert "idle timeout" in look(client, going.agent)


def test_page_shows_the_next_heartbeat(client):
    agent = make_autonomous("heartbeat: {interval: 600, prompt: Look.}", owner=sign_in(client))
    agent_start(agent=agent, by=None, now=clock())
    assert "Next heartbeat in 9 minutes" in look(client, agent)
    assert "heartbeat in 9 minutes" in text_of(client.get(page(type(agent), "changelist")))


def test_activity_is_escaped_and_invisible_characters_are_shown(client):
    going = make_going(make_autonomous(owner=sign_in(client)))
    said = "<script>alert(1)</script> \u202eabc"
    event_emit("autonomy:sensor_error", session=going.loop, now=NOW, sensor="door", error=said)
    Turn.objects.filter(session=going.loop).update(reason=said)
    shown = look(client, going.agent)
    assert "<script>alert(1)" not in shown
    assert "\u202e" not in shown
    assert visible("\u202e") in shown


def test_owner_gets_the_stream_and_others_poll(client):
    by = sign_in(client)
    mine, theirs = make_going(make_autonomous(owner=by)), make_going()
    last = AgentEvent.objects.filter(agent=mine.agent).latest("id").pk
    shown = look(client, mine.agent)
    stream = f'data-follow="{reverse("api:agent-events-stream")}?agent={mine.agent.public_id}" data-after="{last}"'
    assert stream in shown
    assert "data-follow" not in look(client, theirs.agent)


def test_refreshing_page_of_another_users_loop_is_recorded_once(client):
    by = sign_in(client)
    theirs, mine = make_going(), make_going(make_autonomous(owner=by))
    before = last_event()
    answer = client.get(page(type(theirs.agent), "change", theirs.agent.pk))
    look(client, theirs.agent, look=answer.context["token"])
    look(client, mine.agent)
    seen = AuditEvent.objects.filter(pk__gt=before, kind="session.viewed")
    assert [event.subject for event in seen] == [f"session:{theirs.loop.public_id}"]


def test_page_queries_do_not_grow_with_turns(framed, client, django_assert_max_num_queries):
    going = make_going(make_autonomous(owner=sign_in(client)))
    look(client, going.agent)
    with django_assert_max_num_queries(60) as few:
        look(client, going.agent)
    Turn.objects.bulk_create(Turn(session=going.loop, number=n, started_at=NOW) for n in range(10, 40))
    for n in range(40):
        event_emit("autonomy:sensor_updated", session=going.loop, now=NOW, sensor="s", field=str(n))
    with django_assert_max_num_queries(len(few)):
        look(client, going.agent)


# --- Home and activity ---


def test_home_counts_running_loops(client):
    sign_in(client)
    going = make_going()
    shown = " ".join(text_of(client.get(reverse("admin:index"))).split())
    assert "1 loop" in shown
    assert going.agent.name in shown


def test_events_are_listed_by_kind_agent_and_session(client):
    sign_in(client)
    going, other = make_going(), make_going()
    event_emit("autonomy:turn_started", session=going.loop, now=NOW, turn=77)
    listed = page(AgentEvent, "changelist")
    assert "Turn 77 started." in text_of(client.get(listed))
    assert "Turn 77 started." not in text_of(client.get(listed, {"kind": "session:error"}))
    for row in (going.agent, going.loop):
        found = text_of(client.get(listed, {"q": str(row.public_id)}))
        assert "Turn 77 started." in found
        assert other.agent.name not in found


def test_view_of_an_event_is_a_view_of_its_run(client):
    by = sign_in(client)
    going = make_going()
    event = AgentEvent.objects.filter(session=going.loop).latest("id")
    assert "price_drop" in text_of(client.get(page(AgentEvent, "change", event.pk)))
    [seen] = AuditEvent.objects.filter(kind="session.viewed")
    assert (seen.actor, seen.subject) == (f"user:{by.pk}", f"session:{going.loop.public_id}")


def test_events_are_read_only(client):
    user = make_user(is_staff=True)
    client.force_login(user)
    event = AgentEvent.objects.filter(session=make_going().loop).latest("id")
    listed, shown = page(AgentEvent, "changelist"), page(AgentEvent, "change", event.pk)
    assert {client.get(listed).status_code, client.get(shown).status_code} == {403}
    user.user_permissions.add(Permission.objects.get(codename="view_agentevent"))
    client.force_login(type(user).objects.get(pk=user.pk))
    assert {client.get(listed).status_code, client.get(shown).status_code} == {200}
    assert client.post(shown).status_code == 403
