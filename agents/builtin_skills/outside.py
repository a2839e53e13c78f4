"""The web, through the URL gate: reading a page, and sending a request that may change something.

Neither is led on to another host: whoever allowed the call allowed that address, and an open redirect would carry data
to one that nobody has seen.
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
from agents.net.client import OWN, Options, SafeStream
from agents.net.transport import MEBIBYTE
from agents.skills.risk import host_of
from agents.skills.skill import SkillContext, skill
from agents.text.clean import one_line
from agents.text.extraction import Kind, plain, read_apart

PAGE_BYTES: Final = 512 * 1024
REPLY_BYTES: Final = 64 * 1024
BODY_CHARS: Final = 200_000
MOST_HEADERS: Final = 20
KEY_HEADER: Final = "idempotency-key"
SECONDS: Final = 20.0

# Of more than is shown only the beginning is read, so a long answer is no reason to refuse it.
_PAGE: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE)
_SEND: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE, max_redirects=0)
_NEVER_SENT: Final = {"connect", "tls", "request"}  # what failed before a byte of the request left
_READS: Final = {"GET", "HEAD"}
_HTML: Final = {"text/html", "application/xhtml+xml"}
_TEXTUAL: Final = re.compile(
    r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:json|xml|yaml)|application/(?:x-ndjson|x-yaml|javascript|x-sh|sql|toml)"
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]{0,4096}")

Url = Annotated[str, Field(max_length=8_192, description="A full address: https://…")]


@skill(level=Level.MONITORED, side_effects=False, addresses=("url",), timeout_seconds=45)
def fetch_url(url: Url) -> dict[str, Any]:
    """Reads what is at a web address: a page as the text that a reader sees, JSON and other text as it is.

    Says the status, the address it ended at, the type, and whether the text was cut after 512 KiB. The text is null
    when what is there is no text.
    """
    with SafeClient(limits=_PAGE, cross_host=False) as client, client.stream("GET", url) as answer:
        return _head(answer) | _body(answer, PAGE_BYTES)


@skill(level=Level.RESTRICTED, addresses=("url",), secret_arguments=("headers",), timeout_seconds=45)
def http_request(
    context: SkillContext,
    *,
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    url: Url,
    data: Annotated[JsonValue, Field(description="Sent as JSON. Leave it out to send `body`, or nothing.")] = None,
    body: Annotated[str, Field(max_length=BODY_CHARS, description="Sent as it is, as plain text.")] = "",
    headers: Annotated[
        dict[str, str] | None, Field(description="Headers. A secret is named by its handle, never written out.")
    ] = None,
) -> dict[str, Any]:
    """Sends one HTTP request, and gives back the status and the beginning of the answer. Follows no redirect.

    The same call sends the same Idempotency-Key again, so that a server which knows such keys acts once.
    """
    options = _options(data, body, headers or {})
    options["headers"] = {**options["headers"], KEY_HEADER: context.idempotency_key}
    try:
        with SafeClient(limits=_SEND) as client, client.stream(method, url, **options) as answer:
            told = _head(answer)
            with suppress(FetchFailed):  # that the server took it is what counts, not how well it says so
                told |= _body(answer, REPLY_BYTES)
            return told
    except FetchFailed as failed:
        if method in _READS or failed.reason in _NEVER_SENT:
            raise
        raise OutcomeUnknown(f"The {method} was sent and may have taken effect. {failed}") from None


def _options(data: JsonValue, body: str, headers: Mapping[str, str]) -> Options:
    if data is not None and body:
        raise Invalid("A request has `data` or a `body`, not both.")
    if len(headers) > MOST_HEADERS:
        raise Invalid(f"The request has {len(headers)} headers; at most {MOST_HEADERS} are sent.")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise Invalid(f"The header {name[:64]!r} cannot be sent: one line of plain ASCII, at most 4096 characters.")
        if name.lower() in OWN | {KEY_HEADER}:
            raise Invalid(f"The header {name} is set by lqops itself; leave it out.")
    if data is not None:
        return Options(headers=headers, json=data)
    kind = {"content-type": "text/plain; charset=utf-8"} if body else {}
    return Options(headers=kind | {name.lower(): value for name, value in headers.items()}, content=body)


def _head(answer: SafeStream) -> dict[str, Any]:
    return {
        "status": answer.status,
        "url": answer.url,
        "content_type": answer.headers.get("content-type", "").partition(";")[0].strip().lower(),
        "text": None,
        "truncated": False,
    }


def _body(answer: SafeStream, most: int) -> dict[str, Any]:
    pieces, size = [], 0
    for piece in answer.iter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            break
    read = SafeResponse(answer.status, answer.headers, b"".join(pieces)[:most], answer.url)
    return {"text": _text(read), "truncated": size > most}


def _text(answer: SafeResponse) -> str | None:
    """What a reader sees of a page, other text as it is, and None for what is no text."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _HTML and answer.content:
        # Decoded by what the server says of it, and read where a page that was made to hang a reader can be ended.
        with suppress(Invalid):
            return plain(read_apart(answer.text().encode(), Kind.HTML))
        return None
    is_text = not answer.content or _TEXTUAL.fullmatch(kind) or (not kind and b"\x00" not in answer.content)
    return plain(answer.text()) if is_text else None


# --- One mail to one address, through the mail server that the operator has named ---


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
    _refuse_unplain(to)
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
    except OSError as error:  # what the mail library raises is one
        raise _told(error) from None
    return {"sent_to": to, "message_id": message_id}


def _refuse_unplain(address: str) -> None:
    """An address that two programs could read differently, or more than one, goes nowhere."""
    try:
        validate_email(address)
    except ValidationError:
        address = ""
    if not host_of(address):
        raise Invalid("`to` is one plain address, such as name@example.org: no name beside it, and no list.")


def _message_id(key: str) -> str:
    """The same for every attempt at one call, so that a mailbox which has it already can tell."""
    domain = mail_sender().rpartition("@")[2].rstrip(">") or "localhost"
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


def _told(error: OSError) -> Exception:
    """A server that said no did not take the mail; of one that fell silent nobody knows."""
    said_no = hasattr(error, "smtp_code") or hasattr(error, "recipients") or isinstance(error, ConnectionRefusedError)
    named = type(error).__name__
    if said_no:
        return Invalid(f"The mail was not sent: the mail server did not take it ({named}).")
    return OutcomeUnknown(f"The mail server did not say that it took the mail ({named}); it may have been sent.")
