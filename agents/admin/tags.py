"""Template filters for values. Their output is escaped by the template."""

from datetime import datetime
from decimal import Decimal, InvalidOperation

from django import template
from django.template.defaultfilters import stringfilter

from agents.admin import display
from agents.conf import clock
from agents.sessions import reads

register = template.Library()
SECOND_MS = 1_000

register.filter("asked_by", reads.asked_by)
register.filter("pretty", display.pretty)
register.filter("words", display.words)
register.filter("short_id", display.short_id)
register.filter("visible", stringfilter(display.visible))
register.filter("plain_sentence", stringfilter(display.plain_sentence))
register.filter("plain_error", stringfilter(display.plain_error))
register.filter("level_color", lambda level: display.LEVEL_COLORS.get(level, ""))
register.filter("risk_color", lambda risk: display.RISK_COLORS.get(risk, ""))


@register.filter
def usd(amount: Decimal | str | None) -> str:
    """An amount, also as the audit log writes it; an unreadable one is shown as it is."""
    try:
        return display.usd(Decimal(amount) if isinstance(amount, str) else amount)
    except InvalidOperation:
        return str(amount)


@register.filter
def ago(at: datetime | None) -> str:
    return display.ago(at, clock())


@register.filter
def took(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < SECOND_MS else f"{milliseconds / SECOND_MS:.1f} s"
