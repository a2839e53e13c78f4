"""The skill `send_email`: one plain-text mail to one address, through the configured mail server."""

import hashlib
from typing import Annotated, Any, Final

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from pydantic import Field

from agents.conf import mail_is_configured, mail_sender
from agents.enums import Level
from agents.exceptions import Invalid, OutcomeUnknown
from agents.skills.risk import host_of
from agents.skills.skill import SkillContext, skill
from agents.text.clean import one_line

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
