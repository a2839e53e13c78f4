"""How a message leaves: by e-mail, as a signed webhook (Standard Webhooks), or to a chat service (apprise).

A sender gets everything it needs, reads no rows and raises NotSent with a plain reason. Webhooks go through the URL
gate. apprise has an HTTP client of its own, so only chat services whose host is fixed in its code are allowed, and no
options, of which some read files or other addresses.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.mail import EmailMessage
from standardwebhooks import Webhook

from agents.conf import mail_is_configured, mail_sender
from agents.enums import ChannelKind
from agents.exceptions import Invalid
from agents.net import FetchFailed, Limits, SafeClient, UrlRefused, check_url
from agents.text.clean import one_line
from agents.tls import trust_in_requests
from audit.redaction import redact, redact_exception

SUBJECT_CHARS: Final = 160
SECONDS: Final = 10.0
GONE: Final = 410
# Chat services whose host a plugin of apprise sets itself: the address holds names and tokens alone.
CHATS: Final = ("discord", "gchat", "pbul", "pover", "slack", "tgram", "wxteams")
NO_APPRISE: Final = "Chat services need the package apprise: install lqops[chat] on every host that runs lqops."
_CHAT: Final = re.compile(r"([a-z]+)://[!-~]+", re.ASCII)
_TOKEN_CHARS: Final = 6


class NotSent(Exception):
    """The message did not arrive, as far as is known. `gone`: the receiver wants no further one."""

    def __init__(self, text: str, *, gone: bool = False) -> None:
        super().__init__(text)
        self.gone = gone


@dataclass(frozen=True)
class Message:
    """What is told: its id is the same in every attempt."""

    id: str
    type: str
    title: str
    text: str
    link: str
    at: datetime
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return "\n\n".join(part for part in (self.title, self.text, self.link and f"Open: {self.link}") if part)


# --- E-mail ---


def send_email(message: Message, *, to: str) -> str:
    if not mail_is_configured():
        raise NotSent("No mail server is configured (LQOPS_SMTP_HOST).")
    if not to:
        raise NotSent("The account has no e-mail address.")
    domain = mail_sender().rpartition("@")[2].rstrip(">") or "localhost"
    mail = EmailMessage(
        subject=one_line(f"[lqops] {message.title}", SUBJECT_CHARS),
        body=message.body,
        from_email=mail_sender(),
        to=[to],
        headers={"Message-ID": f"<{message.id}@{domain}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        mail.send()
    except (OSError, ValueError) as error:  # smtplib raises OSError, an invalid address ValueError
        raise NotSent(redact_exception(error)) from None
    return f"The mail server accepted the mail to {to}."


# --- Webhooks ---


def send_webhook(message: Message, *, url: str, secrets: Sequence[str], now: datetime) -> str:
    """POST the message. Only an answer of 200 to 299 counts; redirects are not followed."""
    content = {"type": message.type, "timestamp": message.at.isoformat(), "data": message.data}
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    headers = {
        "content-type": "application/json",
        "webhook-id": message.id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(message.id, now, body) for secret in secrets),
    }
    options = {"content": body, "headers": headers, "limits": Limits(deadline=SECONDS, max_redirects=0)}
    try:
        with SafeClient().stream("POST", url, **options) as response:  # type: ignore[arg-type]
            status = response.status
    except (FetchFailed, UrlRefused) as error:
        raise NotSent(str(error)) from None
    if not 200 <= status < 300:  # noqa: PLR2004
        raise NotSent(f"The server answered with status {status}.", gone=status == GONE)
    return f"The server answered with status {status}."


# --- Chat services ---


def send_chat(message: Message, *, url: str) -> str:
    apprise = _apprise()
    sender = apprise.Apprise()
    sender.add(_chat_service(url))
    text = "\n\n".join(part for part in (message.text, message.link) if part)
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        is_sent = sender.notify(title=message.title, body=text or message.title, body_format="text")
        said = one_line(log.getvalue(), 200)
    if not is_sent:
        raise NotSent(f"The chat service did not take the message. {_without_tokens(said, url)}".strip())
    return "The chat service took the message."


def _apprise() -> Any:
    logging.getLogger("apprise").propagate = False  # its lines may quote tokens
    trust_in_requests()
    try:
        return import_module("apprise")
    except ImportError:
        raise NotSent(NO_APPRISE) from None


def _chat_service(url: str) -> Any:
    service = _apprise().Apprise.instantiate(url)
    if service is None:
        raise NotSent("The address is not complete for this chat service. See its page in the manual of apprise.")
    service.overflow_mode = "split"  # a message that is too long for the service becomes several
    return service


def _without_tokens(text: str, url: str) -> str:
    for part in re.split(r"[/:@]+", url):
        if len(part) >= _TOKEN_CHARS:
            text = text.replace(part, "***")
    return redact(text)


# --- Addresses ---


def check_address(kind: ChannelKind, address: str) -> None:
    """Refuse an address that nothing will be sent to."""
    if kind == ChannelKind.WEBHOOK:
        try:
            check_url(address)
        except UrlRefused as error:
            raise Invalid(f"address: {error}") from None
        return
    found = _CHAT.fullmatch(address)
    if found is None or found[1] not in CHATS:
        raise Invalid(f"address: it must begin with one of {', '.join(f'{name}://' for name in CHATS)}.")
    if "?" in address:
        raise Invalid("address: options (after a question mark) are not supported.")
    try:
        _chat_service(address)
    except NotSent as error:
        raise Invalid(f"address: {error}") from None


def shown_address(address: str) -> str:
    """Return the part of an address that holds no token: the scheme, and the host of a webhook."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname if parts.scheme in {'http', 'https'} else ''}/…"[:200].replace(
        ":///", "://"
    )
