"""A logging filter after which no record carries a credential or a forged line.

Owns the rewriting of records: message, arguments, exception, stack and extra fields. Must not drop a record or raise.
"""

import logging
import re

from audit.redaction.data import redact_data
from audit.redaction.errors import redact_traceback
from audit.redaction.redactor import redact

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Control characters, and the separators that some readers take for a line end.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _one_line(text: str) -> str:
    return _CONTROL.sub(_escape, text)


def _indented(text: str) -> str:
    """Several lines, none of which can pass for the start of a record."""
    return "\n".join(f"  {line}" for line in _CONTROL_IN_LINES.sub(_escape, text).split("\n"))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a record with the wrong arguments is still written, with both parts
        return f"{record.msg} {record.args}"


class RedactingFilter(logging.Filter):
    """Attach to a handler: every record it writes is redacted and holds one line per message."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = _one_line(redact(_message(record)))
        record.args = None
        if record.exc_info:
            error = record.exc_info[1]
            record.exc_text = _indented(redact_traceback(error)) if error is not None else None
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = _CONTROL_IN_LINES.sub(_escape, redact(record.stack_info))
        for name, value in list(vars(record).items()):
            if name not in _STANDARD:
                clean = redact_data({name: value})
                field = next(iter(clean.values()))
                setattr(record, name, _one_line(field) if isinstance(field, str) else field)
        return True
