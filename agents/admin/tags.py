"""Template filters for values. Their output is escaped by the template."""

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django import template

from agents.admin import display
from agents.admin.display import LEVEL_COLORS, RISK_COLORS
from agents.conf import clock
from agents.models import AgentSession
from agents.sessions import reads

register = template.Library()
SECOND_MS = 1_000


@register.filter
def usd(amount: Decimal | str | None) -> str:
    """An amount, also as the audit log writes it; an unreadable one is shown as it is."""
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
def plain_sentence(sentence: object) -> str:
    return display.plain_sentence(str(sentence))


@register.filter
def plain_error(text: object) -> str:
    return display.plain_error(str(text))


@register.filter
def short_id(row: Any) -> str:
    return display.short_id(row)


@register.filter
def level_color(level: str) -> str:
    return LEVEL_COLORS.get(level, "")


@register.filter
def risk_color(risk: str) -> str:
    return RISK_COLORS.get(risk, "")
