"""App configuration of the audit log."""

from django.apps import AppConfig
from django.conf import settings


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit.redaction import register_known_secrets

        register_known_secrets(settings.LQOPS_KNOWN_SECRETS)
