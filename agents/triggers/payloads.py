"""What strangers send, made fit to be kept: parsed within limits, without secrets, storable in both databases.

Nothing here raises anything but Invalid, whatever the bytes are. What comes out is data; nobody acts on what it says.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from agents.exceptions import Invalid
from agents.text.clean import storable
from audit.redaction import redact_data

MAX_BODY_BYTES: Final = 256 * 1024
MAX_DATA_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 32


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object that the bytes spell."""
    try:
        value = json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise Invalid(f"The body is nested more than {MAX_DEPTH} levels deep.") from None
    except ValueError:  # not UTF-8, not JSON, or a number of thousands of digits
        raise Invalid("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise Invalid("The body must be a JSON object.")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def kept(data: dict[str, Any]) -> dict[str, Any]:
    """A copy with credentials masked, and with what no database holds replaced, visibly."""
    _demand_shallow(data)
    cleaned: dict[str, Any] = storable(redact_data(data))
    return cleaned


def size_of(data: dict[str, Any]) -> int:
    return len(_text(data).encode())


def excerpt(data: dict[str, Any]) -> dict[str, Any]:
    """The data itself if it is small enough, else the beginning of its text and how long the whole was."""
    size = size_of(data)
    if size <= MAX_DATA_BYTES:
        return data
    return {"excerpt": _text(data).encode()[:MAX_DATA_BYTES].decode(errors="ignore"), "bytes": size}


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _demand_shallow(data: Any) -> None:
    """Level by level and not by recursion: there is nothing that could run out of stack."""
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise Invalid(f"The data are nested more than {MAX_DEPTH} levels deep.")


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list | tuple) else ()
