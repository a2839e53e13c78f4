"""Rolling estimates and the ensemble's pre-flight."""

import logging
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, OperationalError

from agents.enums import Outcome, Purpose, ToolIntent
from agents.ledger import prices
from agents.ledger.journal import Attempt, inference_log
from agents.ledger.prices import estimate_model_call, estimate_tool_cost, invalidate_estimates, judges_within_budget
from agents.models import InferenceLog
from agents.types import Usage
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db

DEFAULT = Decimal("0.005")
EXECUTOR = Purpose.AUTONOMOUS_EXECUTOR


def log(cost, number=1, *, model="m", purpose=EXECUTOR, age=timedelta(hours=1)):
    InferenceLog.objects.bulk_create(
        InferenceLog(
            model=model,
            purpose=purpose,
            outcome=Outcome.SUCCESS,
            cost_estimate=None if cost is None else Decimal(cost),
            created_at=NOW - age,
        )
        for _ in range(number)
    )


def estimate(model="m", purpose=EXECUTOR, now=NOW):
    return estimate_model_call(model, purpose, now=now)


def test_without_a_log_the_default_is_used():
    assert estimate() == DEFAULT


def test_four_rows_are_too_few():
    log("0.02", 4)
    assert estimate() == DEFAULT


def test_five_rows_are_enough():
    log("0.02", 5)
    assert estimate() == Decimal("0.02")


def test_the_mean_is_rounded_up_to_the_micro_dollar():
    log("0", 5)
    log("0.000001")
    assert estimate() == Decimal("0.000001")


def test_a_row_of_31_days_is_ignored():
    log("0.02", 5, age=timedelta(days=31))
    assert estimate() == DEFAULT
    invalidate_estimates()
    log("0.02", 4)
    assert estimate() == DEFAULT


def test_a_row_just_inside_of_30_days_counts():
    log("0.02", 5, age=timedelta(days=30) - timedelta(seconds=1))
    assert estimate() == Decimal("0.02")


def test_the_hundred_and_first_row_is_ignored():
    log("9", age=timedelta(days=2))
    log("0.02", 100)
    assert estimate() == Decimal("0.02")


def test_rows_without_a_reported_cost_are_ignored():
    log("0.02", 4)
    log(None, 96, age=timedelta(minutes=1))
    assert estimate() == DEFAULT
    invalidate_estimates()
    log("0.02")
    assert estimate() == Decimal("0.02")


def test_averages_differ_by_purpose():
    log("0.02", 5, purpose=Purpose.JUDGE)
    log("0.04", 5, purpose=EXECUTOR)
    assert estimate(purpose=Purpose.JUDGE) == Decimal("0.02")
    assert estimate(purpose=EXECUTOR) == Decimal("0.04")


def test_a_purpose_without_enough_rows_takes_the_models_average():
    log("0.02", 6, purpose=Purpose.JUDGE)
    log("0.04", 4, purpose=EXECUTOR)
    assert estimate() == Decimal("0.028")
    assert estimate(purpose=Purpose.CHAT) == Decimal("0.028")


def test_other_models_do_not_count():
    log("0.02", 9, model="m-large")
    assert estimate("m") == DEFAULT


def test_a_model_that_costs_nothing_for_a_purpose_is_estimated_at_nothing():
    log("0", 5, purpose=EXECUTOR)
    log("0.02", 50, purpose=Purpose.JUDGE)
    assert estimate() == 0


def test_an_estimate_is_kept_for_five_minutes(django_assert_num_queries):
    log("0.02", 5)
    assert estimate() == Decimal("0.02")
    log("0.08", 5)
    with django_assert_num_queries(0):
        assert estimate(now=NOW + timedelta(seconds=299)) == Decimal("0.02")
    with django_assert_num_queries(1):
        assert estimate(now=NOW + timedelta(seconds=300)) == Decimal("0.05")


def test_the_default_is_kept_too_and_takes_two_queries_at_most(django_assert_num_queries):
    with django_assert_num_queries(2):
        estimate()
    with django_assert_num_queries(0):
        estimate()


def test_a_clock_that_went_back_does_not_keep_an_estimate_alive(django_assert_num_queries):
    log("0.02", 5, age=timedelta(hours=3))
    estimate()
    with django_assert_num_queries(1):
        estimate(now=NOW - timedelta(hours=1))


def test_invalidating_drops_what_was_kept():
    log("0.02", 5)
    estimate()
    log("0.08", 5)
    invalidate_estimates()
    assert estimate() == Decimal("0.05")


@pytest.mark.parametrize("error", [DatabaseError, OperationalError])
def test_a_database_error_gives_the_default_and_a_warning_and_is_not_kept(monkeypatch, caplog, error):
    def broken(rows):
        raise error("no such column: password=hunter2")

    log("0.02", 5)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="agents"):
        patched.setattr(prices, "_average", broken)
        assert estimate() == DEFAULT
    assert [(record.levelname, error.__name__ in record.getMessage()) for record in caplog.records] == [
        ("WARNING", True)
    ]
    assert "hunter2" not in caplog.text
    assert estimate() == Decimal("0.02")


# --- by intent ---

INFERENCE = {ToolIntent.RUN_SKILL, ToolIntent.RUN_PLAYBOOK}


@pytest.mark.parametrize("intent", sorted(set(ToolIntent) - INFERENCE))
def test_local_intents_cost_nothing_and_ask_nothing(intent, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert estimate_tool_cost(intent, {}) == 0


@pytest.mark.parametrize("intent", sorted(INFERENCE))
def test_inference_is_estimated_by_model_and_purpose(intent):
    log("0.02", 5, purpose=EXECUTOR)
    log("0.03", 5, purpose=Purpose.SIMULATION)
    assert estimate_tool_cost(intent, {"model": "m"}, now=NOW) == Decimal("0.02")
    assert estimate_tool_cost(intent, {"model": "m", "purpose": "simulation"}, now=NOW) == Decimal("0.03")


def test_the_clock_is_read_when_no_time_is_given():
    log("0.02", 5)
    InferenceLog.objects.update(created_at=prices.clock())
    assert estimate_tool_cost(ToolIntent.RUN_SKILL, {"model": "m"}) == Decimal("0.02")


def test_a_skill_that_asks_no_model_costs_nothing_and_asks_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert estimate_tool_cost(ToolIntent.RUN_SKILL, {"path": "a.txt"}, now=NOW) == 0


def test_an_unknown_purpose_has_no_estimate():
    with pytest.raises(ValueError, match="not a valid Purpose"):
        estimate_tool_cost(ToolIntent.RUN_SKILL, {"model": "m", "purpose": "fun"}, now=NOW)


# --- the log that estimates are made from ---


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [(Usage(1_000, 500), (1_000, 500), Decimal("0.0105")), (None, (0, 0), None)],
)
def test_a_guess_is_not_logged_as_a_cost(usage, tokens, cost):
    session = make_session()
    call = session.tool_calls.model(
        session=session,
        model="m",
        outcome=Outcome.GATEWAY_ERROR,
        approved_usd=Decimal("0.005"),
        actual_usd=Decimal("0.0105"),
    )
    attempt = Attempt(2, "scripted", usage=usage, contacted=True, latency_ms=12)
    log = inference_log(call, attempt, purpose=Purpose.PRECHECK, booked=Decimal("0.0105"), now=NOW)
    InferenceLog.objects.create(**log)
    row = InferenceLog.objects.get()
    assert (row.input_tokens, row.output_tokens) == tokens
    assert (row.cost_estimate, row.approved_usd) == (cost, Decimal("0.005"))
    assert (row.session, row.model, row.purpose, row.outcome) == (session, "m", "precheck", "gateway_error")
    assert (row.provider, row.latency_ms, row.created_at, row.refused) == ("scripted", 12, NOW, False)
    assert row.attempt == 2


# --- several judges ---

JUDGES = ("judge-a", "judge-b", "judge-c")


def judges(citations=10, names=JUDGES, **more):
    return judges_within_budget(citations=citations, judges=names, now=NOW, **more)


def fallbacks(chain=SYSTEM_CHAIN):
    return list(AuditEvent.objects.filter(kind="citation_ensemble.fallback", chain=chain).order_by("seq"))


def test_ten_citations_by_three_judges_fall_back_to_one():
    assert judges() == ("judge-a",)
    [row] = fallbacks()
    assert row.details == {
        "judges": 3,
        "citations": 10,
        "projected_usd": "0.150000",
        "cap_usd": "0.10",
        "judge": "judge-a",
    }


@pytest.mark.parametrize(("cap", "number"), [("0.15", 3), ("0.149999", 1), ("0", 1)])
def test_all_judges_sit_when_the_cap_pays_for_exactly_that(cap, number):
    assert judges(cap=Decimal(cap)) == JUDGES[:number]
    assert len(fallbacks()) == (0 if number == 3 else 1)


def test_each_judge_is_estimated_by_its_own_judging():
    log("0.001", 5, model="judge-a", purpose=Purpose.JUDGE)
    log("0.002", 5, model="judge-b", purpose=Purpose.JUDGE)
    log("9", 5, model="judge-b", purpose=Purpose.CHAT)
    assert judges(names=("judge-a", "judge-b"), cap=Decimal("0.03")) == ("judge-a", "judge-b")


def test_two_judges_beyond_the_cap_fall_back_to_one():
    assert judges(names=("judge-a", "judge-b"), cap=Decimal(0)) == ("judge-a",)


@pytest.mark.parametrize("names", [(), ("judge-a",)])
def test_one_judge_or_none_never_falls_back(names):
    assert judges(names=names, cap=Decimal(0)) == names
    assert fallbacks() == []


def test_the_fallback_is_recorded_in_the_chain_of_the_session():
    session = make_session()
    judges(chain=session.chain)
    assert len(fallbacks(session.chain)) == 1
    assert fallbacks() == []
