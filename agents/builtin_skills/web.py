"""The skills `fetch_url` and `http_request`, through the URL gate.

Neither follows a redirect to another host: the approval covers one address, and an open redirect could carry data to
another.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue

from agents.enums import Level
from agents.exceptions import Invalid, OutcomeUnknown
from agents.net import FetchFailed, Limits, SafeClient, SafeResponse
from agents.net.client import OWN, Options, SafeStream
from agents.net.transport import MEBIBYTE
from agents.skills.skill import SkillContext, skill
from agents.text.extraction import Kind, plain, read_apart

PAGE_BYTES: Final = 512 * 1024
REPLY_BYTES: Final = 64 * 1024
BODY_CHARS: Final = 200_000
MAX_HEADERS: Final = 20
KEY_HEADER: Final = "idempotency-key"
SECONDS: Final = 20.0

# Only the start of a long response is read, so its size is no reason to refuse it.
_PAGE: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE)
_SEND: Final = Limits(deadline=SECONDS, max_bytes=50 * MEBIBYTE, max_redirects=0)
_NEVER_SENT: Final = {"connect", "tls", "request"}  # failures before any byte of the request was sent
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
    """Reads a web address: a page as the text that a reader sees, JSON and other text as it is.

    Returns the status, the final address, the content type, and whether the text was cut after 512 KiB. The text is
    null if the content is not text.
    """
    with SafeClient(limits=_PAGE, cross_host=False) as client, client.stream("GET", url) as response:
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
        with SafeClient(limits=_SEND) as client, client.stream(method, url, **options) as response:
            result = _head(response)
            with suppress(FetchFailed):  # the server took the request, even if its response breaks off
                result |= _body(response, REPLY_BYTES)
            return result
    except FetchFailed as failed:
        if method in _READS or failed.reason in _NEVER_SENT:
            raise
        raise OutcomeUnknown(f"The {method} was sent and may have taken effect. {failed}") from None


def _options(data: JsonValue, body: str, headers: Mapping[str, str]) -> Options:
    if data is not None and body:
        raise Invalid("A request has `data` or `body`, not both.")
    if len(headers) > MAX_HEADERS:
        raise Invalid(f"The request has {len(headers)} headers; the limit is {MAX_HEADERS}.")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise Invalid(f"The header {name[:64]!r} cannot be sent: one line of plain ASCII, at most 4096 characters.")
        if name.lower() in OWN | {KEY_HEADER}:
            raise Invalid(f"The header {name} is set by lqops; omit it.")
    if data is not None:
        return Options(headers=headers, json=data)
    kind = {"content-type": "text/plain; charset=utf-8"} if body else {}
    return Options(headers=kind | {name.lower(): value for name, value in headers.items()}, content=body)


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
            return plain(read_apart(response.text().encode(), Kind.HTML))
        return None
    is_text = not response.content or _TEXTUAL.fullmatch(kind) or (not kind and b"\x00" not in response.content)
    return plain(response.text()) if is_text else None
