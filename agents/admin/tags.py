"""Template filters: how values look to people. Everything that comes out is escaped by the template, as always."""

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django import template

from agents.admin import display
from agents.admin.display import LEVEL_LOOKS, RISK_LOOKS
from agents.conf import clock
from agents.models import AgentSession
from agents.sessions import reads

register = template.Library()
SECOND_MS = 1_000


@register.filter
def usd(amount: Decimal | str | None) -> str:
    """An amount, also as the record writes it; what somebody made unreadable there is shown as it is."""
    try:
        return display.usd(Decimal(amount) if isinstance(amount, str) else amount)
    except InvalidOperation:
        return str(amount)


@register.filter
def visible(text: object) -> str:
    return display.visible(str(text))


@register.filter
def asked_by(session: AgentSession) -> str:
    return reads.asked_by(session)


@register.filter
def pretty(value: Any) -> str:
    return display.pretty(value)


@register.filter
def ago(at: datetime | None) -> str:
    return display.ago(at, clock())


@register.filter
def took(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < SECOND_MS else f"{milliseconds / SECOND_MS:.1f} s"


@register.filter
def words(label: object) -> str:
    return display.words(label)


@register.filter
def told(sentence: object) -> str:
    return display.told(str(sentence))


@register.filter
def plain_error(text: object) -> str:
    return display.plain_error(str(text))


@register.filter
def short_id(row: Any) -> str:
    return display.short_id(row)


@register.filter
def level_look(level: str) -> str:
    """One colour for one level, on every page."""
    return LEVEL_LOOKS.get(level, "")


@register.filter
def risk_look(risk: str) -> str:
    return RISK_LOOKS.get(risk, "")
