"""The fast path that tells what was spent: by both ledgers, of the person's own sessions. It writes nothing."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Sum

from agents.ask.days import dated, days_of, named_days
from agents.ask.intents import AGENT, COSTS, COSTS_OF_ONE, is_covered
from agents.ask.language import Request
from agents.ask.naming import Answer, Asker, lines, told
from agents.ask.router_naming import names_in
from agents.enums import BudgetScope
from agents.models import Agent, AgentSession, Installation
from agents.sessions.control_room import meter_today
from agents.text.clean import one_line
from audit.receipts import both_usd, usd

_SHOWN: Final = 20
_NAME_CHARS: Final = 80
_SUMS: Final = {"number": Count("pk"), "charged": Sum("cost_total_usd"), "actual": Sum("cost_actual_usd")}


def costs(request: Request, who: Asker) -> Answer | None:
    """What the person's sessions that began in a span of days (UTC) cost; by agent, or of one, if that is asked for.

    None if words are left that are neither about costs nor the name of an agent.
    """
    named = named_days(request.said)
    if not is_covered(request, COSTS):
        agent = agent_meant(request, who.by)
        return _of_agent(agent, named or "this month", who) if agent else None
    if request.said & AGENT:
        return _per_agent(named or "this month", who)
    days = days_of(who.now)
    spans = {name: days[name] for name in ("today", named, "last 7 days", "this month") if name}
    spent = {name: _sums(_begun(who, *span).aggregate(**_SUMS)) for name, span in spans.items()}
    installation = Installation.objects.filter(pk=1).values_list("max_cost_per_day_usd", flat=True).first()
    whole = meter_today(BudgetScope.INSTALLATION, 0, cap=installation, name="Installation", now=who.now)
    text = lines(
        "Your sessions, by the day on which they began (UTC):",
        [
            *(_said(dated(name, spans[name]), row) for name, row in spent.items()),
            f"the whole installation today: {both_usd(whole.charged_usd, whole.actual_usd)}, cap {usd(whole.cap_usd)}",
        ],
    )
    day = {
        "charged_usd": f"{whole.charged_usd:.6f}",
        "actual_usd": f"{whole.actual_usd:.6f}",
        "cap_usd": None if whole.cap_usd is None else str(whole.cap_usd),
    }
    return told(text, spent={name.replace(" ", "_"): row for name, row in spent.items()}, installation=day)


def agent_meant(request: Request, owner: User) -> Agent | None:
    """The one agent of the person that a request for costs names, if it says nothing else."""
    names = names_in(request, owner, ["agent"])
    agents: list[Agent] = names.of("agent")
    said = request.without(names.places)
    return agents[0] if len(agents) == 1 and is_covered(said, COSTS_OF_ONE) else None


def _of_agent(agent: Agent, days: str, who: Asker) -> Answer:
    span = days_of(who.now)[days]
    row = _sums(_begun(who, *span).filter(agent=agent).aggregate(**_SUMS))
    name = one_line(agent.name, _NAME_CHARS)
    text = f"Sessions of {name} that began {dated(days, span)}, in UTC: {_said(name, row)}."
    return told(text, agents=[{"id": str(agent.public_id), "name": name, **row}], days=days)


def _per_agent(days: str, who: Asker) -> Answer:
    span = days_of(who.now)[days]
    rows: Any = _begun(who, *span).order_by().values("agent__public_id", "agent__name")
    found: Sequence[dict[str, Any]] = rows.annotate(**_SUMS).order_by("-charged", "agent__name")[:_SHOWN]
    shown = [
        {
            "id": str(row["agent__public_id"] or ""),
            "name": one_line(row["agent__name"] or "without an agent", _NAME_CHARS),
            **_sums(row),
        }
        for row in found
    ]
    head = f"Your sessions that began {dated(days, span)}, in UTC, by agent:"
    said = [_said(row["name"], row) for row in shown]
    return told(lines(head, said, empty=f"Your agents have run nothing {days}."), agents=shown, days=days)


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
