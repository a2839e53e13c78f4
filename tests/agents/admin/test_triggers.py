"""Triggers on the admin pages: caps in the list, forms by kind, secrets shown once."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.urls import reverse

from agents.conf import clock
from agents.enums import BudgetScope, TriggerKind
from agents.models import Agent, AgentSession, Budget, Collection, Playbook, Trigger
from agents.triggers.triggers import trigger_secret
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, make_playbook, page, sign_in, text_of
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

LIST = "admin:agents_trigger_changelist"
DEFAULTS = {
    **{name: str(Trigger._meta.get_field(name).default) for name in ("max_runs_per_hour", "pause_after")},
    "analysis_mode": "single",
    "enabled": "on",
    "has_settings": "1",
}


def add(client, kind, owner, **given):
    address = f"{page(Trigger, 'add')}?kind={kind}&owner={owner.pk}"
    return client.post(address, {**DEFAULTS, "name": "T", **given})


def save_list(client, rows, caps):
    given = {"form-TOTAL_FORMS": len(rows), "form-INITIAL_FORMS": len(rows), "_save": "Save"}
    for number, (row, cap) in enumerate(zip(rows, caps, strict=True)):
        given |= {f"form-{number}-id": row.pk, f"form-{number}-max_cost_usd": cap}
        given[f"initial-form-{number}-max_cost_usd"] = "" if row.max_cost_usd is None else str(row.max_cost_usd)
    return client.post(reverse(LIST), given, follow=True)


# --- The list ---


def test_list_shows_cost_next_run_and_pause_reason(client):
    owner = sign_in(client)
    now = clock()
    trigger = make_trigger(
        owner=owner,
        name="Nightly",
        kind=TriggerKind.SCHEDULE,
        next_run_at=now + timedelta(hours=3, minutes=1),
        playbook=make_playbook(owner, "NDA"),
        collection=Collection.objects.create(owner=owner, name="Inbox"),
    )
    make_session(owner=owner, trigger=trigger, cost_total_usd="0.75")
    Budget.objects.create(scope=BudgetScope.TRIGGER, subject_id=trigger.pk, day=now.date(), charged_usd="0.25")
    later = {"kind": TriggerKind.SCHEDULE, "next_run_at": now + timedelta(days=4, minutes=1)}
    make_trigger(name="Stopped", paused_at=now, pause_reason="failing_runs", **later)
    off = make_trigger(name="Off", enabled=False, **later)

    found = text_of(client.get(reverse(LIST)))

    for words in (
        "NDA on Inbox",
        "$0.25 today",
        "$0.25 this month",
        "next: in 3 hours",
        "paused: failing runs",
        "disabled",
        "$5.00 (default)",
    ):
        assert words in found, words
    assert "in 4 days" not in found
    assert "Next run" not in text_of(client.get(page(Trigger, "change", off.pk)))
    assert "Next run" in text_of(client.get(page(Trigger, "change", trigger.pk)))


def test_cap_is_set_in_the_list(client):
    user = sign_in(client, "operator")
    rows = [make_trigger(name="a", max_cost_usd="1"), make_trigger(name="b")]
    before = last_event()

    save_list(client, rows, ["0.5", ""])

    rows[0].refresh_from_db()
    assert (rows[0].max_cost_usd, rows[0].edited_by) == (Decimal("0.5"), user)
    assert kinds_since(before) == ["autonomous_trigger.cap_set"]
    assert AuditEvent.objects.latest("pk").details["cap_usd"] == "0.5"


def test_cap_that_somebody_else_set_meanwhile_stays_when_the_list_is_saved(client):
    sign_in(client, "admin")
    rows = [make_trigger(name="a", max_cost_usd="1"), make_trigger(name="b", max_cost_usd="1")]
    assert 'name="initial-form-0-max_cost_usd" value="1' in text_of(client.get(reverse(LIST)))
    Trigger.objects.filter(pk=rows[0].pk).update(max_cost_usd="0.2")

    save_list(client, rows, ["1", "0.5"])

    assert [Trigger.objects.get(pk=row.pk).max_cost_usd for row in rows] == [Decimal("0.2"), Decimal("0.5")]


def test_higher_cap_in_the_list_is_for_admins(client):
    sign_in(client, "operator")
    row = make_trigger(name="a", max_cost_usd="1")

    assert "agents.loosen" in text_of(save_list(client, [row], ["2.5"]))
    row.refresh_from_db()
    assert row.max_cost_usd == 1

    sign_in(client, "admin")
    save_list(client, [row], ["2.5"])
    row.refresh_from_db()
    assert row.max_cost_usd == Decimal("2.5")


def test_empty_cap_in_the_list_is_the_default(client):
    sign_in(client)
    row = make_trigger(max_cost_usd="1")

    save_list(client, [row], [""])

    row.refresh_from_db()
    assert row.max_cost_usd is None


@pytest.mark.parametrize("cap", ["-1", "NaN", "1.23456", "many"])
def test_invalid_cap_is_refused_in_the_list(client, cap):
    sign_in(client)
    row = make_trigger(max_cost_usd="1")

    answer = save_list(client, [row], [cap])

    assert answer.context["cl"].formset.errors[0]["max_cost_usd"]
    row.refresh_from_db()
    assert row.max_cost_usd == 1


def test_refused_cap_in_the_list_is_reported(client):
    sign_in(client)
    row = make_trigger(max_cost_usd="1", deleted_at=clock())
    given = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "_save": "Save", "form-0-id": row.pk}

    answer = client.post(f"{reverse(LIST)}?use=all", {**given, "form-0-max_cost_usd": "2"}, follow=True)

    assert "There is no such trigger." in text_of(answer)
    row.refresh_from_db()
    assert row.max_cost_usd == 1


@pytest.mark.parametrize(("other", "shown"), [("0.75", "0.75"), ("0.25", None)])
def test_form_for_several_triggers_shows_a_cap_that_all_have(client, other, shown):
    user = sign_in(client)
    rows = [make_trigger(owner=user, max_cost_usd=cap) for cap in ("0.75", other)]
    chosen = {"action": "set_cap", "_selected_action": [row.pk for row in rows]}

    form = client.post(page(Trigger, "changelist"), chosen, follow=True).context["form"]

    assert form["cap"].value() == (Decimal(shown) if shown else None)


def test_viewer_cannot_set_caps(client):
    sign_in(client, "viewer")
    row = make_trigger(max_cost_usd="1")

    assert "form-0-max_cost_usd" not in text_of(client.get(reverse(LIST)))
    assert save_list(client, [row], ["9"]).status_code == 403


def test_cap_of_several_triggers_is_set_at_once(client):
    sign_in(client, "operator")
    rows = [make_trigger(), make_trigger(), make_trigger(max_cost_usd="9")]
    chosen = {"action": "set_cap", "_selected_action": [row.pk for row in rows]}
    before = last_event()

    assert "Applies to new runs." in text_of(client.post(reverse(LIST), chosen))
    answer = client.post(reverse(LIST), {**chosen, "confirmed": "1", "cap": "0.75"}, follow=True)

    assert "Cap of 3 triggers set to $0.75 per run." in text_of(answer)
    assert {row.max_cost_usd for row in Trigger.objects.all()} == {Decimal("0.75")}
    assert kinds_since(before) == ["autonomous_trigger.cap_set"] * 3


def test_cap_form_shows_the_cap_and_what_an_empty_field_means(client, settings):
    settings.LQOPS_DEFAULT_SESSION_CAP_USD = "5"
    sign_in(client)
    row = make_trigger(max_cost_usd="0.1")
    form = page(Trigger, "act", row.pk, "set_cap")

    shown = text_of(client.get(form))
    answer = client.post(form, {"confirmed": "1", "cap": ""}, follow=True)

    assert 'value="0.1' in shown
    assert "Empty: the installation&#x27;s default ($5.00)." in shown
    assert "Cap of 1 trigger set to $5.00 (default) per run." in text_of(answer)


def test_deleted_triggers_are_hidden_and_can_be_found(client):
    sign_in(client)
    row = make_trigger(name="Long gone", deleted_at=clock())

    assert "Long gone" not in text_of(client.get(reverse(LIST)))
    assert "Long gone" in text_of(client.get(reverse(LIST), {"use": "filled"}))
    shown = text_of(client.get(page(Trigger, "change", row.pk)))
    assert "deleted" in shown
    assert "Save</button>" not in shown
    assert client.post(page(Trigger, "change", row.pk), {"name": "x"}).status_code == 403


# --- Adding and changing ---


def test_adding_asks_first_for_kind_and_owner(client):
    sign_in(client, "operator")

    found = text_of(client.get(page(Trigger, "add")))

    assert all(kind in found for kind in ("watch", "schedule", "event", "manual"))
    assert "suggestion" not in found


def test_viewer_cannot_add_triggers(client):
    sign_in(client, "viewer")

    assert client.get(page(Trigger, "add")).status_code == 403


def test_each_kind_has_its_own_fields_and_choices_of_its_owner(client):
    sign_in(client, "operator")
    owner = make_user()
    make_playbook(owner, "Theirs")
    make_playbook(make_user(), "Somebody else's")
    fields = {}
    for kind in ("watch", "schedule", "event", "manual"):
        answer = client.get(page(Trigger, "add"), {"kind": kind, "owner": owner.pk})
        fields[kind] = set(answer.context["form"].fields)
        assert "Theirs" in text_of(answer)
        assert "Somebody else" not in text_of(answer)

    assert {"cron", "zone"} <= fields["schedule"]
    assert "cron" not in fields["watch"] | fields["event"] | fields["manual"]
    assert "source" in fields["event"]


def test_watch_is_added_for_its_owner(client):
    user = sign_in(client, "operator")
    owner = make_user()
    collection, playbook = Collection.objects.create(owner=owner, name="Inbox"), make_playbook(owner)
    before = last_event()

    answer = add(client, "watch", owner, collection=collection.pk, playbook=playbook.pk, max_cost_usd="0.5")

    trigger = Trigger.objects.get()
    assert answer.url == page(Trigger, "change", trigger.pk)
    assert (trigger.owner, trigger.edited_by, trigger.collection) == (owner, user, collection)
    assert kinds_since(before) == ["autonomous_trigger.created"]


def test_schedule_has_a_next_run(client):
    owner = sign_in(client)

    given = {"playbook": make_playbook(owner).pk, "query": "late fees"}
    add(client, "schedule", owner, cron="0 6 * * 1", zone="Europe/Berlin", catch_up_minutes="60", **given)

    assert Trigger.objects.get().next_run_at is not None


@pytest.mark.parametrize(
    ("kind", "given", "field"),
    [
        ("watch", {}, "collection"),
        ("schedule", {"cron": "not a cron", "zone": "UTC", "catch_up_minutes": "0"}, "cron"),
        ("schedule", {"cron": "0 6 * * 1", "zone": "Mars/Base", "catch_up_minutes": "0"}, "zone"),
        ("manual", {"name": " "}, "name"),
        ("manual", {"max_runs_per_hour": "0"}, "max_runs_per_hour"),
        ("manual", {"loop_max_steps": "-1"}, "loop_max_steps"),
        ("manual", {"loop_context_strategy": "guess"}, "loop_context_strategy"),
        ("manual", {"guardrails_reserve_cost_fraction": "1.5"}, "guardrails_reserve_cost_fraction"),
        ("manual", {"max_cost_usd": "-1"}, "max_cost_usd"),
    ],
)
def test_refusal_is_shown_at_its_field(client, kind, given, field):
    owner = sign_in(client)

    answer = add(client, kind, owner, **given)

    assert answer.context["form"].errors.get(field), answer.context["form"].errors
    assert not Trigger.objects.exists()


def test_errors_of_cron_and_zone_are_shown_together(client):
    answer = add(client, "schedule", sign_in(client), cron="every day", zone="Mars/Base", catch_up_minutes="0")

    faults = answer.context["form"].errors
    assert "it needs five" in str(faults["cron"])
    assert "is no time zone" in str(faults["zone"])


def test_change_is_recorded(client):
    owner = sign_in(client)
    playbook = make_playbook(owner, "NDA")
    row = make_trigger(owner=owner, name="old", playbook=playbook)
    before = last_event()

    given = {"name": "new", "playbook": playbook.pk, "agent": make_agent(owner=owner).pk}
    client.post(page(Trigger, "change", row.pk), {**DEFAULTS, **given})

    row.refresh_from_db()
    assert row.name == "new"
    assert kinds_since(before) == ["autonomous_trigger.edited"]
    assert AuditEvent.objects.latest("pk").details["fields"] == ["agent", "name"]


def test_analysis_is_set_in_the_form(client):
    owner = sign_in(client)
    think = {
        "analysis_mode": "agentic",
        "loop_max_steps": "9",
        "loop_streaming": "no",
        "guardrails_reserve_tokens": "64",
        "guardrails_reserve_cost_fraction": "0.25",
        "playbook": make_playbook(owner, "NDA").pk,
    }

    add(client, "manual", owner, **think)

    row = Trigger.objects.get()
    kept = {"reserve_tokens": 64, "reserve_cost_fraction": 0.25}
    assert (row.analysis_mode, row.loop, row.guardrails) == ("agentic", {"max_steps": 9, "streaming": False}, kept)
    form = client.get(page(Trigger, "change", row.pk)).context["form"]
    assert (form["loop_max_steps"].value(), form["loop_streaming"].value(), form["loop_timeout"].value()) == (
        9,
        "no",
        None,
    )

    before = last_event()
    client.post(page(Trigger, "change", row.pk), {**DEFAULTS, "name": "T", **think})
    assert kinds_since(before) == []
    client.post(page(Trigger, "change", row.pk), {**DEFAULTS, "name": "T", **think, "loop_max_steps": ""})
    row.refresh_from_db()
    assert (row.loop, row.guardrails) == ({"streaming": False}, kept)
    assert AuditEvent.objects.latest("pk").details["fields"] == ["loop"]


def test_page_from_before_the_upgrade_leaves_settings_as_they_are(client):
    owner = sign_in(client)
    kept = {"loop": {"max_steps": 9, "streaming": False}, "guardrails": {"reserve_cost_fraction": 0.25}}
    row = make_trigger(owner=owner, name="old", playbook=make_playbook(owner, "NDA"), **kept)
    posted = {**DEFAULTS, "name": "new", "playbook": row.playbook.pk, "loop": "{}", "guardrails": "{}"}
    del posted["has_settings"]

    refused = client.post(page(Trigger, "change", row.pk), {**posted, "name": ""}).context["form"]
    assert (refused["loop_max_steps"].value(), refused["has_settings"].value()) == (9, "1")
    client.post(page(Trigger, "change", row.pk), posted)

    row.refresh_from_db()
    assert (row.name, row.loop, row.guardrails) == ("new", kept["loop"], kept["guardrails"])
    assert AuditEvent.objects.latest("pk").details["fields"] == ["name"]
    assert 'name="has_settings" value="1"' in text_of(client.get(page(Trigger, "change", row.pk)))


def test_settings_have_plain_labels_and_name_the_installations_default(client, settings):
    settings.LQOPS_GUARDRAILS = {"reserve_tokens": 64}
    answer = client.get(page(Trigger, "add"), {"kind": "manual", "owner": sign_in(client).pk})
    shown = {
        name: (field.label, field.help_text)
        for name, field in answer.context["form"].fields.items()
        if name.startswith(("loop_", "guardrails_"))
    }
    assert all("Default: " in text for _, text in shown.values()), shown
    assert shown["guardrails_max_tokens_recoveries"] == (
        "Maximum continuations of a cut reply",
        "Times that a reply which was cut off is continued. 0: never. Default: 2.",
    )
    assert shown["guardrails_reserve_tokens"][1] == (
        "The model is warned once, when no more than this many tokens of its budget are left. Default: 64."
    )
    assert shown["guardrails_reserve_cost_fraction"][1].endswith(
        "when no more than this part of the cost cap is left, from 0 to 1. Default: 0.1."
    )
    assert shown["loop_streaming"][1].endswith("Default: no.")
    assert shown["loop_context_strategy"][1].endswith("Default: sliding window.")


def test_watch_keeps_its_collection(client):
    owner = sign_in(client)
    first, second = (Collection.objects.create(owner=owner, name=name) for name in "ab")
    row = make_trigger(owner=owner, kind=TriggerKind.WATCH, collection=first)

    given = {"name": "n", "collection": second.pk, "playbook": make_playbook(owner, "NDA").pk}
    client.post(page(Trigger, "change", row.pk), {**DEFAULTS, **given})

    row.refresh_from_db()
    assert (row.collection, row.name) == (first, "n")


def test_agent_of_another_user_cannot_be_chosen(client):
    owner = sign_in(client)

    answer = add(client, "manual", owner, agent=make_agent().pk)

    assert "Select a valid choice" in str(answer.context["form"].errors["agent"])


def test_trigger_without_a_target_is_refused_and_an_existing_one_warned_about(client):
    owner = sign_in(client)

    answer = add(client, "manual", owner)

    assert "A trigger needs a playbook or a skill to check against." in text_of(answer)
    assert not Trigger.objects.exists()
    bare, whole = make_trigger(owner=owner), make_trigger(owner=owner, playbook=make_playbook(owner, "NDA"))
    warning = "Nothing to check against: its runs fail."
    assert warning in text_of(client.get(page(Trigger, "change", bare.pk)))
    assert warning not in text_of(client.get(page(Trigger, "change", whole.pk)))


def test_page_shows_the_results_of_its_runs(client):
    owner = sign_in(client)
    row = make_trigger(owner=owner)
    over = {"status": "completed", "terminal_reason": "completed", "completed_at": clock()}
    make_session(owner=owner, trigger=row, run_result="partial", result_reason="Not checked: lease.txt", **over)

    found = text_of(client.get(page(Trigger, "change", row.pk)))

    assert '<span class="lq-chip warn" title="Not checked: lease.txt">partial</span>' in found


# --- Secrets ---


def test_secret_is_shown_once_when_added(client):
    owner = sign_in(client)

    answer = add(client, "event", owner, min_severity="info", playbook=make_playbook(owner, "NDA").pk)

    trigger = Trigger.objects.get()
    secret = trigger_secret(trigger)
    found = text_of(answer)
    assert secret in found.replace("&#x3D;", "=")
    assert f"http://testserver/hooks/{trigger.public_id}" in found
    assert "no-store" in answer.headers["Cache-Control"]
    after = client.get(page(Trigger, "change", trigger.pk))
    assert f"/hooks/{trigger.public_id}" in text_of(after)
    assert "whsec_" not in text_of(after)
    assert "whsec_" not in text_of(client.get(reverse("admin:index")))
    assert all("whsec_" not in str(cookie.value) for cookie in client.cookies.values())


def test_rotated_secret_is_shown_once_and_recorded(client):
    owner = sign_in(client)
    row = make_trigger(owner=owner, kind=TriggerKind.EVENT)
    old = trigger_secret(row)

    answer = client.post(act_page(row, "rotate"), {"confirmed": "1"})

    row.refresh_from_db()
    assert trigger_secret(row) in text_of(answer)
    assert old not in text_of(answer)
    assert "the old secret is valid until" in text_of(client.get(page(Trigger, "change", row.pk)))


def test_only_event_triggers_have_a_secret(client):
    sign_in(client)
    row = make_trigger()

    answer = client.post(act_page(row, "rotate"), {"confirmed": "1"})

    assert "only event triggers have a secret" in text_of(answer)
    assert act_page(row, "rotate") not in text_of(client.get(page(Trigger, "change", row.pk)))


# --- Running now ---


def test_paused_trigger_can_run_now(client):
    sign_in(client, "operator")
    owner = make_user()
    paused = {"paused_at": clock(), "pause_reason": "by_hand"}
    row = make_trigger(owner=owner, playbook=make_playbook(owner), query="late fees", **paused)

    answer = client.post(act_page(row, "run_now"), {"confirmed": "1"}, follow=True)

    assert "1 trigger started." in text_of(answer)
    session = AgentSession.objects.get()
    assert session.trigger == row
    assert f'href="{page(AgentSession, "change", session.pk)}">Open run' in text_of(answer)


def test_run_now_says_what_it_reads(client):
    row = make_trigger(owner=sign_in(client))

    assert "It reads the whole collection" in text_of(client.get(act_page(row, "run_now")))


def test_run_now_can_be_agentic(client):
    given = {"playbook": make_playbook(sign_in(client, "operator")).pk, "query": "late fees"}

    client.post(page(AgentSession, "add"), {**given, "analysis_mode": "agentic"})

    assert AgentSession.objects.get().params["analysis_mode"] == "agentic"


def test_run_for_an_opted_out_user_is_refused(client):
    sign_in(client)
    owner = make_user(opted_in=False)
    row = make_trigger(owner=owner, query="late fees", playbook=make_playbook(owner, "NDA"))

    answer = client.post(act_page(row, "run_now"), {"confirmed": "1"})

    assert "opted in" in text_of(answer)
    assert not AgentSession.objects.exists()


# --- The form behind Edit ---


def test_page_says_in_words_what_the_trigger_does_and_keeps_the_form_behind_edit(client):
    owner = sign_in(client, "admin")
    row = make_trigger(
        owner=owner,
        kind=TriggerKind.SCHEDULE,
        cron="0 6 * * 1",
        zone="Europe/Paris",
        playbook=make_playbook(owner, "NDA"),
        collection=Collection.objects.create(owner=owner, name="Inbox"),
        query="late fees",
        analysis_mode="agentic",
        judge_citations=True,
        loop={"max_steps": 5},
        max_cost_usd="0.5",
        max_cost_per_day_usd="3",
        agent=make_agent(owner=owner, name="Night watch"),
    )

    answer = client.get(page(Trigger, "change", row.pk))

    found = text_of(answer)
    facts = {fact["label"]: fact["text"] for fact in answer.context["settings_summary"]}
    assert facts == {
        "State": "enabled",
        "Runs": "At 06:00 on Monday, Europe/Paris",
        "Playbook": "NDA (version 1)",
        "Reads": "Inbox: passages that match late fees",
        "Analysis": "agentic, judge quotes",
        "Agent": "Night watch",
        "Caps": "$0.50 per run, $3.00 per day, no cap per month",
        "Limits": "60 runs per hour; pauses after 50 in a row that failed or found nothing",
        "Step loop": "Maximum steps: 5",
    }
    assert f'href="{page(Playbook, "change", row.playbook_id)}"' in found
    assert '<details class="lq-edit"><summary>Edit</summary>' in found
    assert '<a class="lq-button" href="?edit=1#edit">Edit</a>' in found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": TriggerKind.WATCH}, "For every document added to its collection"),
        ({"kind": TriggerKind.MANUAL}, "Only when somebody runs it"),
        ({"kind": TriggerKind.EVENT, "source": "*"}, "For any event"),
        (
            {"kind": TriggerKind.EVENT, "source": "crm", "event_type": "new", "min_severity": "high"},
            "For events with source crm, type new, severity high or above",
        ),
        ({"kind": TriggerKind.SCHEDULE, "cron": "nonsense"}, "nonsense"),
        ({"kind": TriggerKind.SCHEDULE, "cron": ""}, "never: it has no schedule"),
    ],
)
def test_summary_says_when_it_runs(client, given, words):
    sign_in(client)

    answer = client.get(page(Trigger, "change", make_trigger(**given).pk))

    assert {fact["label"]: fact["text"] for fact in answer.context["settings_summary"]}["Runs"] == words


@pytest.mark.parametrize("model", [Trigger, Agent])
def test_form_is_open_when_asked_for_and_when_it_was_refused(client, model):
    sign_in(client)
    row = make_trigger() if model is Trigger else make_agent()
    url = page(model, "change", row.pk)

    assert '<details class="lq-edit">' in text_of(client.get(url))
    assert '<details class="lq-edit" open>' in text_of(client.get(f"{url}?edit=1"))
    assert '<details class="lq-edit" open>' in text_of(client.post(url, {"name": ""}))


@pytest.mark.parametrize("model", [Trigger, Agent])
def test_viewer_reads_all_settings_and_is_not_offered_to_edit(client, model):
    sign_in(client, "viewer")
    row = make_trigger() if model is Trigger else make_agent()

    found = text_of(client.get(page(model, "change", row.pk)))

    assert "<summary>All settings</summary>" in found
    assert "edit=1" not in found


def test_new_trigger_begins_with_its_form(client):
    sign_in(client)

    assert "lq-edit" not in text_of(client.get(f"{page(Trigger, 'add')}?kind=manual"))
