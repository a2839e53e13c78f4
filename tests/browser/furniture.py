"""Rows of an installation in which pages are looked at: one for every page, those of a morning, and full lists."""

import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib import admin as pages
from django.contrib.auth.models import User
from django.db import models
from django.urls import reverse

from agents.conf import clock
from agents.enums import RunResult
from agents.models import Agent, Finding, Installation, Trigger
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


# --- Full lists ---


def fill_lists(number: int) -> None:
    """Copy the newest row of each list until it has so many; there is one row of the installation alone."""
    reverse("admin:index")  # the pages are registered with their addresses
    for model in sorted(pages.site._registry, key=_has_own_partners):
        rows = model._meta.default_manager
        while (missing := number - rows.count()) > 0 and model is not Installation:
            row, before = rows.order_by("-pk").first(), rows.count()
            rows.bulk_create([model(**_copied(row, count)) for count in range(2 * missing)], ignore_conflicts=True)
            assert rows.count() > before, f"no further row of {model.__name__}"


def _has_own_partners(model: type[models.Model]) -> bool:
    """Whether a row has a row of another list for itself, so that those have to be there first."""
    return any(field.is_relation for field in _unique_fields(model))


def _unique_fields(model: type[models.Model]) -> Iterator[Any]:
    together = [names for rule in model._meta.constraints for names in getattr(rule, "fields", ())]
    names = {*together, *(name for names in model._meta.unique_together for name in names)}
    yield from (field for field in model._meta.concrete_fields if field.unique or field.name in names)


def _copied(row: models.Model, count: int) -> dict[str, Any]:
    """Return the values of a row, those that have to differ from all others made anew."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    for field in _unique_fields(type(row)):
        if field.primary_key:
            values[field.attname] = None
        elif isinstance(field, models.UUIDField):
            values[field.attname] = uuid.uuid4()
        elif field.is_relation:
            values[field.attname] = _nth(field.related_model, count) or values[field.attname]
        elif isinstance(field, models.CharField | models.TextField) and not field.choices:
            values[field.attname] = f"{count} {uuid.uuid4()} copied from {values[field.attname]}"[: field.max_length]
        elif isinstance(field, models.IntegerField) and not field.choices:
            values[field.attname] = 1_000 + count
    return values


def _nth(model: Any, count: int) -> Any:
    return model._meta.default_manager.order_by("pk").values_list("pk", flat=True)[count : count + 1].first()
