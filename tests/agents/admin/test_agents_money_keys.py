"""Agents, budgets, prices and API keys on the admin pages."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from agents.conf import clock
from agents.enums import BudgetPeriod, BudgetScope
from agents.ledger.budgets import cap_of, caps_of, caps_set
from agents.models import (
    Agent,
    AgentSession,
    ApiKey,
    Budget,
    Cap,
    InferenceLog,
    Installation,
    ModelPrice,
    SuspendedModel,
)
from agents.people.keys import api_key_verify
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, page, sign_in, text_of
from tests.factories import make_agent, make_price, make_project, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db


# --- Agents ---


def test_agent_is_created_and_changed(client):
    user = sign_in(client, "admin")
    before = last_event()

    client.post(page(Agent, "add"), {"owner": user.pk, "name": "Reviewer", "mode": "semi", "enabled": "on"})
    row = Agent.objects.get()
    given = {"name": "Reviewer", "mode": "manual", "enabled": "on", "max_cost_per_day_usd": "2"}
    client.post(page(Agent, "change", row.pk), given)

    row.refresh_from_db()
    assert (row.mode, row.max_cost_per_day_usd, row.edited_by) == ("manual", Decimal(2), user)
    assert kinds_since(before) == ["agent.created", "budget.cap_set", "agent.edited"]


def test_looser_mode_of_a_running_agent_is_refused(client):
    sign_in(client)
    row = make_agent(mode="manual")
    make_session(agent=row)

    answer = client.post(page(Agent, "change", row.pk), {"name": row.name, "mode": "auto", "enabled": "on"})

    assert "can be tightened now" in str(answer.context["form"].errors["mode"])
    row.refresh_from_db()
    assert row.mode == "manual"


def test_agent_page_says_its_settings_in_words(client):
    user = sign_in(client)
    row = make_agent(owner=user, mode="semi", max_cost_per_day_usd="4", allow_high_risk=True, waived_skills=["notify"])
    make_trigger(owner=user, agent=row)
    make_trigger(owner=user, agent=row, deleted_at=clock())

    answer = client.get(page(Agent, "change", row.pk))

    assert {fact["label"]: fact["text"] for fact in answer.context["settings_summary"]} == {
        "State": "enabled",
        "Owner": user.username,
        "Approvals": "semi: RESTRICTED and PRIVILEGED calls need approval",
        "Cap per day": "$4.00",
        "Definition": "none",
        "Last changed by": "nobody",
        "High risk": "allowed in mode auto",
        "Without approval": "notify",
        "Triggers": "1 trigger",
    }
    [link] = [fact["link"] for fact in answer.context["settings_summary"] if fact["label"] == "Triggers"]
    assert len(client.get(link).context["cl"].result_list) == 1


def test_agent_page_shows_cost_today(client):
    sign_in(client)
    row = make_agent(max_cost_per_day_usd="4")
    make_session(agent=row, params={"query": "its work"})
    Budget.objects.create(
        scope=BudgetScope.AGENT, subject_id=row.pk, day=clock().date(), cap_usd=4, charged_usd=Decimal("3.9")
    )

    found = text_of(client.get(page(Agent, "change", row.pk)))

    assert "$3.90" in found
    assert "width: 97%" in found
    assert "its work" in found


def test_operators_cannot_change_agents(client):
    sign_in(client, "operator")
    row = make_agent()

    found = text_of(client.get(page(Agent, "change", row.pk)))

    assert "disabled" in found
    assert "Save</button>" not in found
    assert client.post(page(Agent, "change", row.pk), {"name": "x"}).status_code == 403


# --- Money ---


def test_installation_cap_applies_to_today(client):
    sign_in(client, "admin")
    before = last_event()
    assert "Change cap" in text_of(client.get(page(Budget, "changelist")))

    saved = client.post(page(Installation, "change", 1), {"max_cost_per_day_usd": "7.5"}, follow=True)

    assert ("Installation saved." in text_of(saved), "Installation installation" in text_of(saved)) == (True, False)
    assert Installation.objects.get().max_cost_per_day_usd == Decimal("7.5")
    assert Budget.objects.get(scope=BudgetScope.INSTALLATION).cap_usd == Decimal("7.5")
    assert kinds_since(before) == ["budget.cap_set"]


@pytest.mark.parametrize("cap", ["", "-1", "lots"])
def test_installation_always_has_a_cap(client, cap):
    sign_in(client)
    before = Installation.objects.get().max_cost_per_day_usd

    answer = client.post(page(Installation, "change", 1), {"max_cost_per_day_usd": cap})

    assert answer.context["form"].errors["max_cost_per_day_usd"]
    assert Installation.objects.get().max_cost_per_day_usd == before


def test_daily_totals_show_names(framed, client):
    sign_in(client, "viewer")
    agent = make_agent(name="Night watch")
    Budget.objects.create(scope="agent", subject_id=agent.pk, day=clock().date(), cap_usd=1, charged_usd=1, warned=True)
    Budget.objects.create(scope="agent", subject_id=999, day=clock().date())

    found = text_of(client.get(page(Budget, "changelist")))

    assert "Night watch" in found
    assert "agent:999" in found
    assert "2 totals" in found
    assert "80 % reached" in found
    assert 'class="lq-bar full"' in found
    assert "Change cap" not in found


def _caps_shown(answer):
    """Return the values of the caps in a form, and the hidden ones that they began with."""
    return dict(re.findall(r'name="((?:initial-)?max_cost_per_\w+)" value="([^"]*)"', text_of(answer)))


def test_cap_of_a_month_is_set_on_the_installations_page_and_taken_away(client):
    sign_in(client)
    before = last_event()
    for cap, found in (("90", Decimal(90)), ("", None)):
        shown = _caps_shown(client.get(page(Installation, "change", 1)))
        client.post(page(Installation, "change", 1), {**shown, "max_cost_per_month_usd": cap})
        assert cap_of(BudgetScope.INSTALLATION, 0, BudgetPeriod.MONTH) == found
        shown = text_of(client.get(page(Budget, "changelist")))
        assert ("$90.00</strong> per month" in shown) is bool(cap)
        form = text_of(client.get(page(Installation, "change", 1)))
        assert ('name="max_cost_per_month_usd" value="90.00"' in form) is bool(cap)
    assert kinds_since(before) == ["budget.cap_set"] * 2


def test_page_of_a_total_names_what_was_counted_and_says_its_amounts_in_words(client):
    user = sign_in(client)
    agent = make_agent(owner=user, name="Reader")
    row = Budget.objects.create(
        scope="agent", subject_id=agent.pk, day="2026-03-14", cap_usd=4, charged_usd="1.25", actual_usd="1.5"
    )
    whole = Budget.objects.create(scope="installation", subject_id=0, day="2026-03-01", period="month")

    answer = client.get(page(Budget, "change", row.pk))
    text = text_of(answer)

    assert answer.context["title"] == "Reader on 2026-03-14"
    assert f'<a href="{page(Agent, "change", agent.pk)}">Reader</a>' in text
    assert "<dt>Spent</dt><dd>$1.50</dd>" in text
    assert "<dt>Cap</dt><dd>$4.00</dd>" in text
    assert "subject id" not in text.lower()
    assert "in 2026-03" in client.get(page(Budget, "change", whole.pk)).context["title"]


def test_list_shows_days_and_months_of_every_scope(client):
    sign_in(client, "viewer")
    user, project = make_user(username="nora"), make_project(name="Merger")
    month = {"period": "month", "day": clock().date().replace(day=1), "cap_usd": 5, "charged_usd": 4}
    Budget.objects.create(scope="owner", subject_id=user.pk, **month)
    Budget.objects.create(scope="project", subject_id=project.pk, day=clock().date(), cap_usd=1)

    found = text_of(client.get(page(Budget, "changelist")))

    assert ("nora" in found, "Merger" in found) == (True, True)
    assert f"{clock():%Y-%m}<" in found
    assert "$4.00" in found
    assert "of $5.00" in found


def test_cap_of_a_month_is_set_from_the_list(client):
    sign_in(client, "admin")
    project = make_project()
    month = {"period": "month", "day": clock().date().replace(day=1), "cap_usd": 5}
    row = Budget.objects.create(scope="project", subject_id=project.pk, **month)
    Cap.objects.create(scope="project", subject_id=project.pk, period="month", cap_usd=5)

    asked = text_of(client.get(act_page(row, "set_cap")))
    done = text_of(client.post(act_page(row, "set_cap"), {"confirmed": "1", "cap": "3"}, follow=True))

    assert "Maximum cost per calendar month (UTC), the cap from now on." in asked
    assert 'value="5.00"' in asked
    assert f"Cap of project:{project.pk} per month set to $3.00." in done
    assert cap_of(BudgetScope.PROJECT, project.pk, BudgetPeriod.MONTH) == 3


@pytest.mark.parametrize(("now", "shown"), [(7, 'value="7.00"'), (None, "")])
def test_cap_of_an_old_total_is_filled_in_as_it_is_now(client, now, shown):
    sign_in(client, "admin")
    agent = make_agent(max_cost_per_day_usd=now)
    old = Budget.objects.create(
        scope="agent", subject_id=agent.pk, day=clock().date() - timedelta(days=40), cap_usd=Decimal("2.5")
    )

    asked = text_of(client.get(act_page(old, "set_cap")))

    assert (shown in asked, "2.50" in asked) == (True, False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [make_agent, make_trigger, make_project, make_user])
def test_caps_are_set_on_the_page_of_a_row(client, make):
    sign_in(client, "admin")
    row = make()
    scope = BudgetScope.OWNER if isinstance(row, User) else BudgetScope(row._meta.model_name)

    given = {"confirmed": "1", "max_cost_per_day_usd": "2", "max_cost_per_month_usd": "30"}
    done = text_of(client.post(act_page(row, "caps"), given, follow=True))
    asked = text_of(client.get(act_page(row, "caps")))

    assert "$2.00 per day, $30.00 per month." in done
    assert ('value="2.00"' in asked, 'value="30.00"' in asked) == (True, True)
    assert caps_of(scope, row.pk) == {"max_cost_per_day_usd": 2, "max_cost_per_month_usd": 30}
    if scope == BudgetScope.TRIGGER:
        assert "$2.00 per day, $30.00 per month" in text_of(client.get(page(type(row), "change", row.pk)))


def test_operator_tightens_the_cap_of_a_project_and_does_not_loosen_it(client):
    sign_in(client, "operator")
    row = make_project()
    for before, cap in [("", "30"), ("30.00", "20"), ("20.00", "25"), ("20.00", "")]:
        given = {"max_cost_per_month_usd": cap, "initial-max_cost_per_month_usd": before}
        client.post(act_page(row, "caps"), {"confirmed": "1", **given})
    assert caps_of(BudgetScope.PROJECT, row.pk)["max_cost_per_month_usd"] == 20


@pytest.mark.parametrize(
    ("cleared", "left"),
    [
        ("max_cost_per_day_usd", {"max_cost_per_day_usd": None, "max_cost_per_month_usd": 20}),
        ("max_cost_per_month_usd", {"max_cost_per_day_usd": 1, "max_cost_per_month_usd": None}),
    ],
)
def test_page_of_caps_sets_only_what_was_changed_on_it(client, cleared, left):
    admin = sign_in(client, "admin")
    row = make_project()
    caps_set(subject=row, by=admin, now=clock(), max_cost_per_day_usd=Decimal(2), max_cost_per_month_usd=Decimal(30))
    shown = _caps_shown(client.get(act_page(row, "caps")))
    caps_set(subject=row, by=admin, now=clock(), max_cost_per_day_usd=Decimal(1), max_cost_per_month_usd=Decimal(20))

    client.post(act_page(row, "caps"), {"confirmed": "1", **shown, cleared: ""})

    assert len(shown) == 4
    assert caps_of(BudgetScope.PROJECT, row.pk) == left


def test_clearing_the_installation_cap_is_refused(client):
    sign_in(client)
    row = Budget.objects.create(scope="installation", day=clock().date(), cap_usd=5)

    answer = client.post(act_page(row, "set_cap"), {"confirmed": "1", "cap": ""})

    assert "must have a daily cap" in text_of(answer)


def test_price_is_added_and_changed(client):
    sign_in(client, "admin")
    before = last_event()
    given = {"model": "gpt", "input_usd": "1.5", "output_usd": "3", "overhead_tokens": "0"}

    client.post(page(ModelPrice, "add"), given)
    row = ModelPrice.objects.get()
    client.post(page(ModelPrice, "change", row.pk), {**given, "model": "other", "input_usd": "2"})

    row.refresh_from_db()
    assert (row.model, row.input_usd) == ("gpt", Decimal(2))
    assert kinds_since(before) == ["model_price.set"] * 2


@pytest.mark.parametrize(("field", "value"), [("input_usd", "-1"), ("input_usd", "x"), ("model", "")])
def test_invalid_price_is_refused(client, field, value):
    sign_in(client)
    given = {"model": "gpt", "input_usd": "1", "output_usd": "3", "overhead_tokens": "0", field: value}

    answer = client.post(page(ModelPrice, "add"), given)

    assert answer.context["form"].errors[field]
    assert not ModelPrice.objects.exists()


def test_price_of_a_name_that_no_model_can_have_is_explained(client):
    sign_in(client)
    given = {"model": "gpt 4 <b>", "input_usd": "1", "output_usd": "3", "overhead_tokens": "0"}

    answer = client.post(page(ModelPrice, "add"), given)

    assert "use letters, digits and . _ : / @ + - only" in text_of(answer)
    assert not ModelPrice.objects.exists()


def test_model_is_not_priced_twice(client):
    sign_in(client)
    make_price("gpt")

    given = {"model": "gpt", "input_usd": "1", "output_usd": "3", "overhead_tokens": "0"}
    answer = client.post(page(ModelPrice, "add"), given)

    assert answer.context["form"].errors["model"] == [
        "This model has a price already: edit it in the list of model prices."
    ]


def test_a_suspended_model_is_accepted_again(client):
    sign_in(client, "admin")
    row = SuspendedModel.objects.create(model="greedy", bound_usd=1, actual_usd=2)
    chosen = {"action": "accept", "_selected_action": [row.pk], "confirmed": "1"}

    answer = client.post(page(SuspendedModel, "changelist"), chosen, follow=True)

    assert "1 suspended model accepted again." in text_of(answer)
    assert not SuspendedModel.objects.exists()
    assert AuditEvent.objects.filter(kind="model.accepted").count() == 1


def test_amounts_of_a_column_are_called_spent_and_have_one_number_of_digits(client):
    sign_in(client)
    for number, amount in enumerate(("0.02", "1.5", "0.0012")):
        InferenceLog.objects.create(
            model="m", purpose="chat", outcome="success", latency_ms=1, cost_estimate=Decimal(amount)
        )
        Budget.objects.create(scope="agent", subject_id=number, day=clock().date(), charged_usd=Decimal(amount))
    for model in (InferenceLog, Budget):
        rows = text_of(client.get(page(model, "changelist"))).partition('id="result_list"')[2]
        assert rows.lower().count('data-label="spent"') == 3
        assert set(re.findall(r">\$(\d+\.\d+)[ <]", rows)) == {"0.0200", "1.5000", "0.0012"}


def test_model_call_without_reported_cost_says_so(client):
    sign_in(client, "viewer")
    InferenceLog.objects.create(model="m", purpose="chat", outcome="timeout", latency_ms=12)

    found = text_of(client.get(page(InferenceLog, "changelist")))

    assert "not reported" in found
    assert "12 ms" in found


def test_links_are_shown_by_permission(client):
    log = InferenceLog.objects.create(session=make_session(), model="m", purpose="chat", outcome="success")
    sign_in(client, "viewer")
    assert page(AgentSession, "change", log.session_id) in text_of(client.get(page(InferenceLog, "change", log.pk)))

    key = ApiKey.objects.create(user=make_user(), name="n", prefix="p", hash="h", scopes=["read"])
    assert f"/auth/user/{key.user_id}/" not in text_of(client.get(page(ApiKey, "change", key.pk)))


# --- Keys ---


def test_key_is_shown_in_one_response_only(client):
    user = sign_in(client, "admin")
    before = last_event()

    answer = client.post(page(ApiKey, "add"), {"user": user.pk, "name": "CRM", "scopes": ["read", "write"]})

    row = ApiKey.objects.get()
    secret = answer.context["secret"]
    assert secret in text_of(answer)
    assert api_key_verify(secret, now=clock()) == row
    assert (row.user, row.scopes) == (user, ["read", "write"])
    assert "no-store" in answer.headers["Cache-Control"]
    assert kinds_since(before) == ["api_key.created"]
    for address in (page(ApiKey, "changelist"), page(ApiKey, "change", row.pk), page(AgentSession, "changelist")):
        assert secret not in text_of(client.get(address))
        assert row.hash not in text_of(client.get(address))
    assert all(secret not in str(cookie.value) for cookie in client.cookies.values())


@pytest.mark.parametrize(
    ("given", "field"),
    [({"scopes": []}, "scopes"), ({"scopes": ["root"]}, "scopes"), ({"name": ""}, "name")],
)
def test_invalid_key_is_refused(client, given, field):
    user = sign_in(client)

    answer = client.post(page(ApiKey, "add"), {"user": user.pk, "name": "n", "scopes": ["read"], **given})

    assert answer.context["form"].errors[field]
    assert not ApiKey.objects.exists()


def test_key_that_has_expired_is_refused(client):
    user = sign_in(client)

    given = {"user": user.pk, "name": "n", "scopes": ["read"], "expires_at": "2001-01-01T00:00"}
    answer = client.post(page(ApiKey, "add"), given)

    assert "is in the past" in text_of(answer)


def test_keys_show_their_state(client):
    user, now = sign_in(client), clock()
    make = {"user": user, "hash": "h", "scopes": ["read"]}
    ApiKey.objects.create(name="a", prefix="a", **make)
    ApiKey.objects.create(name="b", prefix="b", expires_at=now - timedelta(days=1), **make)
    ApiKey.objects.create(name="c", prefix="c", revoked_at=now, last_used_at=now - timedelta(hours=2), **make)

    found = text_of(client.get(page(ApiKey, "changelist")))

    for words in ("active", "expired", "revoked", "never", "2 hours ago"):
        assert words in found, words
