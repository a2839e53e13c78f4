"""The id of the web request at hand, for log lines and for the record: so that a row can be found from either."""

from contextvars import ContextVar

current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
