"""App configuration of the agents."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents"

    def ready(self) -> None:
        post_migrate.connect(_make_installation, sender=self)


def _make_installation(using: str, **_: Any) -> None:
    """The one row that every call reads, made with the tables and kept for good; without it every call is refused."""
    from agents.conf import installation_day_cap
    from agents.models import Installation

    Installation.objects.using(using).get_or_create(pk=1, defaults={"max_cost_per_day_usd": installation_day_cap()})
