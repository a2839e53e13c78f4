"""Webhook signatures (Standard Webhooks) and the payloads that come with them.

Secrets are derived when needed and stored nowhere. A signature covers id, time and body; the time is judged by the
clock that is passed in. The same work is done whether or not the trigger exists. Must not decide what becomes of a
message.
"""

import base64
import hmac
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn
from uuid import UUID

from django.conf import settings
from standardwebhooks import Webhook

from agents.exceptions import Invalid
from agents.models import Trigger
from agents.text.clean import json_safe
from audit.redaction import redact_data

TOLERANCE: Final = timedelta(minutes=5)
OLD_SECRET_LASTS: Final = timedelta(hours=24)
MAX_SIGNATURES: Final = 8
_NOBODY: Final = UUID(int=0)
_ID: Final = re.compile(r"[!-~]{1,255}")
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


def secret_of(public_id: UUID, generation: int) -> str:
    key = settings.LQOPS_WEBHOOK_KEY.encode()
    derived = hmac.digest(key, f"webhook:{public_id}:{generation}".encode(), "sha256")
    return f"whsec_{base64.b64encode(derived).decode()}"


def verified_id(trigger: Trigger | None, headers: Mapping[str, str], body: bytes, *, now: datetime) -> str | None:
    """Return the id of a message signed with the trigger's secret within five minutes; else None."""
    named = {name.lower(): value for name, value in headers.items()}
    webhook_id = named.get("webhook-id", "")
    seconds = named.get("webhook-timestamp", "")
    if not _ID.fullmatch(webhook_id) or not _SECONDS.fullmatch(seconds):
        return None
    signed_at = datetime.fromtimestamp(int(seconds), UTC)
    if abs(now - signed_at) > TOLERANCE:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    # As bytes: constant-time comparison takes no text beyond ASCII. Only the first few are checked.
    given = [entry.encode(errors="replace") for entry in named.get("webhook-signature", "").split(" ")[:MAX_SIGNATURES]]
    wanted = [Webhook(secret).sign(webhook_id, signed_at, text).encode() for secret in _secrets(trigger, now)]
    found = [hmac.compare_digest(entry, one) for entry in given for one in wanted]
    return webhook_id if trigger is not None and any(found) else None


def _secrets(trigger: Trigger | None, now: datetime) -> tuple[str, str]:
    """Return the current secret and the old one while it is valid; else the current one twice."""
    if trigger is None:
        return secret_of(_NOBODY, 1), secret_of(_NOBODY, 0)
    generation = trigger.secret_generation
    old_counts = trigger.old_secret_until is not None and now < trigger.old_secret_until
    before = generation - 1 if old_counts else generation
    return secret_of(trigger.public_id, generation), secret_of(trigger.public_id, before)


# --- Payloads: parsed within limits, without secrets, storable in both databases ---
#
# Raises nothing but Invalid, whatever the bytes are. The result is data; nobody acts on what it says.


MAX_BODY_BYTES: Final = 256 * 1024
MAX_DATA_BYTES: Final = 64 * 1024


def parsed(body: bytes) -> dict[str, Any]:
    """Parse the bytes as a JSON object."""
    try:
        value = json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise Invalid("The body is nested too deeply.") from None
    except ValueError:  # not UTF-8, not JSON, or a number with thousands of digits
        raise Invalid("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise Invalid("The body must be a JSON object.")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def kept(data: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with credentials masked and unstorable characters replaced."""
    try:
        cleaned: dict[str, Any] = redact_data(json_safe(data))
    except ValueError as error:
        raise Invalid(f"The data cannot be stored: {error}") from None
    return cleaned


def size_of(data: dict[str, Any]) -> int:
    return len(_text(data).encode())


def excerpt(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data if it is small enough, else the beginning of its text and its length."""
    size = size_of(data)
    if size <= MAX_DATA_BYTES:
        return data
    return {"excerpt": _text(data).encode()[:MAX_DATA_BYTES].decode(errors="ignore"), "bytes": size}


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
