"""Rows of an installation in which pages are looked at: one for every page, and those of a morning."""

import os
from datetime import timedelta
from decimal import Decimal

from django.contrib.auth.models import User

from agents.conf import clock
from agents.enums import RunResult
from agents.models import Agent, Finding, Trigger
from tests.agents.admin.rows import make_approval, make_everything
from tests.agents.ask.rows import make_chat
from tests.factories import make_session

TITLES = (
    "Payment term: deviates from the standard",
    "Governing law: no clause found",
    "Liability cap below the standard",
)
FINDINGS = int(os.environ.get("LQOPS_TEST_FINDINGS", "6"))


def furnish() -> None:
    admin = User.objects.get(username="admin")
    make_chat(admin, answer="Two of them do.")
    make_night(admin)
    make_everything(admin)


def make_night(admin: User) -> None:
    """A run failed, and another had findings."""
    trigger = Trigger.objects.order_by("pk").first()
    ended = clock() - timedelta(hours=7)
    over = {"owner": admin, "trigger": trigger, "created_at": ended, "started_at": ended, "completed_at": ended}
    make_session(
        "failed",
        run_result="failed",
        result_reason="The model did not answer.",
        terminal_reason="provider_error",
        error="ProviderError: 503 from the model server",
        **over,
    )
    session = make_session("completed", run_result="findings", terminal_reason="completed", **over)
    for number in range(FINDINGS):
        Finding.objects.create(session=session, title=f"Night {number}", severity="warn")


def make_busy() -> None:
    """A busy night: many runs of each result, findings, and calls that wait for a person."""
    admin = User.objects.get(username="admin")
    agent, trigger = Agent.objects.order_by("pk").first(), Trigger.objects.order_by("pk").first()
    now = clock()
    for number in reversed(range(60)):
        ended = now - timedelta(minutes=9 * number)
        result = RunResult.values[number % len(RunResult.values)]
        reasons = {"failed": "The model did not answer.", "partial": "The cost cap was reached."}
        times = {"created_at": ended, "started_at": ended - timedelta(seconds=40 + number), "completed_at": ended}
        session = make_session(
            "failed" if result == "failed" else "completed",
            owner=admin,
            agent=agent,
            trigger=trigger,
            run_result=result,
            result_reason=reasons.get(result, ""),
            terminal_reason="provider_error" if result == "failed" else "completed",
            cost_total_usd=Decimal(number % 7) / 100,
            **times,
        )
        if result == "findings":
            Finding.objects.create(session=session, title=TITLES[number % len(TITLES)], severity="warn")
    for number in range(6):
        times = {"created_at": now, "last_activity_at": now}
        waiting = make_session("waiting", owner=admin, agent=agent, trigger=trigger, waiting_on="approval", **times)
        make_approval(waiting, arguments={"to": "board@example.com", "subject": f"Contract {number + 1} departs"})
