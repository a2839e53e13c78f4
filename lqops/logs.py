"""Log lines: one record is one line, whatever its text contains, so that nobody can forge a second one."""

import logging
import time
from logging import LogRecord

from django.http import HttpRequest

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
    """Formats a record with its traceback and request id, and escapes control characters."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s")

    def format(self, record: LogRecord) -> str:
        record.request_id = current_request_id.get() or _request_id(record) or "-"
        return super().format(record).translate(_ESCAPED)


def _request_id(record: LogRecord) -> str:
    """Return the id of the record's request: Django logs error responses after the middleware has ended."""
    request = getattr(record, "request", None)
    return str(request.META.get("HTTP_X_REQUEST_ID", "")) if isinstance(request, HttpRequest) else ""
