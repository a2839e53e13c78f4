"""Masks credentials in log lines, tool output and error texts before they are stored."""

from typing import Any

from audit.redaction.markers import MARKER, configure_marker_key
from audit.redaction.scan import redact


def redact_data(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact_data(key): redact_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redact_data(item) for item in value)
    return value


def contains_marker(value: Any) -> bool:
    if isinstance(value, str):
        return MARKER.search(value) is not None
    if isinstance(value, dict):
        return any(contains_marker(part) for pair in value.items() for part in pair)
    return isinstance(value, list | tuple) and any(map(contains_marker, value))


__all__ = ["configure_marker_key", "contains_marker", "redact", "redact_data"]
