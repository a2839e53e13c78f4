"""App configuration of the audit log: known secrets, and triggers that are missing are put back on migrate."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit.recorder import teach_sqlite
        from audit.redaction import register_known_secrets

        register_known_secrets(settings.LQOPS_KNOWN_SECRETS)
        connection_created.connect(teach_sqlite)
        post_migrate.connect(_install_triggers, sender=self)


def _install_triggers(using: str, **_: Any) -> None:
    from audit.models import install

    install(connections[using])
