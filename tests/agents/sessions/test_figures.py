"""Figures by day: what is counted, on which day, and by which index."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection

from agents.models import AgentSession, Approval, Budget, Finding, GateDay, ToolCall
from agents.sessions import figures
from agents.sessions.figures import (
    ALL,
    Period,
    Subject,
    approval_waits_by_day,
    cost_per_finding_by_day,
    durations_by_day,
    outcomes_by_day,
    spend_by_day,
    spend_of_installation,
    wakes_by_day,
)
from tests.agents.admin.rows import make_approval
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
WEEK = Period.last_days(7, NOW)
CAP = Decimal(20)


def budget(day, charged="0", actual="0", *, scope="installation", subject=0, **fields):
    amounts = {"charged_usd": Decimal(charged), "actual_usd": Decimal(actual)}
    cap = {"cap_usd": CAP} if scope == "installation" else {}
    return Budget.objects.create(scope=scope, subject_id=subject, day=day, **{**cap, **amounts, **fields})


def ended(at=NOW, *, seconds=60, result="ok", cost="0", **fields):
    times = {"started_at": at - timedelta(seconds=seconds), "completed_at": at}
    over = {"status": "completed", "terminal_reason": "completed", "mode": "phased", "run_result": result}
    return make_session(**{**times, **over, "cost_total_usd": Decimal(cost), **fields})


def by_name(figures):
    return {one.name: one.values for one in figures.series}


def last(figures):
    """The values of the last day."""
    return {one.name: one.values[-1] for one in figures.series}


def test_period_ends_today_in_utc():
    late = datetime.fromisoformat("2026-03-14T23:30:00-05:00")

    period = Period.last_days(3, late)

    assert period.days == (date(2026, 3, 13), date(2026, 3, 14), date(2026, 3, 15))
    assert period.begin == datetime(2026, 3, 13, tzinfo=UTC)
    assert period.end == datetime(2026, 3, 16, tzinfo=UTC)


# --- Spend ---


def test_spend_adds_up_to_the_installations_spend():
    agents = [make_agent(name=f"a{number}") for number in range(7)]
    for number, agent in enumerate(agents):
        budget(WEEK.last, "0.10", f"0.{number + 1}", scope="agent", subject=agent.pk)
    budget(WEEK.last, "0.70", "3.00")
    budget(WEEK.first, "0.40", "0.20")

    figures = spend_by_day(WEEK)

    assert [one.name for one in figures.series] == ["a6", "a5", "a4", "a3", "a2", "Other"]
    assert sum(last(figures).values()) == Decimal("3.00")
    assert last(figures)["a6"] == Decimal("0.7")  # of the ledger that is the larger for all
    assert by_name(figures)["Other"][0] == Decimal("0.40")


def test_spend_of_one_subject_is_the_larger_of_its_ledgers():
    agent, trigger = make_agent(), make_trigger()
    budget(WEEK.last, "0.10", "0.30", scope="agent", subject=agent.pk)
    budget(WEEK.last, "0.50", "0.20", scope="trigger", subject=trigger.pk)
    budget(WEEK.first - timedelta(days=1), "9", scope="agent", subject=agent.pk)

    assert last(spend_by_day(WEEK, Subject(agent_id=agent.pk))) == {"Spent": Decimal("0.30")}
    assert last(spend_by_day(WEEK, Subject(trigger_id=trigger.pk))) == {"Spent": Decimal("0.50")}
    assert sum(by_name(spend_by_day(WEEK, Subject(agent_id=agent.pk)))["Spent"]) == Decimal("0.30")


def test_agents_of_one_name_stay_apart():
    first, second = make_agent(name="twin"), make_agent(name="twin")
    budget(WEEK.last, "3")
    for agent in (first, second):
        budget(WEEK.last, "1", scope="agent", subject=agent.pk)

    assert [one.name for one in spend_by_day(WEEK).series] == [
        f"twin (no. {first.pk})",
        f"twin (no. {second.pk})",
        "Other",
    ]


def test_forecast_goes_by_the_seven_days_before():
    for back in range(9):
        budget(WEEK.last - timedelta(days=back), "2", reserved_usd=Decimal("0.5") if not back else 0)

    spend, figures = spend_of_installation(CAP, NOW)

    assert (spend.today_usd, spend.in_flight_usd) == (Decimal(2), Decimal("0.5"))
    assert spend.month_usd == 18
    assert spend.forecast_usd == 18 + 17 * 2  # 17 days of March are left
    assert spend.month_cap_usd == 31 * CAP
    assert len(figures.days) == 30


def test_forecast_of_the_first_days_leaves_out_the_days_before():
    budget(WEEK.last - timedelta(days=1), "1")
    budget(WEEK.last, "3")
    assert spend_of_installation(CAP, NOW)[0].forecast_usd == 4 + 17 * 1
    Budget.objects.filter(day__lt=WEEK.last).delete()
    assert spend_of_installation(CAP, NOW)[0].forecast_usd == 3 + 17 * 3


def test_forecast_is_compared_with_the_cap_of_the_month_if_that_is_the_smaller():
    Budget.objects.create(scope="installation", period="month", day=date(2026, 3, 1), charged_usd=Decimal(900))
    budget(WEEK.last, "2")

    whole, small, large = (spend_of_installation(CAP, NOW, month_cap=cap)[0] for cap in (None, CAP, 32 * CAP))

    assert [one.month_cap_usd for one in (whole, small, large)] == [31 * CAP, CAP, 31 * CAP]
    assert [one.is_capped_by_month for one in (whole, small, large)] == [False, True, False]
    assert whole.month_usd == small.month_usd == 2  # days are what is summed up


def test_month_counts_from_its_first_day():
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    budget(date(2026, 3, 1), "5")
    budget(date(2026, 2, 28), "7")

    assert spend_of_installation(CAP, now)[0].month_usd == 5


# --- Runs ---


def test_outcomes_are_counted_on_the_utc_day_of_their_end():
    ended(datetime(2026, 3, 13, 23, 59, 59, 999_999, tzinfo=UTC), result="failed")
    ended(datetime(2026, 3, 14, 0, 0, tzinfo=UTC), result="failed")
    ended(result="partial")
    ended(WEEK.begin - timedelta(seconds=1), result="failed")
    ended(WEEK.end, result="failed")
    make_session(mode="phased")
    ended(result="ok", mode="loop")

    found = by_name(outcomes_by_day(WEEK))

    assert found["failed"] == (0, 0, 0, 0, 0, 1, 1)
    assert found["partial"][-1] == 1
    assert sum(found["ok"]) == 0


def test_outcomes_of_one_agent_or_trigger():
    agent, trigger = make_agent(), make_trigger()
    ended(agent=agent)
    ended(trigger=trigger)
    ended(agent=agent, trigger=trigger)

    assert last(outcomes_by_day(WEEK, ALL))["ok"] == 3
    assert last(outcomes_by_day(WEEK, Subject(agent.pk)))["ok"] == 2
    assert last(outcomes_by_day(WEEK, Subject(agent.pk, trigger.pk)))["ok"] == 1


@pytest.mark.parametrize(
    ("seconds", "p50", "p95"),
    [([7], 7, 7), ([1, 2], 1, 2), ([5, 1, 3], 3, 5), (range(1, 101), 50, 95), (range(1, 21), 10, 19)],
)
def test_durations_are_percentiles_by_nearest_rank(seconds, p50, p95):
    for one in seconds:
        ended(seconds=one)

    assert last(durations_by_day(WEEK)) == {"p50": p50, "p95": p95}


def test_day_without_runs_has_no_duration():
    ended(seconds=3)

    assert by_name(durations_by_day(WEEK))["p50"] == (None, None, None, None, None, None, 3)


def test_equal_durations_are_counted_once():
    for _ in range(4):
        ended(seconds=3)

    assert last(durations_by_day(WEEK)) == {"p50": 3, "p95": 3}


def test_approvals_wait_until_a_person_decides():
    by = make_user()
    for number, minutes in enumerate((1, 2, 30)):
        asked = {"created_at": NOW - timedelta(minutes=minutes), "resolved_at": NOW, "status": "approved"}
        make_approval(key=f"k{number}", resolved_by=by, **asked)
    make_approval(key="e", created_at=NOW - timedelta(days=1), resolved_at=NOW, status="expired")

    assert last(approval_waits_by_day(WEEK)) == {"p50": 120, "p95": 1800}


def test_cost_per_finding_divides_the_larger_cost_of_runs():
    first = ended(cost="0.10", cost_actual_usd=Decimal("0.30"))
    second = ended(cost="0.20")
    ended(NOW - timedelta(days=1), cost="5")  # found nothing
    for session in (first, first, second):
        Finding.objects.create(session=session)

    found = by_name(cost_per_finding_by_day(WEEK))["Cost per finding"]

    assert found[-1] == Decimal("0.50") / 3
    assert found[-2] is None


def test_wakes_are_those_of_the_agent():
    one, other = make_agent(), make_agent()
    for agent in (one, other):
        GateDay.objects.create(agent=agent, day=WEEK.last, opened=2, unchanged=5, immaterial=1)

    assert last(wakes_by_day(WEEK)) == {"Avoided: unchanged": 10, "Avoided: immaterial": 2, "Turns": 4}
    assert last(wakes_by_day(WEEK, Subject(one.pk)))["Turns"] == 2


# --- Indexes ---


def indexes_for(rows):
    """The plan of a query; on PostgreSQL, which reads small tables whole, the indexes that its table has."""
    if connection.vendor == "sqlite":
        return rows.explain()
    with connection.cursor() as cursor:
        return " ".join(connection.introspection.get_constraints(cursor, rows.model._meta.db_table))


def test_ranges_of_days_are_read_by_an_index():
    ranged = AgentSession.objects.filter(
        completed_at__isnull=False, completed_at__gte=WEEK.begin, completed_at__lt=WEEK.end, mode="phased"
    )
    unknown = ToolCall.objects.unknown().order_by("pk")
    decided = Approval.objects.filter(resolved_by__isnull=False, resolved_at__gte=WEEK.begin)

    assert "session_ended" in indexes_for(ranged.values("run_result"))
    assert "session_active" in indexes_for(AgentSession.objects.filter(completed_at__isnull=True).order_by("-pk")[:8])
    assert "budget_day" in indexes_for(Budget.objects.filter(day__range=(WEEK.first, WEEK.last)))
    assert "tool_call_unresolved" in indexes_for(unknown[:8])
    assert "approval_decided" in indexes_for(decided)


def test_lists_by_state_and_result_are_read_by_an_index():
    runs = AgentSession.objects.order_by("-pk")
    pending = Approval.objects.filter(status="pending").order_by("created_at")

    assert "session_by_result" in indexes_for(runs.filter(run_result="failed")[:26])
    assert "session_by_status" in indexes_for(runs.filter(status="failed")[:26])
    assert "approval_by_status" in indexes_for(pending[:26])


# --- Days that are over ---


def test_days_that_are_over_are_read_once_an_hour_and_the_others_each_time(monkeypatch, django_assert_num_queries):
    now = datetime(2026, 5, 4, 12, tzinfo=UTC)
    monkeypatch.setattr("agents.sessions.figures.clock", lambda: now)
    period = Period.last_days(7, now)
    ended(period.begin)
    ended(now)
    with django_assert_num_queries(1):
        first = by_name(outcomes_by_day(period))["ok"]
    ended(period.begin)
    ended(now)

    with django_assert_num_queries(1):
        again = by_name(outcomes_by_day(period))["ok"]
    now += timedelta(hours=1)
    later = by_name(outcomes_by_day(period))["ok"]

    assert [(days[0], days[-1]) for days in (first, again, later)] == [(1, 1), (1, 2), (2, 2)]


def test_day_that_has_just_ended_is_read_again(monkeypatch):
    midnight = datetime(2026, 5, 4, tzinfo=UTC)
    monkeypatch.setattr("agents.sessions.figures.clock", lambda: midnight + timedelta(minutes=59))
    yesterday = Period(midnight.date() - timedelta(days=1), midnight.date() - timedelta(days=1))
    assert by_name(outcomes_by_day(yesterday))["ok"] == (0,)

    ended(midnight - timedelta(seconds=1))

    assert by_name(outcomes_by_day(yesterday))["ok"] == (1,)


def test_each_agent_trigger_and_chart_is_remembered_for_itself():
    one, other = make_agent(), make_agent()
    period = Period(date(2026, 5, 3), date(2026, 5, 3))
    ended(period.begin, seconds=8, agent=one)

    found = [by_name(outcomes_by_day(period, Subject(agent.pk)))["ok"] for agent in (one, other)]
    lengths = by_name(durations_by_day(period, Subject(one.pk)))["p50"]

    assert (found, lengths) == ([(1,), (0,)], (8.0,))


def test_very_many_days_are_forgotten_instead_of_kept(monkeypatch):
    monkeypatch.setattr("agents.sessions.figures.MOST_REMEMBERED", 5)
    days = [Period(date(2026, 5, day), date(2026, 5, day + 2)) for day in (1, 8, 15)]

    for period in days:
        outcomes_by_day(period)

    assert len(figures._past) == 3
