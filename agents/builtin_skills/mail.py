"""One mail to one address, through the mail server that the operator has named."""

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
BODY_CHARS: Final = 50_000


def _missing() -> str:
    return "" if mail_is_configured() else "no mail server is configured (LQOPS_SMTP_HOST)"


@skill(level=Level.RESTRICTED, addresses=("to",), timeout_seconds=60, needs=_missing)
def send_email(
    context: SkillContext,
    to: Annotated[str, Field(max_length=ADDRESS_CHARS, description="One plain address: name@example.org")],
    subject: Annotated[str, Field(min_length=1, max_length=SUBJECT_CHARS, description="One line.")],
    body: Annotated[str, Field(min_length=1, max_length=BODY_CHARS, description="Plain text.")],
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
