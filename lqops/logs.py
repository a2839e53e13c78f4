"""Log lines, as text or JSON: one record is one line, whatever its text contains, so nobody can forge a second one.

Lines have the id of the web request, or of the run and the call, that they belong to.
"""

import json
import logging
import time
from logging import LogRecord

from django.http import HttpRequest

from agents.tracing import current_call_id, current_run_id
from audit import current_request_id

# Characters that end a line or move the cursor of a terminal.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class OneLine(logging.Formatter):
    """Formats a record with its traceback and ids, and escapes control characters."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(ids)s] %(message)s")

    def format(self, record: LogRecord) -> str:
        found = _ids(record)
        ids = found.pop("request_id", "") or " ".join(f"{name[:-3]}:{value}" for name, value in found.items())
        record.ids = ids or "-"
        return super().format(record).translate(_ESCAPED)


class JsonLine(OneLine):
    """Formats a record as one JSON object."""

    def format(self, record: LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(record),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line)  # ASCII: control characters are escaped


def _ids(record: LogRecord) -> dict[str, str]:
    """Return the ids that the record belongs to, of those that there are."""
    found = {
        "request_id": current_request_id.get() or _request_id(record),
        "run_id": current_run_id.get() or getattr(record, "run_id", ""),
        "call_id": current_call_id.get(),
    }
    return {name: str(value) for name, value in found.items() if value}


def _request_id(record: LogRecord) -> str:
    """Return the id of the record's request: Django logs error responses after the middleware has ended."""
    request = getattr(record, "request", None)
    return str(request.META.get("HTTP_X_REQUEST_ID", "")) if isinstance(request, HttpRequest) else ""
