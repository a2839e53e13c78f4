"""App configuration: connects signals, and creates the installation row and the roles on migrate."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.apps.registry import Apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.db.models.signals import post_migrate, pre_migrate


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
        pre_migrate.connect(_require_versions, sender=self)
        post_migrate.connect(_make_first_rows, sender=self)
        post_migrate.connect(_note_migrations, sender=self)


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


def _require_versions(using: str, plan: Any = None, stdout: Any = None, **_: Any) -> None:
    """Refuse to migrate beside hosts of another version that the migrations do not allow."""
    from agents.sessions.schema import require_no_other_version

    if using == DEFAULT_DB_ALIAS and plan is not None:
        require_no_other_version(plan, **({"say": stdout.write} if stdout else {}))


def _note_migrations(using: str, plan: Any = None, apps: Apps = installed, **_: Any) -> None:
    """Store which versions may run beside what was applied; a flush of the tests has no plan."""
    from agents.sessions.schema import applied_note

    if using != DEFAULT_DB_ALIAS or plan is None:
        return
    try:
        apps.get_model("agents", "AppliedMigration")
    except LookupError:  # migrated back to before the table
        return
    applied_note()
