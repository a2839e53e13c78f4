"""Costs of today: the most expensive first, at most a page, with totals over all."""

from decimal import Decimal

import pytest

from agents.api.operations import MOST_LISTED
from agents.conf import clock
from agents.ledger.budgets import budget_set_cap, caps_set
from agents.models import Agent, Budget, Trigger
from tests.factories import make_agent, make_project, make_trigger

pytestmark = pytest.mark.django_db
MANY = MOST_LISTED + 30


def test_only_the_most_expensive_rows_are_listed(api, person, django_assert_max_num_queries):
    Trigger.objects.bulk_create(Trigger(owner=person, kind="manual", name=f"t{number}") for number in range(MANY))
    Agent.objects.bulk_create(Agent(owner=person, name=f"a{number}") for number in range(MANY))
    pks = list(Trigger.objects.order_by("pk").values_list("pk", flat=True))
    day = clock().date()
    Budget.objects.bulk_create(
        Budget(scope="trigger", subject_id=pk, day=day, charged_usd=Decimal(place), reserved_usd=Decimal(1))
        for place, pk in enumerate(pks[: MANY - 5])
    )
    Budget.objects.create(scope="trigger", subject_id=make_trigger().pk, day=day, charged_usd=Decimal(1_000))

    with django_assert_max_num_queries(20):
        answer = api.get("/api/v1/costs")

    found = answer.json()
    charged = [Decimal(one["charged_usd"]) for one in found["triggers"]]
    assert charged == [Decimal(MANY - 6 - place) for place in range(MOST_LISTED)]
    assert found["triggers_total"] == {
        "count": MANY,
        "spent_usd": f"{sum(range(MANY - 5))}.000000",
        "charged_usd": f"{sum(range(MANY - 5))}.000000",
        "reserved_usd": f"{MANY - 5}.000000",
        "actual_usd": "0.000000",
    }
    assert [one["name"] for one in found["agents"]] == [f"a{MANY - 1 - place}" for place in range(MOST_LISTED)]
    assert (found["agents_total"]["count"], found["agents_total"]["charged_usd"]) == (MANY, "0.000000")
    assert len(answer.content) < 60_000


def test_budgets_with_a_cap_that_bind_the_person_are_listed(api, person):
    project, agent = make_project(person, name="Merger"), make_agent(owner=person, name="Night watch")
    for subject in (project, agent, person, make_project()):
        caps_set(subject=subject, by=None, now=clock(), max_cost_per_month_usd=Decimal(9))
    budget_set_cap(scope="installation", subject_id=0, period="month", cap_usd=Decimal(50), by=None)
    Budget.objects.filter(scope="project", subject_id=project.pk).update(charged_usd=Decimal(2))

    found = api.get("/api/v1/costs").json()["budgets"]

    assert [(one["scope"], one["name"], one["period"], one["spent_usd"], one["cap_usd"]) for one in found] == [
        ("agent", "Night watch", "month", "0.000000", "9.000000"),
        ("installation", "Installation", "month", "0.000000", "50.000000"),
        ("owner", person.username, "month", "0.000000", "9.000000"),
        ("project", "Merger", "month", "2.000000", "9.000000"),
    ]


@pytest.mark.parametrize("make", [make_agent, make_trigger, make_project])
def test_caps_are_set_and_shown(api, person, make):
    row = make(owner=person)
    address = f"/api/v1/{row._meta.model_name}s/{row.public_id}"

    answer = api.post(f"{address}/caps", {"max_cost_per_day_usd": "2", "max_cost_per_month_usd": "30"}, format="json")
    assert (answer.status_code, answer.json()["max_cost_per_month_usd"]) == (200, "30.000000")
    api.post(f"{address}/caps", {"max_cost_per_month_usd": "20"}, format="json")
    looser = api.post(f"{address}/caps", {"max_cost_per_month_usd": None}, format="json")

    assert (looser.status_code, "the cap of a month" in looser.json()["message"]) == (403, True)
    found = api.get(address).json()
    assert (found["max_cost_per_day_usd"], found["max_cost_per_month_usd"]) == ("2.000000", "20.000000")


def test_rows_without_costs_come_last(api, person):
    old, new = (Trigger.objects.create(owner=person, kind="manual", name=name) for name in ("old", "new"))
    Budget.objects.create(scope="trigger", subject_id=old.pk, day=clock().date(), charged_usd=Decimal(1))

    assert [one["name"] for one in api.get("/api/v1/costs").json()["triggers"]] == ["old", "new"]
    assert new.pk > old.pk
