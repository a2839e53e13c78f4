"""Fast paths that only look: status, lists, receipts and costs, of the person's own rows. They write nothing."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db.models import Count, QuerySet, Sum

from agents.enums import ApprovalStatus, BudgetScope, Status
from agents.exceptions import Invalid, NotFound
from agents.models import AgentSession, Approval, Installation, Precedent, Trigger
from agents.router.answers import Answer, Asker, lines, told
from agents.router.ids import rows_by_id, short
from agents.router.words import Request
from agents.selectors.health import health
from agents.selectors.home import meter_today
from agents.selectors.purposes import purposes
from agents.services.approvers import PERMISSION
from agents.services.plain_text import one_line
from agents.services.precedents import precedents_board
from agents.transitions import TERMINAL
from audit.receipts import UnknownChain, build_receipt
from audit.receipts_told import receipt_text
from audit.rows import UnreadableRow

SHOWN: Final = 20
_NAME_CHARS: Final = 80
_STATUS_WORDS: Final = {
    "running": (Status.RUNNING,),
    "active": (Status.QUEUED, Status.RUNNING, Status.SLEEPING, Status.WAITING),
    "open": (Status.QUEUED, Status.RUNNING, Status.SLEEPING, Status.WAITING),
    "queued": (Status.QUEUED,),
    "waiting": (Status.WAITING,),
    "sleeping": (Status.SLEEPING,),
    "completed": (Status.COMPLETED,),
    "finished": tuple(sorted(TERMINAL)),
    "done": tuple(sorted(TERMINAL)),
    "halted": (Status.HALTED,),
    "stopped": (Status.HALTED,),
    "failed": (Status.FAILED,),
}
_NEWEST: Final = frozenset({"last", "latest", "newest", "recent"})


def own_sessions(who: Asker) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(owner=who.by).select_related("agent", "trigger").order_by("-pk")


def under_way(who: Asker) -> QuerySet[AgentSession]:
    return own_sessions(who).exclude(status__in=sorted(TERMINAL))


def reachable_approvals(who: Asker) -> QuerySet[Approval]:
    """Those of the person's own sessions; who may decide on approvals reaches everybody's."""
    rows = Approval.objects.select_related("session", "session__owner").order_by("created_at", "pk")
    return rows if who.by.has_perm(PERMISSION) else rows.filter(session__owner=who.by)


def status(request: Request, who: Asker) -> Answer:
    try:
        found = health(who.now)
    except Installation.DoesNotExist:
        raise Invalid("The installation row is missing: run manage.py migrate.") from None
    mine = under_way(who).order_by().values_list("status").annotate(number=Count("pk"))
    sessions = dict(mine.order_by("status"))
    pending = reachable_approvals(who).filter(status=ApprovalStatus.PENDING).count()
    state = "All work is halted." if found.halted else "Work goes on."
    counts = ", ".join(f"{number} {name}" for name, number in sessions.items()) or "none"
    head = f"{state} Your sessions under way: {counts}. Calls that wait for a decision: {pending}."
    text = lines(f"{head} To be mended:", found.red) if found.red else f"{head} Nothing has to be mended."
    return told(text, halted=found.halted, red=list(found.red), sessions=sessions, approvals_pending=pending)


def triggers(request: Request, who: Asker) -> Answer:
    rows = Trigger.objects.filter(owner=who.by, deleted_at__isnull=True)
    if request.said & {"active", "enabled", "live"}:
        rows = rows.filter(enabled=True, paused_at__isnull=True)
    elif "disabled" in request.said:
        rows = rows.filter(enabled=False)
    elif "paused" in request.said:
        rows = rows.filter(paused_at__isnull=False)
    count, shown = rows.count(), [_trigger(row) for row in rows.order_by("-pk")[:SHOWN]]
    said = [f"{row['name']} ({row['kind']}, {row['state']}), {row['id'][:8]}" for row in shown]
    return told(
        lines(_heading(count, "trigger"), said, empty="You have no such triggers."), count=count, triggers=shown
    )


def _trigger(row: Trigger) -> dict[str, Any]:
    state = "paused" if row.paused_at else "on" if row.enabled else "off"
    due = row.next_run_at.isoformat() if row.next_run_at and state == "on" else None
    return {
        "id": str(row.public_id),
        "name": one_line(row.name, _NAME_CHARS),
        "kind": row.kind,
        "state": state,
        "next_run_at": due,
    }


def sessions(request: Request, who: Asker) -> Answer | None:
    """The newest sessions, of a status and as many as the request says. None if the number is no number of rows."""
    most = next(iter(request.ids), str(SHOWN))
    if not re.fullmatch(r"[1-9]\d{0,2}", most):
        return None
    wanted = {one for word in request.said for one in _STATUS_WORDS.get(word, ())}
    rows = own_sessions(who)
    rows = rows.filter(status__in=sorted(wanted)) if wanted else rows
    count, shown = rows.count(), described(list(rows[: min(int(most), SHOWN)]))
    text = lines(_heading(count, "session"), [said_of(row) for row in shown], empty="You have no such sessions.")
    return told(text, count=count, sessions=shown)


def described(rows: list[AgentSession]) -> list[dict[str, Any]]:
    known = purposes(rows)
    return [
        {
            "id": str(row.public_id),
            "status": row.status,
            "terminal_reason": row.terminal_reason,
            "purpose": one_line(known[row.pk], _NAME_CHARS),
            "charged_usd": str(row.cost_total_usd),
            "created_at": row.created_at.isoformat(),
        }
        for row in rows
    ]


def said_of(shown: dict[str, Any]) -> str:
    return f"{shown['id'][:8]} {shown['status']}: {shown['purpose']}, {shown['charged_usd']} USD"


def receipt(request: Request, who: Asker) -> Answer:
    rows = own_sessions(who)
    if not request.ids and request.said & _NEWEST and not request.said & {"receipts"}:
        found = list(rows[:1])
    elif len(request.ids) == 1:
        found = rows_by_id(rows, request.ids[0])
        if not found:
            raise NotFound(f"You have no session {request.ids[0]}; ask for `list sessions`.")
    else:
        found = list(rows[:SHOWN])
    if len(found) == 1:
        return _receipt(found[0])
    shown = described(found)
    text = lines("Say which session: `show receipt <id>`.", [said_of(row) for row in shown])
    return told(text if shown else "You have no sessions.", sessions=shown)


def _receipt(session: AgentSession) -> Answer:
    try:
        built = build_receipt(session.chain)
    except (UnknownChain, UnreadableRow):
        return told(f"Session {short(session)} has no receipt yet: it has not begun.", session=str(session.public_id))
    return told(receipt_text(built), receipt=built)


def approvals(request: Request, who: Asker) -> Answer:
    rows = reachable_approvals(who).filter(status=ApprovalStatus.PENDING)
    count, shown = rows.count(), [described_approval(row) for row in rows[:SHOWN]]
    said = [said_of_approval(row) for row in shown]
    how = " `approve <id>` shows one and how to decide on it."
    text = lines(_heading(count, "call", " waiting for a decision") + how, said, empty="Nothing waits for a decision.")
    return told(text, count=count, approvals=shown)


def described_approval(row: Approval) -> dict[str, Any]:
    """As the list of the API shows it: without arguments."""
    return {
        "id": str(row.public_id),
        "action": row.action,
        "level": row.level,
        "risk": row.risk_level,
        "session": str(row.session.public_id),
        "owner": row.session.owner.get_username(),
        "expires_at": row.expires_at.isoformat(),
    }


def said_of_approval(shown: dict[str, Any]) -> str:
    return f"{shown['id'][:8]} {shown['action']} (level {shown['level']}) for {shown['owner']}"


def precedents(request: Request, who: Asker) -> Answer:
    rows = precedents_board(who.by.pk)
    count, shown = rows.count(), [_precedent(row) for row in rows[:SHOWN]]
    said = [f"{row['summary']} ({row['kind']}, seen {row['observed_count']} times)" for row in shown]
    text = lines(_heading(count, "precedent"), said, empty="You have no precedents.")
    return told(text, count=count, precedents=shown)


def _precedent(row: Precedent) -> dict[str, Any]:
    return {
        "id": str(row.public_id),
        "kind": row.pattern_kind,
        "summary": one_line(row.summary, _NAME_CHARS),
        "observed_count": row.observed_count,
        "last_seen_at": row.last_seen_at.isoformat(),
    }


def costs(request: Request, who: Asker) -> Answer:
    """What the person's sessions that began in a span of days (UTC) were charged; and the installation's day."""
    today = who.now.astimezone(UTC).date()
    begun = {"today": today, "last 7 days": today - timedelta(days=6), "this month": today.replace(day=1)}
    spent = {name: _spent(who, since) for name, since in begun.items()}
    installation = Installation.objects.filter(pk=1).values_list("max_cost_per_day_usd", flat=True).first()
    whole = meter_today(BudgetScope.INSTALLATION, 0, cap=installation, name="Installation", now=who.now)
    text = lines(
        "Your sessions, charged in US dollars (by the day on which they began, UTC):",
        [
            *(f"{name}: {row['charged_usd']} for {row['sessions']} sessions" for name, row in spent.items()),
            f"the whole installation today: {whole.charged_usd:.6f} of {whole.cap_usd}",
        ],
    )
    charged = {
        "charged_usd": f"{whole.charged_usd:.6f}",
        "cap_usd": None if whole.cap_usd is None else str(whole.cap_usd),
    }
    return told(text, spent={name.replace(" ", "_"): row for name, row in spent.items()}, installation=charged)


def _spent(who: Asker, since: date) -> dict[str, Any]:
    start = datetime(since.year, since.month, since.day, tzinfo=UTC)
    rows = AgentSession.objects.filter(owner=who.by, created_at__gte=start)
    sums = rows.aggregate(number=Count("pk"), charged=Sum("cost_total_usd"), actual=Sum("cost_actual_usd"))
    return {
        "sessions": sums["number"],
        "charged_usd": f"{sums['charged'] or Decimal(0):.6f}",
        "actual_usd": f"{sums['actual'] or Decimal(0):.6f}",
    }


def _heading(count: int, noun: str, more: str = "") -> str:
    kept = f"; at most {SHOWN} are shown" if count > SHOWN else ""
    return f"{count} {noun}{'' if count == 1 else 's'}{more}{kept}:"
