"""Masks credentials in log lines, tool output and error texts before they are stored.

Owns what other modules call before they write: `redact` for text, `redact_data` for JSON-shaped values, and the forms
for streams, exceptions and log records. A masked value leaves `[redacted:<kind>:<4 hex>]`; redacting twice changes
nothing. Must not be the only guard: a secret that looks like a word is found by its name or its registration alone.
"""

from audit.redaction.redactor import (
    MARKER_WORD,
    RedactingFilter,
    StreamRedactor,
    configure_marker_key,
    contains_marker,
    forget_known_secrets,
    redact,
    redact_data,
    redact_exception,
    redact_traceback,
    redaction_state,
    register_known_secrets,
)

__all__ = [
    "MARKER_WORD",
    "RedactingFilter",
    "StreamRedactor",
    "configure_marker_key",
    "contains_marker",
    "forget_known_secrets",
    "redact",
    "redact_data",
    "redact_exception",
    "redact_traceback",
    "redaction_state",
    "register_known_secrets",
]
