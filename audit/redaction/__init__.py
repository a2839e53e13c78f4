"""Masks credentials in log lines, tool output and error texts before they are stored.

Owns what other modules call before they write: `redact` for text, `redact_data` for JSON-shaped values, and the forms
for streams, exceptions and log records. A masked value leaves `[redacted:<kind>:<4 hex>]`; redacting twice changes
nothing. Must not be the only guard: a secret that looks like a word is found by its name or its registration alone.
"""

from audit.redaction.data import contains_marker, redact_data
from audit.redaction.errors import redact_exception, redact_traceback
from audit.redaction.known import forget_known_secrets, register_known_secrets
from audit.redaction.logs import RedactingFilter
from audit.redaction.markers import configure_marker_key
from audit.redaction.redactor import redact
from audit.redaction.stream import StreamRedactor

__all__ = [
    "RedactingFilter",
    "StreamRedactor",
    "configure_marker_key",
    "contains_marker",
    "forget_known_secrets",
    "redact",
    "redact_data",
    "redact_exception",
    "redact_traceback",
    "register_known_secrets",
]
