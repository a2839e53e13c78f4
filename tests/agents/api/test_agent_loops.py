"""Loops and heartbeats of agents through the API: start, stop, restart and their state."""

from uuid import UUID

import pytest

from agents.conf import clock
from agents.loop.context import View, opening_of
from agents.models import AgentSession, ApiKey, Profile, Sensor, Turn
from agents.sessions.halts import halt_all_work
from agents.sessions.leases import lease_claim
from audit.models import AuditEvent
from tests.agents.ask.rows import make_entry
from tests.agents.autonomy import make_autonomous, make_going, make_turn
from tests.factories import make_agent, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db


def address(agent, verb):
    return f"/api/v1/agents/{agent.public_id}/{verb}"


def loops(agent):
    return AgentSession.objects.filter(agent=agent, mode="loop").order_by("pk")


def refusal(answer):
    return answer.status_code, answer.json()["code"]


# --- the levers ---


def test_agent_starts_once_and_stops_with_its_sensors(api, person):
    agent = make_autonomous(owner=person)
    assert api.get(address(agent, "loop")).json() == {"loop": None, "heartbeat": None}
    started = api.post(address(agent, "start")).json()["loop"]
    assert api.post(address(agent, "start")).json()["loop"] == started
    [loop] = loops(agent)
    assert (started["session"], started["status"], started["turn"]) == (str(loop.public_id), "queued", 0)
    assert Sensor.objects.get(agent=agent, name="ticker").wanted

    assert api.post(address(agent, "stop")).json() == {"loop": None, "heartbeat": None}
    assert api.post(address(agent, "stop")).status_code == 200
    loop.refresh_from_db()
    assert (loop.status, loop.terminal_reason) == ("halted", "external_halt")
    assert not Sensor.objects.filter(agent=agent, wanted=True).exists()


def test_audit_log_names_who_started_the_agent(api, person):
    agent = make_autonomous(owner=person)
    api.post(address(agent, "start"))
    lease_claim(loops(agent).get().pk, owner="worker", now=clock())
    [birth] = AuditEvent.objects.filter(kind="autonomous_session.started")
    actor = f"user:{person.pk}:key:{ApiKey.objects.get().prefix}"
    assert (birth.details["asked_by"], birth.details["definition_version"]) == (actor, 1)


def test_restarted_loop_links_the_previous_one(api, person):
    going = make_going(make_autonomous(owner=person))
    again = api.post(address(going.agent, "restart")).json()["loop"]
    before, after = loops(going.agent)
    assert (again["session"], after.restarted_from) == (str(after.public_id), before)
    assert before.terminal_reason == "external_halt"
    assert [field["age_seconds"] for field in api.get(address(going.agent, "hot-state")).json()["fields"]] == [None] * 3


def test_heartbeat_starts_and_stops(api, person):
    agent = make_autonomous("heartbeat: {interval: 600, prompt: Look around.}", owner=person)
    body = api.post(address(agent, "start")).json()
    assert (body["loop"], body["heartbeat"]["status"]) == (None, "sleeping")
    assert UUID(body["heartbeat"]["session"])
    assert api.get(address(agent, "loop")).json() == body
    assert api.post(address(agent, "stop")).json()["heartbeat"] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "has nothing to start"),
        ({"text": "autonomy: {enabled: false}"}, "has nothing to start"),
        ({"enabled": False}, "is switched off"),
    ],
)
@pytest.mark.parametrize("verb", ["start", "restart"])
def test_start_reports_why_it_is_impossible(api, person, fields, message, verb):
    agent = make_autonomous(owner=person, **fields)
    answer = api.post(address(agent, verb))
    assert refusal(answer) == (422, "invalid")
    assert message in answer.json()["message"]
    assert not loops(agent).exists()


def test_start_is_refused_while_all_work_is_halted(api, person):
    agent = make_autonomous(owner=person)
    halt_all_work(by=None, reason="fire", now=clock())
    answer = api.post(address(agent, "start"))
    assert answer.status_code == 409
    assert not loops(agent).exists()


def test_unreadable_definition_starts_nothing(api, person):
    agent = make_agent(owner=person, definition="autonomy: 7")
    for answer in (api.post(address(agent, "start")), api.post(address(agent, "restart"))):
        assert refusal(answer) == (422, "invalid")
        assert answer.json()["detail"]["problems"]


def test_start_and_stop_need_opt_in_and_write(person):
    agent = make_going(make_autonomous(owner=person)).agent
    reading = client_of(person, "read")
    assert {refusal(reading.post(address(agent, verb))) for verb in ("start", "stop", "restart")} == {
        (403, "scope_missing")
    }
    Profile.objects.filter(user=person).update(opted_in=False)
    everything = client_of(person)
    assert {refusal(everything.post(address(agent, verb))) for verb in ("start", "stop", "restart")} == {
        (403, "not_opted_in")
    }
    assert everything.get(address(agent, "hot-state")).status_code == 200


@pytest.mark.parametrize(
    "verb", ["loop", "hot-state", "sensors", "turns", "gate", "alerts", "start", "stop", "restart"]
)
def test_agent_of_another_user_is_not_found(verb):
    agent = make_going().agent
    client = client_of(make_user(is_superuser=True))
    send = client.post if verb in {"start", "stop", "restart"} else client.get
    assert refusal(send(address(agent, verb))) == (404, "not_found")


# --- looking ---


def test_loop_state_is_returned(api, person):
    going = make_going(make_autonomous(owner=person))
    body = api.get(address(going.agent, "loop")).json()["loop"]
    assert (body["turn"], body["alerts"], body["spent_usd"], body["next_wake_at"]) == (3, 1, "0.000000", None)


def test_hot_state_shows_value_age_and_source(api, person):
    going = make_going(make_autonomous(owner=person))
    body = api.get(address(going.agent, "hot-state")).json()
    assert body["session"] == str(going.loop.public_id)
    price, news, mood = body["fields"]
    assert (price["name"], price["value"], price["stale"], price["source"]) == ("price", 31.5, True, "sensor")
    assert 300 <= price["age_seconds"] < 400
    assert (news["value"], news["stale"], news["source"]) == (["a", "b"], False, "agent")
    assert (mood["value"], mood["age_seconds"], mood["stale"], mood["source"]) == (None, None, False, "")


def test_without_a_loop_there_is_no_hot_state_and_no_alert(api, person):
    agent = make_autonomous(owner=person)
    assert api.get(address(agent, "hot-state")).json() == {"session": None, "fields": []}
    assert api.get(address(agent, "alerts")).json()["results"] == []


def test_sensors_show_their_last_value_and_their_last_error(api, person):
    going = make_going(make_autonomous(owner=person))
    inbox, ticker = api.get(address(going.agent, "sensors")).json()["results"]
    assert (inbox["name"], inbox["state"], inbox["kind"]) == ("inbox", "invalid", "poll")
    assert "a poll needs one" in inbox["problem"]
    assert (ticker["state"], ticker["failures"], ticker["problem"]) == ("failing", 3, "The server said 503.")
    assert (ticker["value"], ticker["wanted"]) == ("31.5", True)


def test_signals_have_no_unscored_items(api, person):
    going = make_going(make_autonomous(owner=person))
    hidden = {"mark": "1:x", "conditions": [{"on": True}], "loop": 7, "spawns": [{"data": "x"}]}
    state = {"score": "0.4", **hidden, "waiting": {"items": ["x", "y"]}}
    Sensor.objects.filter(name="ticker").update(signals={"odd": state, "even": {"score": "1"}})
    ticker = api.get(address(going.agent, "sensors")).json()["results"][1]
    assert ticker["signals"] == {"odd": {"score": "0.4", "waiting": 2}, "even": {"score": "1", "waiting": 0}}


def test_dropped_alerts_are_counted(api, person):
    going = make_going(make_autonomous(owner=person))
    assert api.get(address(going.agent, "loop")).json()["loop"]["alerts_dropped"] == 0
    AgentSession.objects.filter(pk=going.loop.pk).update(metadata={"alerts_dropped": 7})
    assert api.get(address(going.agent, "loop")).json()["loop"]["alerts_dropped"] == 7


def test_turns_of_all_loops_are_listed_newest_first(api, person):
    going = make_going(make_autonomous(owner=person))
    api.post(address(going.agent, "restart"))
    make_turn(loops(going.agent).last(), 1, reason="Bearer sk-proj-1234567890abcdefghijklmnop")
    page = api.get(address(going.agent, "turns"), {"page_size": 3}).json()
    assert (page["count"], [turn["number"] for turn in page["results"]]) == (4, [1, 3, 2])
    assert "1234567890" not in page["results"][0]["reason"]
    [last] = api.get(page["next"]).json()["results"]
    assert last["session"] == str(going.loop.public_id)
    assert (last["yielded"], last["sleep_seconds"], last["reason"]) == ("sleep", 90, "Nothing to do.")
    assert (last["tokens"], last["cost_usd"], last["actions"]) == (1200, "0.012000", 1)


def test_gate_lists_savings_by_day(api, person):
    going = make_going(make_autonomous(owner=person))
    [today] = api.get(address(going.agent, "gate")).json()["results"]
    assert (today["wakes_avoided"], today["unchanged"], today["immaterial"], today["opened"]) == (8, 5, 3, 2)
    assert (today["saved_usd"], today["spent_usd"]) == ("0.096000", "0.001000")


def test_pending_alerts_are_listed(api, person):
    going = make_going(make_autonomous(owner=person))
    [alert] = api.get(address(going.agent, "alerts")).json()["results"]
    assert (alert["name"], alert["text"], alert["source_name"]) == ("price_drop", "The price fell.", "ticker")


def test_turn_input_is_in_the_transcript_only_on_request(api, person):
    going = make_going(make_autonomous(owner=person))
    values = opening_of(going.turns[0], View("hot_state: price: 31.5", alerts=()))
    for entry in values:
        make_entry(going.loop, entry.role, entry.content, reason=entry.reason)
    make_entry(going.loop, "assistant", "Nothing.", stop="end_turn")
    transcript = f"/api/v1/sessions/{going.loop.public_id}/transcript"
    assert [entry["content"] for entry in api.get(transcript).json()["results"]] == ["Nothing."]
    assert len(api.get(transcript, {"internal": "true"}).json()["results"]) == 1 + len(values) == 3


def test_statement_count_does_not_grow_with_turns(api, person, django_assert_max_num_queries):
    going = make_going(make_autonomous(owner=person))
    Turn.objects.bulk_create(Turn(session=going.loop, number=n, started_at=clock()) for n in range(10, 60))
    for verb in ("turns", "loop", "hot-state", "sensors", "gate", "alerts"):
        with django_assert_max_num_queries(12):
            assert api.get(address(going.agent, verb)).status_code == 200
