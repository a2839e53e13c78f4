"""Costs by the days that are named, by agent and of one agent."""

import pytest

from agents.ask.answers import Kind
from agents.ask.fast_paths import scope_of
from tests.agents.ask.scene import asked, make_scene, nothing_was_inferred
from tests.factories import make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

# Saturday, 14 March 2026: what a session of each day cost.
DAYS = {"2026-03-14": 1, "2026-03-13": 2, "2026-03-09": 4, "2026-03-08": 8, "2026-03-02": 16, "2026-03-01": 32,
        "2026-02-28": 64, "2026-02-01": 128, "2026-01-31": 256}  # fmt: skip
SPANS = [
    ("today", "today", 1), ("yesterday", "yesterday", 2), ("this week", "this week", 7), ("last week", "last week", 24),
    ("this month", "this month", 63), ("last month", "last month", 192),
]  # fmt: skip


@pytest.fixture
def scene():
    scene = make_scene()
    for day, usd in DAYS.items():
        row = {"owner": scene.owner, "agent": scene.agent, "created_at": f"{day}T12:00:00Z"}
        make_session(cost_total_usd=usd, cost_actual_usd=usd, **row)
    return scene


@pytest.mark.parametrize(("said", "name", "usd"), SPANS)
def test_days_that_are_named_are_told(scene, said, name, usd):
    for text in ("what did {} cost?", "how much did we spend {}", "costs {}"):
        answer = asked(scene, text.format(said))
        assert answer.path == "cost_summary"
        assert answer.data["spent"][name.replace(" ", "_")]["charged_usd"] == f"{usd}.000000", text
    assert nothing_was_inferred()


@pytest.mark.parametrize(("said", "name", "usd"), SPANS)
def test_costs_by_agent_are_those_of_the_days_that_are_named(scene, said, name, usd):
    make_agent(owner=scene.owner, name="Idle")
    for text in (
        "cost per agent {}",
        "cost of Clerk {}",
        "what did Clerk cost {}?",
        "how much has agent clerk spent {}",
    ):
        answer = asked(scene, text.format(said))
        assert (answer.path, answer.data["days"]) == ("cost_summary", name), text
        assert answer.data["agents"][0]["name"] == "Clerk"
        assert answer.data["agents"][0]["charged_usd"] == f"{usd}.000000", text
    assert asked(scene, "cost of Idle").data["agents"][0]["sessions"] == 0


def test_which_days_were_meant_is_told(scene):
    assert "- last week (2 to 8 March): $24.00, 2 sessions" in asked(scene, "what did last week cost").text
    assert (
        "began last month (1 to 28 February), in UTC: Clerk: $192.00" in asked(scene, "cost of Clerk last month").text
    )
    assert asked(scene, "cost per agent", by=make_user()).text == "Your agents have run nothing this month."


@pytest.mark.parametrize(
    "text", ["cost of living in Berlin", "what would Clerk cost?", "what did last year cost?",
             "why did Clerk cost so much", "cost of Clark", "how much did the tenant spend last week?"]
)  # fmt: skip
def test_other_costs_are_for_the_model(scene, text):
    assert asked(scene, text).kind == Kind.SESSION
    assert scope_of(text, scene.owner) == "write"


def test_cost_of_an_agent_is_a_look_for_its_owner_alone(scene):
    assert scope_of("cost of Clerk", scene.owner) == "read"
    assert scope_of("cost of Clerk", make_user()) == "write"
    assert scope_of("cost of Clerk") == "write"
