"""The fast path that tells what was spent: by both ledgers, of the person's own sessions. It writes nothing."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import Count, QuerySet, Sum

from agents.enums import BudgetScope
from agents.models import AgentSession, Installation
from agents.router.answers import Answer, Asker, lines, told
from agents.router.days import days_of
from agents.router.intents import AGENT
from agents.router.words import Request
from agents.selectors.home import meter_today
from agents.services.plain_text import one_line
from audit.receipt_words import both_usd, usd

_SHOWN: Final = 20
_NAME_CHARS: Final = 80
_SUMS: Final = {"number": Count("pk"), "charged": Sum("cost_total_usd"), "actual": Sum("cost_actual_usd")}


def costs(request: Request, who: Asker) -> Answer:
    """What the person's sessions that began in a span of days (UTC) cost; by agent, if that is asked for."""
    if request.said & AGENT:
        return _per_agent(who)
    days = days_of(who.now)
    spans = {
        "today": days["today"],
        **({"yesterday": days["yesterday"]} if request.said & _YESTERDAY else {}),
        "last 7 days": days["week"],
        "this month": days["month"],
    }
    spent = {name: _sums(_begun(who, *span).aggregate(**_SUMS)) for name, span in spans.items()}
    installation = Installation.objects.filter(pk=1).values_list("max_cost_per_day_usd", flat=True).first()
    whole = meter_today(BudgetScope.INSTALLATION, 0, cap=installation, name="Installation", now=who.now)
    text = lines(
        "Your sessions, by the day on which they began (UTC):",
        [
            *(_said(name, row) for name, row in spent.items()),
            f"the whole installation today: {both_usd(whole.charged_usd, whole.actual_usd)}, cap {usd(whole.cap_usd)}",
        ],
    )
    day = {
        "charged_usd": f"{whole.charged_usd:.6f}",
        "actual_usd": f"{whole.actual_usd:.6f}",
        "cap_usd": None if whole.cap_usd is None else str(whole.cap_usd),
    }
    return told(text, spent={name.replace(" ", "_"): row for name, row in spent.items()}, installation=day)


_YESTERDAY: Final = frozenset({"yesterday", "yesterday's"})


def _per_agent(who: Asker) -> Answer:
    month, tomorrow = days_of(who.now)["month"]
    rows: Any = _begun(who, month, tomorrow).order_by().values("agent__public_id", "agent__name")
    found: Sequence[dict[str, Any]] = rows.annotate(**_SUMS).order_by("-charged", "agent__name")[:_SHOWN]
    shown = [
        {
            "id": str(row["agent__public_id"] or ""),
            "name": one_line(row["agent__name"] or "without an agent", _NAME_CHARS),
            **_sums(row),
        }
        for row in found
    ]
    head = f"Your sessions that began since {month:%-d %B} (UTC), by agent:"
    said = [_said(row["name"], row) for row in shown]
    return told(lines(head, said, empty="Your agents have run nothing this month."), agents=shown)


def _begun(who: Asker, since: datetime, until: datetime) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(owner=who.by, created_at__gte=since, created_at__lt=until)


def _sums(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "sessions": row["number"],
        "charged_usd": f"{row['charged'] or Decimal(0):.6f}",
        "actual_usd": f"{row['actual'] or Decimal(0):.6f}",
    }


def _said(name: str, row: dict[str, Any]) -> str:
    number = row["sessions"]
    cost = both_usd(Decimal(row["charged_usd"]), Decimal(row["actual_usd"]))
    return f"{name}: {cost}, {number} session{'' if number == 1 else 's'}"
