"""Skills that reach outside: web pages and e-mail.

Every address passes agents.net; the mail server is the operator's.
"""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from pydantic import Field, JsonValue

from agents.conf import mail_is_configured, mail_sender
from agents.enums import Level
from agents.exceptions import Invalid, OutcomeUnknown
from agents.net import FetchFailed, Limits, SafeClient, SafeResponse
from agents.net.client import RequestOptions, SafeStream
from agents.net.transport import MEBIBYTE
from agents.skills.fetching import NEVER_SENT, READS, check_headers
from agents.skills.risk import host_of
from agents.skills.skill import SkillContext, skill
from agents.text.clean import one_line
from agents.text.extraction import read_in_subprocess
from agents.text.formats.kinds import Kind
from agents.text.marks import normalise_text

# --- The skills `fetch_url` and `http_request`, through the URL gate ---
#
# Neither follows a redirect to another host: the approval covers one address, and an open redirect could carry data
# to another.


PAGE_BYTES: Final = 512 * 1024
REPLY_BYTES: Final = 64 * 1024
BODY_CHARS: Final = 200_000
KEY_HEADER: Final = "idempotency-key"
SECONDS: Final = 20.0

# Only the start of a long response is read, so its size is no reason to refuse it.
_PAGE: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE)
_SEND: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE, max_redirects=0)
_HTML: Final = {"text/html", "application/xhtml+xml"}
_TEXTUAL: Final = re.compile(
    r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:json|xml|yaml)|application/(?:x-ndjson|x-yaml|javascript|x-sh|sql|toml)"
)

Url = Annotated[str, Field(max_length=8_192, description="A full address: https://…")]


@skill(level=Level.MONITORED, side_effects=False, addresses=("url",), timeout_seconds=45)
def fetch_url(url: Url) -> dict[str, Any]:
    """Reads a web address: a page as the text that a reader sees, JSON and other text as it is.

    Returns the status, the final address, the content type, and whether the text was cut after 512 KiB. The text is
    null if the content is not text.
    """
    with SafeClient(limits=_PAGE, cross_host=False).stream("GET", url) as response:
        return _head(response) | _body(response, PAGE_BYTES)


@skill(level=Level.RESTRICTED, addresses=("url",), secret_arguments=("headers",), timeout_seconds=45)
def http_request(
    context: SkillContext,
    *,
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    url: Url,
    data: Annotated[JsonValue, Field(description="Sent as JSON. Omit it to send `body`, or nothing.")] = None,
    body: Annotated[str, Field(max_length=BODY_CHARS, description="Sent as it is, as plain text.")] = "",
    headers: Annotated[
        dict[str, str] | None, Field(description="Headers. A secret is named by its handle, never written out.")
    ] = None,
) -> dict[str, Any]:
    """Sends one HTTP request and returns the status and the start of the response. Follows no redirect.

    A repeated call sends the same Idempotency-Key, so that a server that supports such keys acts once.
    """
    options = _options(data, body, headers or {})
    options["headers"] = {**options["headers"], KEY_HEADER: context.idempotency_key}
    try:
        with SafeClient(limits=_SEND).stream(method, url, **options) as response:
            result = _head(response)
            with suppress(FetchFailed):  # the server took the request, even if its response breaks off
                result |= _body(response, REPLY_BYTES)
            return result
    except FetchFailed as failed:
        if method in READS or failed.reason in NEVER_SENT:
            raise
        raise OutcomeUnknown(f"The {method} was sent and may have taken effect. {failed}") from None


def _options(data: JsonValue, body: str, headers: Mapping[str, str]) -> RequestOptions:
    if data is not None and body:
        raise Invalid("A request has `data` or `body`, not both.")
    check_headers(headers, own=frozenset({KEY_HEADER}))
    if data is not None:
        return RequestOptions(headers=headers, json=data)
    kind = {"content-type": "text/plain; charset=utf-8"} if body else {}
    return RequestOptions(headers=kind | {name.lower(): value for name, value in headers.items()}, content=body)


def _head(response: SafeStream) -> dict[str, Any]:
    return {
        "status": response.status,
        "url": response.url,
        "content_type": response.headers.get("content-type", "").partition(";")[0].strip().lower(),
        "text": None,
        "truncated": False,
    }


def _body(response: SafeStream, limit: int) -> dict[str, Any]:
    pieces = []
    size = 0
    for piece in response.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            break
    read = SafeResponse(response.status, response.headers, b"".join(pieces)[:limit], response.url)
    return {"text": _text(read), "truncated": size > limit}


def _text(response: SafeResponse) -> str | None:
    """Return the visible text of a page, other text as it is, and None for anything else."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _HTML and response.content:
        # Read in a process of its own, which ends a page that was made to hang its reader.
        with suppress(Invalid):
            return read_in_subprocess(response.text().encode(), Kind.HTML)[0]
        return None
    is_text = not response.content or _TEXTUAL.fullmatch(kind) or (not kind and b"\x00" not in response.content)
    return normalise_text(response.text()) if is_text else None


# --- The skill `send_email`: one plain-text mail to one address, through the configured mail server ---


ADDRESS_CHARS: Final = 254
SUBJECT_CHARS: Final = 160
MAIL_CHARS: Final = 50_000


def _missing() -> str:
    return "" if mail_is_configured() else "no mail server is configured (LQOPS_SMTP_HOST)"


@skill(level=Level.RESTRICTED, addresses=("to",), timeout_seconds=60, needs=_missing)
def send_email(
    context: SkillContext,
    to: Annotated[str, Field(max_length=ADDRESS_CHARS, description="One plain address: name@example.org")],
    subject: Annotated[str, Field(min_length=1, max_length=SUBJECT_CHARS, description="One line.")],
    body: Annotated[str, Field(min_length=1, max_length=MAIL_CHARS, description="Plain text.")],
) -> dict[str, Any]:
    """Sends one plain-text mail to one address."""
    if missing := _missing():
        raise Invalid(f"No mail can be sent: {missing}.")
    _require_plain_address(to)
    message_id = _message_id(context.idempotency_key)
    message = EmailMessage(
        subject=one_line(subject, SUBJECT_CHARS),
        body=body,
        from_email=mail_sender(),
        to=[to],
        headers={"Message-ID": message_id, "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except OSError as error:  # the base of smtplib's errors
        raise _send_error(error) from None
    return {"sent_to": to, "message_id": message_id}


def _require_plain_address(address: str) -> None:
    """Refuse more than one address, and one that two programs could read differently."""
    try:
        validate_email(address)
    except ValidationError:
        address = ""
    if not host_of(address):
        raise Invalid("`to` must be one plain address, such as name@example.org: no display name and no list.")


def _message_id(key: str) -> str:
    """Return the same id for every attempt at one call, so that a mailbox can detect a duplicate."""
    domain = mail_sender().rpartition("@")[2].rstrip(">") or "localhost"
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


def _send_error(error: OSError) -> Exception:
    """Return Invalid if the server refused the mail, OutcomeUnknown if it did not answer."""
    refused = hasattr(error, "smtp_code") or hasattr(error, "recipients") or isinstance(error, ConnectionRefusedError)
    name = type(error).__name__
    if refused:
        return Invalid(f"The mail was not sent: the mail server refused it ({name}).")
    return OutcomeUnknown(f"The mail server did not confirm the mail ({name}); it may have been sent.")
