"""Triggers, events and run-now through the API."""

from decimal import Decimal

import pytest

from agents.ledger.boundary import TO_RELEASE
from agents.models import AgentSession, Budget, InboundEvent, Installation, Project, Trigger
from agents.triggers.triggers import trigger_secret
from tests.factories import NOW, make_agent, make_starter, make_trigger

from .conftest import client_of
from .world import as_made, make_skill, make_world

pytestmark = pytest.mark.usefixtures("rolled_back")  # in place of django_db, which every test would begin anew
TRIGGERS = "/api/v1/triggers"
EVENTS = "/api/v1/triggers/events"
RUN = "/api/v1/run-now"


@pytest.fixture(scope="module")
def made(module_database):
    return make_world()


@pytest.fixture
def world(made, rolled_back):
    return as_made(made)


@pytest.fixture
def api(world):
    return client_of(world.owner)


def post(api, address, body=None):
    return api.post(address, body or {}, format="json")


def public(row):
    return str(row.public_id)


# --- triggers ---


def test_a_schedule_is_made_changed_and_deleted(api, world):
    body = {"kind": "schedule", "name": "Mondays", "cron": "0 6 * * 1", "zone": "Europe/Berlin", "max_cost_usd": "0.5"}
    refused = post(api, TRIGGERS, body)
    assert (refused.status_code, "playbook or a skill" in refused.json()["message"]) == (422, True)
    body |= {"playbook": public(world.rows["playbook"]), "collection": public(world.rows["collection"])}
    made = post(api, TRIGGERS, body)
    assert made.status_code == 201
    assert (made.json()["max_cost_usd"], made.json()["next_run_at"] is not None) == ("0.500000", True)
    address = f"{TRIGGERS}/{made.json()['id']}"
    assert api.patch(address, {"cron": "0 7 * * 1", "enabled": False}, format="json").json()["enabled"] is False
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404
    assert api.patch(address, {"name": "x"}, format="json").status_code == 404
    assert Trigger.objects.get(public_id=made.json()["id"]).deleted_at is not None


def test_invalid_trigger_is_refused(api):
    for body, names in [
        ({"kind": "schedule", "name": "x", "cron": "0 0 30 2 *"}, "30"),
        ({"kind": "schedule", "name": "x"}, ""),
        ({"kind": "watch", "name": "x"}, "collection"),
        ({"kind": "suggestion", "name": "x"}, "kind"),
        ({"kind": "manual"}, "name"),
        ({"kind": "manual", "name": "x", "max_cost_usd": "-1"}, "max_cost_usd"),
        ({"kind": "manual", "name": "x", "max_cost_usd": 0.5}, "max_cost_usd"),
        ({"kind": "manual", "name": "x", "max_cost_usd": True}, "max_cost_usd"),
        ({"kind": "manual", "name": "x", "max_cost_usd": "NaN"}, "max_cost_usd"),
        ({"kind": "manual", "name": "x", "max_cost_usd": "1e30"}, "max_cost_usd"),
        ({"kind": "manual", "name": "x", "max_runs_per_hour": 10**30}, ""),
        ({"kind": "manual", "name": "x", "analysis_mode": "deep"}, "single, agentic"),
        ({"kind": "manual", "name": "x", "loop": {"max_steps": "9"}}, "loop.max_steps: expected a whole number"),
        ({"kind": "manual", "name": "x", "guardrails": {"max_steps": 9}}, "guardrails.max_steps: expected one"),
        ({"kind": "manual", "name": "x", "loop": ["max_steps"]}, "loop"),
        ({"kind": "manual", "name": "x", "project": 7}, "project"),
        ({"kind": "manual", "name": "x", "project": "nonsense"}, "project"),
    ]:
        answer = post(api, TRIGGERS, body)
        assert answer.status_code in {400, 422}, (body, names)
        assert names in answer.content.decode(), (body, names)


def test_analysis_settings_are_set_and_cleared(api, world):
    think = {"analysis_mode": "agentic", "loop": {"max_steps": 9}, "guardrails": {"reserve_cost_fraction": 0.2}}
    given = {"kind": "manual", "name": "x", "playbook": public(world.rows["playbook"])}
    made = post(api, TRIGGERS, {**given, **think}).json()
    assert {name: made[name] for name in think} == think
    changed = api.patch(f"{TRIGGERS}/{made['id']}", {"loop": {}}, format="json").json()
    assert (changed["loop"], changed["guardrails"]) == ({}, think["guardrails"])


def test_the_project_of_a_trigger_is_set_kept_and_cleared(api, world):
    address = f"{TRIGGERS}/{public(world.rows['trigger'])}"
    project = public(world.rows["project"])
    assert api.patch(address, {"project": project}, format="json").json()["project"] == project
    assert api.patch(address, {"name": "Other"}, format="json").json()["project"] == project
    assert api.patch(address, {"project": None}, format="json").json()["project"] is None


def test_deleting_a_project_frees_its_triggers(api, world):
    address = f"{TRIGGERS}/{public(world.rows['trigger'])}"
    api.patch(address, {"project": public(world.rows["project"])}, format="json")
    assert api.delete(f"/api/v1/projects/{public(world.rows['project'])}").status_code == 204
    assert not Project.objects.exists()
    assert api.get(address).json()["project"] is None


def test_a_watch_keeps_its_collection(api, world):
    rows = {name: public(world.rows[name]) for name in ("collection", "playbook")}
    made = post(api, TRIGGERS, {"kind": "watch", "name": "W", **rows}).json()
    answer = api.patch(f"{TRIGGERS}/{made['id']}", {"collection": None}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_a_trigger_is_paused_and_resumed(api, world):
    address = f"{TRIGGERS}/{public(world.rows['trigger'])}"
    assert post(api, f"{address}/pause", {"reason": "holiday"}).json()["pause_reason"] == "holiday"
    assert api.get(f"{TRIGGERS}?paused=true").json()["count"] == 1
    assert api.get(f"{TRIGGERS}?paused=false").json()["count"] == 0
    assert post(api, f"{address}/resume").json()["paused_at"] is None


def test_a_rotated_secret_is_shown_once_and_is_the_new_one(api, world):
    trigger = world.rows["trigger"]
    before = trigger_secret(trigger)
    answer = post(api, f"{TRIGGERS}/{public(trigger)}/rotate-secret").json()
    trigger.refresh_from_db()
    assert answer["secret"] == trigger_secret(trigger) != before
    assert answer["generation"] == 2
    assert "whsec_" not in api.get(f"{TRIGGERS}/{public(trigger)}").content.decode()


def test_only_event_triggers_have_a_secret(api, world):
    manual = make_trigger(owner=world.owner)
    assert post(api, f"{TRIGGERS}/{public(manual)}/rotate-secret").status_code == 422


def test_caps_of_several_triggers_are_set_at_once(api, world):
    others = [make_trigger(owner=world.owner) for _ in range(2)]
    body = {"triggers": [public(row) for row in others], "max_cost_usd": "0.10"}
    assert {row["max_cost_usd"] for row in post(api, f"{TRIGGERS}/set-cap", body).json()} == {"0.100000"}
    assert post(api, f"{TRIGGERS}/set-cap", {**body, "max_cost_usd": "0"}).json()[0]["max_cost_usd"] == "0.000000"
    assert post(api, f"{TRIGGERS}/set-cap", {"triggers": [], "max_cost_usd": "1"}).status_code == 422
    assert post(api, f"{TRIGGERS}/set-cap", {"triggers": body["triggers"]}).status_code == 422


def test_set_cap_changes_nothing_with_a_foreign_trigger(api, world):
    mine, theirs = make_trigger(owner=world.owner), make_trigger()
    body = {"triggers": [public(mine), public(theirs)], "max_cost_usd": "0.10"}
    assert post(api, f"{TRIGGERS}/set-cap", body).status_code == 404
    mine.refresh_from_db()
    assert mine.max_cost_usd is None


def test_a_trigger_is_run_by_hand_under_its_caps(api, world):
    trigger = world.rows["trigger"]
    Trigger.objects.update(max_cost_usd=Decimal("0.25"))
    answer = post(api, f"{TRIGGERS}/{public(trigger)}/run")
    assert answer.status_code == 201
    assert (answer.json()["trigger"], answer.json()["max_cost_usd"]) == (public(trigger), "0.250000")


# --- run now ---


def test_run_now_starts_one_session(api, world):
    body = {"playbook": public(world.rows["playbook"]), "collection": public(world.rows["collection"])}
    answer = post(api, RUN, {**body, "max_cost_usd": "0.50", "emit_artifacts": True})
    assert answer.status_code == 201
    session = AgentSession.objects.get(public_id=answer.json()["id"])
    assert (session.owner, session.trigger_kind, session.max_cost_usd) == (world.owner, "manual", Decimal("0.5"))
    assert session.params["collection"] == body["collection"]
    assert session.params["emit_artifacts"] is True
    assert api.get(f"/api/v1/sessions/{answer.json()['id']}").json()["status"] == "queued"


def test_run_now_in_steps(api, world):
    body = {"playbook": public(world.rows["playbook"]), "collection": public(world.rows["collection"])}
    answer = post(api, RUN, {**body, "analysis_mode": "agentic"})
    assert AgentSession.objects.get(public_id=answer.json()["id"]).params["analysis_mode"] == "agentic"
    assert post(api, RUN, {**body, "analysis_mode": "deep"}).status_code == 422


def test_run_now_by_a_skill_with_the_default_cap(api, world, settings):
    answer = post(api, RUN, {"skill": public(world.rows["skill"]), "max_cost_usd": None, "query": "term"})
    assert answer.status_code == 201
    assert Decimal(answer.json()["max_cost_usd"]) == settings.LQOPS_DEFAULT_SESSION_CAP_USD


def test_run_now_towards_a_goal_needs_nothing_else(api):
    answer = post(api, RUN, {"goal": "Find every contract that ends this year"})
    assert answer.status_code == 201
    given = api.get(f"/api/v1/sessions/{answer.json()['id']}").json()["params"]
    assert given == {"goal": "Find every contract that ends this year", "analysis_mode": "agentic"}


def test_run_now_needs_one_playbook_or_skill_or_a_goal(api, world):
    both = {"playbook": public(world.rows["playbook"]), "skill": public(world.rows["skill"])}
    for body in (
        {},
        both,
        {**both, "goal": "Find them"},
        {"goal": ""},
        {"playbook": None},
        {"collection": public(world.rows["collection"])},
    ):
        answer = post(api, RUN, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert AgentSession.objects.filter(status="queued").count() == 0


def test_run_now_while_all_work_is_halted_is_a_conflict(api, world):
    from agents.sessions.halts import halt_all_work

    halt_all_work(by=world.owner, reason="incident", now=NOW)
    answer = post(api, RUN, {"playbook": public(world.rows["playbook"]), "query": "term"})
    assert (answer.status_code, answer.json()["code"]) == (409, "session_halted")
    assert answer.json()["message"] == (
        f"All work is halted by {world.owner} since 2026-03-14 09:26 UTC: incident. {TO_RELEASE}"
    )


def test_run_now_takes_a_playbook_or_a_skill_alone(api, world):
    for name in ("playbook", "skill"):
        answer = post(api, RUN, {name: public(world.rows[name])})
        assert (answer.status_code, answer.json()["status"]) == (201, "queued")


def test_unknown_severity_error_lists_the_known_ones(api):
    for address, name in [(EVENTS, "severity"), (TRIGGERS, "min_severity")]:
        answer = post(api, address, {name: "high"})
        assert answer.json()["detail"][name] == ['"high" is unknown. Known: info, caution, warning, critical.'], (
            address,
            name,
        )


# --- events ---


def test_event_starts_the_best_matching_trigger(api, world):
    closer = make_trigger(owner=world.owner, kind="event", source="monitor", event_type="uploaded")
    answer = post(api, EVENTS, {"source": "monitor", "event_type": "uploaded", "title": "New", "data": {"n": 1}}).json()
    assert (answer["code"], answer["trigger"], answer["score"]) == ("spawned", public(closer), 15)
    [row] = api.get(EVENTS).json()["results"][:1]
    assert (row["outcome"], row["session"], row["trigger"]) == ("spawned", answer["session"], answer["trigger"])
    assert api.get(f"{EVENTS}/{row['id']}").json()["data"] == {"n": 1}
    assert api.get(f"{EVENTS}?outcome=no_match").json()["count"] == 1


def test_event_without_a_match_is_stored(api, world):
    answer = post(api, EVENTS, {"source": "nobody"})
    assert (answer.status_code, answer.json()["code"]) == (200, "no_match")
    assert InboundEvent.objects.filter(source="nobody", outcome="no_match").count() == 1


def test_a_dry_run_spawns_and_stores_nothing(api, world):
    before = InboundEvent.objects.count(), AgentSession.objects.count()
    answer = post(api, f"{EVENTS}/dry-run", {"source": "monitor"}).json()
    assert (answer["code"], answer["trigger"], answer["session"]) == (
        "would_spawn", public(world.rows["trigger"]), None,
    )  # fmt: skip
    assert (InboundEvent.objects.count(), AgentSession.objects.count()) == before


def test_event_reaches_only_own_triggers(world):
    stranger = client_of(make_starter())
    assert post(stranger, EVENTS, {"source": "monitor"}).json()["code"] == "no_match"
    assert post(stranger, EVENTS, {"target_agent": world.rows["agent"].name}).status_code == 404


def test_target_agent_gets_the_event_without_a_match(api, world):
    agent = make_agent(owner=world.owner)
    theirs = make_trigger(owner=world.owner, kind="event", agent=agent, source="elsewhere")
    answer = post(api, EVENTS, {"source": "monitor", "target_agent": agent.name}).json()
    assert answer["trigger"] == public(theirs)


def test_full_trigger_returns_retry_after(api, world):
    Trigger.objects.update(max_runs_per_hour=1)
    assert post(api, EVENTS, {"source": "monitor"}).json()["code"] == "spawned"
    answer = post(api, EVENTS, {"source": "monitor"})
    assert (answer.status_code, answer.json()["code"]) == (429, "rate")
    assert int(answer["Retry-After"]) > 60
    assert answer.json().keys() == {"code", "message", "detail", "request_id"}


def test_invalid_event_is_refused(api):
    for body in [
        {"severity": "fatal"},
        {"data": []},
        {"data": {"x": "y" * 70_000}},
        {"source": "x" * 121},
        {"title": "x" * 301},
        {"owner": 1},
    ]:
        answer = post(api, EVENTS, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), body


# --- costs and health ---


def test_costs_of_today_and_their_caps(api, world):
    from agents.conf import clock

    trigger, today = world.rows["trigger"], clock().date()
    Trigger.objects.filter(pk=trigger.pk).update(max_cost_per_day_usd=Decimal(3))
    Budget.objects.create(
        scope="trigger", subject_id=trigger.pk, day=today, charged_usd=Decimal("0.25"), reserved_usd=Decimal("0.5")
    )
    Budget.objects.create(scope="installation", day=today, cap_usd=20, charged_usd=Decimal(7))
    Budget.objects.create(scope="trigger", subject_id=make_trigger().pk, day=today, charged_usd=Decimal(1))
    found = api.get("/api/v1/costs").json()
    [mine] = found["triggers"]
    assert mine == {
        "id": public(trigger), "name": "Upload", "spent_usd": "0.250000", "charged_usd": "0.250000",
        "reserved_usd": "0.500000", "actual_usd": "0.000000", "cap_usd": "3.000000", "session_cap_usd": None,
    }  # fmt: skip
    assert found["installation"]["charged_usd"] == "7.000000"
    assert Decimal(found["installation"]["cap_usd"]) == Installation.objects.get().max_cost_per_day_usd
    assert found["agents"][0]["charged_usd"] == "0.000000"


def test_health_counts_own_rows(api, world):
    make_world()
    found = api.get("/api/v1/health").json()
    assert found == {
        "ok": True, "halted": False, "paused": False, "suspended_models": [], "sessions": {"running": 1, "waiting": 1},
        "approvals_pending": 1, "outcomes_unknown": 0, "notifications_unread": 1,
    }  # fmt: skip


def test_health_says_that_all_work_is_halted(api, world):
    from agents.sessions.halts import halt_all_work

    halt_all_work(by=None, reason="", now=NOW)
    assert api.get("/api/v1/health").json()["ok"] is False


def test_skills_have_no_file_paths(api):
    make_skill("off", enabled=False)
    found = api.get("/api/v1/skills").json()["results"]
    assert [row["name"] for row in found] == ["nda-review", "off"]
    assert [row["name"] for row in api.get("/api/v1/skills?enabled=true").json()["results"]] == ["nda-review"]
    detail = api.get(f"/api/v1/skills/{found[0]['id']}").json()
    assert detail["body"] == "Read it."
    assert "folder" not in detail
