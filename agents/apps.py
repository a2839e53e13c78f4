"""App configuration: connects signals, and creates the installation row and the roles on migrate."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.apps.registry import Apps
from django.conf import settings
from django.db.models.signals import post_migrate


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents"

    def ready(self) -> None:
        from agents.knowledge.documents import document_attached
        from agents.sessions.reads import halt_reasons, kept_receipt, receipt_names
        from audit.kinds import register_halt_reasons, register_kept_receipt, register_receipt_names

        register_halt_reasons(halt_reasons)
        register_receipt_names(receipt_names)
        register_kept_receipt(kept_receipt)
        document_attached.connect(_fire_watches)
        post_migrate.connect(_make_first_rows, sender=self)


def _fire_watches(attachment_pk: int, now: datetime, **_: Any) -> None:
    """Fire the watches of a collection when a document is attached to it."""
    from agents.triggers.watches import watches_fire

    watches_fire(attachment_pk=attachment_pk, now=now)


def _make_first_rows(using: str, apps: Apps = installed, **_: Any) -> None:
    """Create the one row that every call reads, and the four groups, after Django has created the permissions."""
    from agents.accounts import roles_sync

    try:
        installations = apps.get_model("agents", "Installation").objects.using(using)
    except LookupError:  # migrated back to before the tables
        return
    cap = Decimal(settings.LQOPS_INSTALLATION_DAY_CAP_USD)
    installations.get_or_create(pk=1, defaults={"max_cost_per_day_usd": cap})
    roles_sync(apps=apps, using=using)
