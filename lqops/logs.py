"""Log lines: one record is one line, whatever its text holds, so that nobody can forge a second one."""

import logging
import time
from logging import LogRecord

from django.http import HttpRequest

from audit.context import current_request_id

# Everything that ends a line or moves the cursor of a terminal.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class OneLine(logging.Formatter):
    """The record with its traceback, control characters escaped, and the id of the request at hand."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s")

    def format(self, record: LogRecord) -> str:
        record.request_id = current_request_id.get() or _id_of_its_request(record) or "-"
        return super().format(record).translate(_ESCAPED)


def _id_of_its_request(record: LogRecord) -> str:
    """Django writes of an answer that refuses when every middleware is through with it, and hands the request along."""
    request = getattr(record, "request", None)
    return str(request.META.get("HTTP_X_REQUEST_ID", "")) if isinstance(request, HttpRequest) else ""
