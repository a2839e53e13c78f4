"""Rows of an installation in which pages are looked at: one for every page, and those of a morning."""

import os
from datetime import timedelta

from django.contrib.auth.models import User

from agents.conf import clock
from agents.models import Finding, Trigger
from tests.agents.admin.rows import make_everything
from tests.agents.ask.rows import make_chat
from tests.factories import make_session

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
