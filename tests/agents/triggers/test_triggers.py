"""Triggers as people make and change them: what is refused, whose things they may bind, and what the record says."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission

from agents.enums import BudgetScope, TriggerKind
from agents.exceptions import Invalid, NotAllowed, NotFound
from agents.ledger.budgets import budgets_lock, caps_set
from agents.models import Budget, Trigger
from agents.triggers.triggers import (
    trigger_create,
    trigger_delete,
    trigger_edit,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    triggers_set_cap,
)
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_project, make_session, make_trigger, make_user

from .rows import make_collection, make_playbook, make_skill, rows_of

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)


def make(kind=TriggerKind.EVENT, owner=None, by=None, **fields):
    owner = owner or make_user()
    if not fields.keys() & {"playbook", "skill"}:
        fields["skill"] = make_skill()
    return trigger_create(owner=owner, kind=kind, name="t", by=by or owner, now=NOW, **fields)


def schedule(**fields):
    goes_by = {"skill": make_skill(), "query": "late fees"}
    return make(TriggerKind.SCHEDULE, **{"cron": "0 6 * * *", **goes_by, **fields})


# --- Made ---


def test_a_watch_is_made_with_everything_it_goes_by():
    owner = make_user()
    bound = {
        "agent": make_agent(owner=owner),
        "project": make_project(owner),
        "playbook": make_playbook(owner),
        "collection": make_collection(owner),
        "skill": make_skill(),
    }
    watch = make(TriggerKind.WATCH, owner, max_cost_usd=Decimal("0.25"), emit_artifacts=True, **bound)

    row = Trigger.objects.get(pk=watch.pk)
    assert {name: getattr(row, name) for name in bound} == bound
    assert (row.max_cost_usd, row.emit_artifacts, row.edited_by, row.next_run_at) == (
        Decimal("0.25"),
        True,
        owner,
        None,
    )
    [event] = AuditEvent.objects.filter(kind="autonomous_trigger.created")
    assert (event.actor, event.subject) == (f"user:{owner.pk}", f"trigger:{row.public_id}")
    assert event.details == {
        "trigger_id": str(row.public_id),
        "kind": "watch",
        "cap_usd": "0.25",
        "agent_id": str(bound["agent"].public_id),
    }


def test_a_schedule_knows_when_it_is_due():
    assert schedule(zone="Europe/Paris").next_run_at == datetime(2026, 3, 15, 5, tzinfo=UTC)


def test_a_watch_needs_a_collection_and_a_schedule_needs_a_time():
    with pytest.raises(Invalid, match="collection"):
        make(TriggerKind.WATCH)
    with pytest.raises(Invalid, match="fields"):
        make(TriggerKind.SCHEDULE)


@pytest.mark.parametrize("kind", [TriggerKind.WATCH, TriggerKind.EVENT, TriggerKind.MANUAL])
def test_a_trigger_that_checks_against_nothing_is_refused(kind):
    owner = make_user()
    reads = {"collection": make_collection(owner)}
    with pytest.raises(Invalid, match="A trigger needs a playbook or a skill to check against"):
        make(kind, owner, skill=None, **reads)
    row = make_trigger(owner=owner, kind=kind, paused_at=NOW, **reads)
    with pytest.raises(Invalid, match="needs a playbook or a skill"):
        trigger_edit(trigger=row, by=owner, now=NOW, name="new")
    with pytest.raises(Invalid, match="needs a playbook or a skill"):
        trigger_resume(trigger=row, by=owner, now=NOW)
    assert trigger_edit(trigger=row, by=owner, now=NOW, skill=make_skill()).skill


def test_a_schedule_needs_something_to_go_by_and_something_to_read():
    owner = make_user()
    for missing, match in ({"skill": None}, "playbook or a skill"), ({"query": ""}, "collection or a query"):
        with pytest.raises(Invalid, match=match):
            schedule(**missing)
    assert not Trigger.objects.exists()
    made = schedule(owner=owner, skill=None, query="", playbook=make_playbook(owner), collection=make_collection(owner))
    with pytest.raises(Invalid, match="playbook or a skill"):
        trigger_edit(trigger=made, by=owner, now=LATER, playbook=None)


@pytest.mark.parametrize(
    "fields",
    [
        {"cron": "0 0 30 2 *"},
        {"cron": ""},
        {"zone": "Mars/Olympus"},
        {"catch_up_minutes": -1},
        {"catch_up_minutes": True},
        {"max_cost_usd": Decimal("-0.01")},
        {"max_cost_usd": Decimal("0.00001")},
        {"max_cost_usd": Decimal("NaN")},
        {"max_cost_usd": 0.5},
        {"max_cost_per_day_usd": Decimal("Infinity")},
        {"max_runs_per_hour": 0},
        {"pause_after": "3"},
        {"enabled": "yes"},
        {"query": "q" * 501},
        {"query": 7},
        {"agent": "Ada"},
        {"skill": "review"},
        {"paused_at": NOW},
        {"owner_id": 1},
        {"source": "plant"},  # of no use to a schedule
        {"analysis_mode": "deep"},
        {"loop": {"max_steps": -1}},
        {"loop": ["max_steps"]},
        {"guardrails": {"reserve_cost_fraction": 2}},
    ],
)
def test_a_field_that_makes_no_sense_is_refused(fields):
    with pytest.raises(Invalid):
        schedule(**fields)
    assert not Trigger.objects.exists()
    assert not rows_of("autonomous_trigger.created")


def test_an_event_trigger_is_made_with_its_rule_and_its_limits():
    rule = {"source": "plant", "event_type": "*", "category": "safety", "min_severity": "warning"}
    limits = {"max_runs_per_hour": 5, "pause_after": 0, "max_cost_per_day_usd": Decimal(2)}
    row = Trigger.objects.get(pk=make(**rule, **limits).pk)
    assert {name: getattr(row, name) for name in (*rule, *limits)} == {**rule, **limits}


def test_a_severity_that_does_not_exist_is_refused():
    with pytest.raises(Invalid, match="caution"):
        make(min_severity="fatal")


@pytest.mark.parametrize("kind", ["suggestion", "sensor", ""])
def test_a_kind_that_spawns_nothing_is_refused(kind):
    with pytest.raises(Invalid, match="kind"):
        make(kind)


@pytest.mark.parametrize("name", ["", "  ", "\u200b", "n" * 121, None])
def test_a_name_is_one_line_that_can_be_seen(name):
    owner = make_user()
    with pytest.raises(Invalid):
        trigger_create(owner=owner, kind="event", name=name, by=owner, now=NOW)


def test_text_is_kept_as_one_line_without_secrets():
    made = make(source="plant\n\u202ewest", query="key sk-ant-api03-" + "a" * 93 + "AA")
    assert made.source == "plant west"
    assert "sk-ant" not in made.query


def test_what_another_kind_needs_may_be_left_as_it_is():
    made = make(cron="", zone="UTC", catch_up_minutes=1440)
    assert (made.cron, made.next_run_at) == ("", None)


def test_a_skill_that_is_switched_off_cannot_be_bound():
    with pytest.raises(Invalid, match="switched off"):
        make(skill=make_skill(enabled=False))


def test_caps_zero_and_none_are_kept_apart():
    assert make(max_cost_usd=Decimal(0)).max_cost_usd == 0
    assert make().max_cost_usd is None


# --- Whose things ---

BINDINGS = {"project": make_project, "collection": make_collection, "playbook": make_playbook}


@pytest.mark.parametrize("name", [*BINDINGS, "agent"])
@pytest.mark.parametrize("kind", ["watch", "schedule", "event"])
def test_what_is_not_the_owner_s_cannot_be_bound_at_creation(name, kind):
    owner, stranger = make_user(), make_user()
    strange = make_agent(owner=stranger) if name == "agent" else BINDINGS[name](stranger)
    fields = {"collection": make_collection(owner), name: strange}
    with pytest.raises(NotFound):
        make(kind, owner, **({"cron": "0 6 * * *"} if kind == "schedule" else {}), **fields)
    assert not Trigger.objects.exists()


@pytest.mark.parametrize("name", [*BINDINGS, "agent"])
def test_what_is_not_the_owner_s_cannot_be_bound_by_an_edit(name):
    made = schedule()
    stranger = make_user(is_superuser=True)
    strange = make_agent(owner=stranger) if name == "agent" else BINDINGS[name](stranger)
    with pytest.raises(NotFound):
        trigger_edit(trigger=made, by=stranger, now=LATER, **{name: strange})
    made.refresh_from_db()
    assert getattr(made, name) is None


def test_what_was_deleted_cannot_be_bound():
    owner = make_user()
    with pytest.raises(NotFound):
        make(owner=owner, playbook=make_playbook(owner, deleted_at=NOW))
    with pytest.raises(NotFound):
        make(TriggerKind.WATCH, owner, collection=make_collection(owner, deleted_at=NOW))


def test_a_stranger_finds_no_trigger_to_change():
    made, stranger = make(), make_user()
    for act in (
        lambda: trigger_edit(trigger=made, by=stranger, now=LATER, name="mine"),
        lambda: trigger_delete(trigger=made, by=stranger, now=LATER),
        lambda: trigger_pause(trigger=made, by=stranger, now=LATER),
        lambda: trigger_resume(trigger=made, by=stranger, now=LATER),
        lambda: trigger_rotate_secret(trigger=made, by=stranger, now=LATER),
        lambda: triggers_set_cap(triggers=[made], cap=None, by=stranger, now=LATER),
        lambda: make(owner=made.owner, by=stranger),
    ):
        with pytest.raises(NotFound):
            act()


def test_whoever_holds_the_permission_may_change_it():
    made, operator = make(), make_user()
    operator.user_permissions.add(Permission.objects.get(codename="change_trigger"))
    trigger_edit(trigger=made, by=operator, now=LATER, name="new name")
    made.refresh_from_db()
    assert (made.name, made.edited_by) == ("new name", operator)


# --- Changed ---


def test_an_edit_records_the_names_of_what_it_changed():
    made = schedule(query="old")
    trigger_edit(trigger=made, by=made.owner, now=LATER, query="new", name="t", emit_artifacts=True)
    assert rows_of("autonomous_trigger.edited", made) == [
        {"trigger_id": str(made.public_id), "fields": ["emit_artifacts", "query"]}
    ]


def test_an_edit_that_changes_nothing_leaves_no_row():
    made = schedule(project=None, max_cost_usd=Decimal("0.50"))
    trigger_edit(trigger=made, by=made.owner, now=LATER, name="t", max_cost_usd=Decimal("0.5"))
    assert rows_of("autonomous_trigger.edited") == []


def test_an_explicit_none_clears_a_binding():
    owner = make_user()
    made = schedule(owner=owner, project=make_project(owner))
    assert trigger_edit(trigger=made, by=owner, now=LATER, project=None).project is None


def test_a_deleted_project_leaves_the_trigger_unbound():
    owner = make_user()
    made = schedule(owner=owner, project=make_project(owner))
    made.project.delete()
    made.refresh_from_db()
    assert made.project is None


def test_a_watch_keeps_its_collection():
    owner = make_user()
    watch = make(TriggerKind.WATCH, owner, collection=make_collection(owner))
    for other in (make_collection(owner), None):
        with pytest.raises(Invalid, match="another watch"):
            trigger_edit(trigger=watch, by=owner, now=LATER, collection=other)
    trigger_edit(trigger=watch, by=owner, now=LATER, collection=watch.collection, name="same")


def test_a_new_time_is_worked_out_when_it_is_saved():
    made = schedule()
    assert trigger_edit(trigger=made, by=None, now=LATER, cron="0 12 * * *").next_run_at.hour == 12
    assert trigger_edit(trigger=made, by=None, now=LATER, zone="Asia/Tokyo").next_run_at.hour == 3
    with pytest.raises(Invalid):
        trigger_edit(trigger=made, by=None, now=LATER, zone="Nowhere")
    made.refresh_from_db()
    assert made.zone == "Asia/Tokyo"


def test_an_edit_of_something_else_does_not_move_what_is_due():
    made = schedule()
    assert trigger_edit(trigger=made, by=None, now=NOW + timedelta(days=3), name="n").next_run_at == made.next_run_at


def test_a_new_cap_stands_in_the_record_with_the_old_one():
    made = make(max_cost_usd=Decimal("0.50"))
    trigger_edit(trigger=made, by=made.owner, now=LATER, max_cost_usd=Decimal(0))
    [row] = rows_of("autonomous_trigger.cap_set", made)
    assert (Decimal(row["cap_usd"]), Decimal(row["old_cap_usd"])) == (0, Decimal("0.5"))


def test_a_new_daily_cap_holds_for_today_s_books():
    made = make(max_cost_per_day_usd=Decimal(5))
    budgets_lock(session_id=make_session(trigger=made).pk, now=NOW)
    trigger_edit(trigger=made, by=made.owner, now=LATER, max_cost_per_day_usd=Decimal(1))
    assert Budget.objects.get(scope=BudgetScope.TRIGGER, subject_id=made.pk).cap_usd == 1
    made.refresh_from_db()
    assert made.max_cost_per_day_usd == 1
    assert Decimal(rows_of("budget.cap_set")[0]["old_cap_usd"]) == 5


def test_caps_of_several_triggers_are_set_together():
    owner = make_user()
    made = [make(owner=owner), make(owner=owner, max_cost_usd=Decimal(1)), make(owner=owner, max_cost_usd=Decimal(2))]
    rows = triggers_set_cap(triggers=[*made, made[0]], cap=Decimal(1), by=owner, now=LATER)
    assert [row.max_cost_usd for row in rows] == [1, 1, 1]
    assert [row["old_cap_usd"] for row in rows_of("autonomous_trigger.cap_set")] == [None, "2.000000"]


def test_a_cap_that_one_of_them_may_not_have_is_set_for_none():
    mine, other = make(), make()
    with pytest.raises(NotFound):
        triggers_set_cap(triggers=[mine, other], cap=Decimal(1), by=mine.owner, now=LATER)
    with pytest.raises(Invalid):
        triggers_set_cap(triggers=[mine], cap=Decimal("0.00001"), by=mine.owner, now=LATER)
    mine.refresh_from_db()
    assert mine.max_cost_usd is None


@pytest.mark.parametrize("name", ["project", "agent"])
@pytest.mark.parametrize(
    ("old", "new", "loosens"),
    [
        ("5", None, True),
        ("5", "6", True),
        ("5", "none", True),
        ("5", "4", False),
        (None, None, False),
        (None, "1", False),
    ],
)
def test_leaving_the_caps_of_a_project_or_agent_loosens(name, old, new, loosens):
    owner = make_user()
    make = {"project": make_project, "agent": make_agent}[name]

    def capped(cap):
        row = make(owner=owner)
        if cap not in {None, "none"}:
            caps_set(subject=row, by=None, now=NOW, max_cost_per_month_usd=Decimal(cap))
        return row

    trigger = make_trigger(owner=owner, playbook=make_playbook(owner), **{name: capped(old)})
    other = None if new is None else capped(new)
    if loosens:
        with pytest.raises(NotAllowed, match=f"of the {name}"):
            trigger_edit(trigger=trigger, by=owner, now=NOW, **{name: other})
    else:
        trigger_edit(trigger=trigger, by=owner, now=NOW, **{name: other})
    trigger_edit(trigger=trigger, by=None, now=NOW, **{name: other})
    trigger.refresh_from_db()
    assert getattr(trigger, name) == other
