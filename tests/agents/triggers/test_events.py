"""Events through the API: the best rule spawns, a named agent goes first, and no match is no error."""

import json
from dataclasses import replace

import pytest

from agents.enums import TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.models import AgentSession, InboundEvent, Profile
from agents.sessions.reads import EVENT_CHARS, purposes, titled
from agents.triggers.events import EventIn, event_receive
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_trigger, make_user

from .rows import events, halt_all, make_collection, rows_of

pytestmark = pytest.mark.django_db

FIRE = EventIn("plant", "alarm", "safety", "warning", "Smoke in hall 4", {"sensor": 7})


@pytest.fixture
def owner():
    return make_user()


def make_rule(owner, **fields):
    return make_trigger(owner=owner, kind=TriggerKind.EVENT, **fields)


def test_the_most_specific_rule_spawns(owner):
    make_rule(owner)
    best = make_rule(owner, source="plant", event_type="alarm", collection=make_collection(owner))
    make_rule(owner, source="plant", category="*")
    answer = event_receive(owner=owner, event=FIRE, now=NOW)

    session, [event] = AgentSession.objects.get(), events()
    assert (answer.status, answer.code, answer.score) == (200, "spawned", 15)
    assert (answer.trigger_id, answer.session_id) == (best.public_id, session.public_id)
    assert session.trigger == best
    assert session.params["event"] == {"id": str(event.public_id)}
    assert session.params["collection"] == str(best.collection.public_id)
    assert (event.title, event.data, event.severity, event.session) == (
        "Smoke in hall 4",
        {"sensor": 7},
        "warning",
        session,
    )
    assert rows_of("autonomous_event.received")[0]["outcome"] == "spawned"


def test_the_same_event_twice_is_two_events(owner):
    make_rule(owner)
    answers = {event_receive(owner=owner, event=FIRE, now=NOW).session_id for _ in range(2)}
    assert len(answers) == AgentSession.objects.count() == 2


@pytest.mark.parametrize(
    "fields", [{"enabled": False}, {"paused_at": NOW}, {"deleted_at": NOW}, {"kind": TriggerKind.MANUAL}]
)
def test_a_rule_out_of_use_is_passed_by(owner, fields):
    make_trigger(**{"owner": owner, "kind": TriggerKind.EVENT, "source": "plant", **fields})
    general = make_rule(owner)
    assert event_receive(owner=owner, event=FIRE, now=NOW).trigger_id == general.public_id


def test_the_rule_of_an_agent_that_is_switched_off_is_passed_by(owner):
    make_rule(owner, source="plant", agent=make_agent(owner=owner, enabled=False))
    general = make_rule(owner)
    assert event_receive(owner=owner, event=FIRE, now=NOW).trigger_id == general.public_id


def test_somebody_else_s_rules_are_not_asked(owner):
    make_rule(make_user())
    assert event_receive(owner=owner, event=FIRE, now=NOW).code == "no_match"


def test_no_match_is_remembered_and_is_no_error(owner):
    make_rule(owner, source="office")
    answer = event_receive(owner=owner, event=FIRE, now=NOW)
    [event] = events()
    assert (answer.status, answer.code, answer.event_id) == (200, "no_match", event.public_id)
    assert (event.outcome, event.trigger, event.session, event.data) == ("no_match", None, None, {"sensor": 7})
    assert rows_of("autonomous_event.received") == [{"event_id": str(event.public_id), "outcome": "no_match"}]
    assert not AgentSession.objects.exists()


def test_a_dry_run_says_what_would_happen_and_does_nothing(owner):
    rule = make_rule(owner, source="plant")
    answer = event_receive(owner=owner, event=FIRE, now=NOW, dry_run=True)
    assert (answer.code, answer.trigger_id, answer.score) == ("would_spawn", rule.public_id, 10)
    other = replace(FIRE, source="office")
    assert event_receive(owner=owner, event=other, now=NOW, dry_run=True).code == "no_match"
    assert not InboundEvent.objects.exists()
    assert not AgentSession.objects.exists()
    assert not AuditEvent.objects.exists()


# --- A named agent ---


def test_a_named_agent_goes_before_better_rules_of_others(owner):
    clerk = make_agent(owner=owner, name="Clerk")
    make_rule(owner, source="plant", event_type="alarm")
    make_rule(owner, agent=clerk)
    mine = make_rule(owner, agent=clerk, category="safety")
    for named in ("Clerk", str(clerk.public_id)):
        answer = event_receive(owner=owner, event=replace(FIRE, target_agent=named), now=NOW)
        assert (answer.trigger_id, answer.score) == (mine.public_id, 3)


def test_a_named_agent_s_only_trigger_needs_no_rule_that_fits(owner):
    clerk = make_agent(owner=owner)
    only = make_rule(owner, agent=clerk, source="office", min_severity="critical")
    answer = event_receive(owner=owner, event=replace(FIRE, target_agent=clerk.name), now=NOW)
    assert (answer.code, answer.trigger_id, answer.score) == ("spawned", only.public_id, 0)


def test_a_named_agent_without_a_rule_that_fits_gets_the_event_by_the_one_that_names_most(owner):
    clerk = make_agent(owner=owner)
    make_rule(owner, source="plant")
    make_rule(owner, agent=clerk, event_type="test")
    most = make_rule(owner, agent=clerk, source="office")
    make_rule(owner, agent=clerk, source="elsewhere")
    make_rule(owner, agent=clerk, source="office", category="fire", enabled=False)
    to_clerk = replace(FIRE, target_agent=clerk.name)
    dry = event_receive(owner=owner, event=to_clerk, now=NOW, dry_run=True)
    assert (dry.code, dry.trigger_id, dry.score) == ("would_spawn", most.public_id, 0)
    answer = event_receive(owner=owner, event=to_clerk, now=NOW)
    assert (answer.code, answer.trigger_id, answer.score) == ("spawned", most.public_id, 0)
    assert AgentSession.objects.get().agent == clerk


@pytest.mark.parametrize("fields", [{"enabled": False}, {"paused_at": NOW}, {"deleted_at": NOW}])
def test_a_named_agent_without_a_rule_in_use_gets_nothing_and_that_is_remembered(owner, fields):
    clerk = make_agent(owner=owner)
    make_rule(owner)
    make_rule(owner, agent=clerk, **fields)
    answer = event_receive(owner=owner, event=replace(FIRE, target_agent=clerk.name), now=NOW)
    assert (answer.status, answer.code, events()[0].outcome) == (200, "no_match", "no_match")


def test_the_hourly_limit_holds_for_a_named_agent(owner):
    clerk = make_agent(owner=owner)
    make_rule(owner, agent=clerk, source="office", max_runs_per_hour=1)
    to_clerk = replace(FIRE, target_agent=clerk.name)
    codes = [event_receive(owner=owner, event=to_clerk, now=NOW).code for _ in range(2)]
    assert codes == ["spawned", "rate"]


@pytest.mark.parametrize("named", ["Nobody", "00000000-0000-4000-8000-000000000000"])
def test_an_agent_that_is_not_there_or_somebody_else_s_is_not_found(owner, named):
    make_agent(name="Nobody")
    with pytest.raises(NotFound):
        event_receive(owner=owner, event=replace(FIRE, target_agent=named), now=NOW)
    assert not InboundEvent.objects.exists()


# --- Refused ---


def test_without_opt_in_nothing_is_stored(owner):
    make_rule(owner)
    Profile.objects.update(opted_in=False)
    answer = event_receive(owner=owner, event=FIRE, now=NOW)
    assert (answer.status, answer.code) == (409, "opted_out")
    assert not InboundEvent.objects.exists()


def test_while_all_work_is_halted_nothing_is_stored(owner):
    make_rule(owner)
    halt_all()
    assert event_receive(owner=owner, event=FIRE, now=NOW).status == 503
    assert not InboundEvent.objects.exists()


def test_beyond_the_hourly_limit_the_event_is_refused_until_the_fuse_blows(owner):
    rule = make_rule(owner, max_runs_per_hour=1)
    answers = [event_receive(owner=owner, event=FIRE, now=NOW) for _ in range(6)]
    assert [(answer.status, answer.code) for answer in answers] == [
        (200, "spawned"),
        *[(429, "rate")] * 3,
        *[(200, "no_match")] * 2,  # a paused trigger's rule is passed by
    ]
    rule.refresh_from_db()
    assert rule.pause_reason == "storm"


@pytest.mark.parametrize(
    "wrong",
    [
        {"severity": "fatal"},
        {"severity": ""},
        {"source": "s" * 121},
        {"event_type": 7},
        {"title": "t" * 301},
        {"data": ["no object"]},
        {"data": {"text": "x" * 64 * 1024}},
        {"data": {"a": json.loads("[" * 101 + "]" * 101)}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_event_that_makes_no_sense_is_refused(owner, wrong):
    make_rule(owner)
    with pytest.raises(Invalid):
        event_receive(owner=owner, event=replace(FIRE, **wrong), now=NOW)
    assert not InboundEvent.objects.exists()


def test_what_an_event_says_is_kept_without_secrets(owner):
    make_rule(owner)
    secret = "sk-ant-api03-" + "a" * 93 + "AA"
    event = replace(FIRE, title=f"key {secret}", data={"api_key": secret, "pair": (1, 2)})
    event_receive(owner=owner, event=event, now=NOW)
    [kept] = events()
    assert secret not in f"{kept.title}{kept.data}"
    assert kept.data["pair"] == [1, 2]


# --- What its run is called ---


def test_runs_of_one_rule_are_told_apart_by_their_events(owner):
    rule = make_rule(owner, name="Alarms", collection=make_collection(owner))
    told = [FIRE, replace(FIRE, title="", data={}), replace(FIRE, title="key=sk-ant-api03-" + "a" * 93 + "AA " * 40)]
    for event in told:
        event_receive(owner=owner, event=event, now=NOW)
    fire, untitled, long = purposes(list(rule.sessions.order_by("pk"))).values()
    assert (fire, untitled) == ("Alarms: Smoke in hall 4", "Alarms: plant alarm")
    assert "sk-ant" not in long
    assert len(long) <= len("Alarms: ") + EVENT_CHARS + 1
    found = AgentSession.objects.filter(titled("hall 4"))
    assert list(found) == [rule.sessions.order_by("pk").first()]


def test_a_run_that_was_asked_for_in_words_is_called_by_them(owner):
    make_rule(owner)
    event_receive(owner=owner, event=FIRE, now=NOW)
    session = AgentSession.objects.get()
    session.params["goal"] = "Find the smoke."
    assert purposes([session]) == {session.pk: "“Find the smoke.”"}
