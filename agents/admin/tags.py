"""Template filters: how values look to people. Everything that comes out is escaped by the template, as always."""

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django import template

from agents.admin import shown
from agents.conf import clock

register = template.Library()
SECOND_MS = 1_000


@register.filter
def usd(amount: Decimal | str | None) -> str:
    """An amount, also as the record writes it; what somebody made unreadable there is shown as it is."""
    try:
        return shown.usd(Decimal(amount) if isinstance(amount, str) else amount)
    except InvalidOperation:
        return str(amount)


@register.filter
def visible(text: object) -> str:
    return shown.visible(str(text))


@register.filter
def pretty(value: Any) -> str:
    return shown.pretty(value)


@register.filter
def ago(at: datetime | None) -> str:
    return shown.ago(at, clock())


@register.filter
def took(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < SECOND_MS else f"{milliseconds / SECOND_MS:.1f} s"


@register.filter
def words(label: object) -> str:
    """An enum's value as people write it: budget_exceeded → budget exceeded."""
    return str(label).replace("_", " ")
