"""The way to the mail server of the installation: Django's, which also trusts the authorities of LQOPS_CA_FILE."""

from functools import cached_property
from ssl import SSLContext

from django.core.mail.backends import smtp

from agents.tls import with_private_authorities


class EmailBackend(smtp.EmailBackend):
    @cached_property
    def ssl_context(self) -> SSLContext:
        return with_private_authorities(super().ssl_context)
