"""Fast paths that only look: status, lists and receipts, of the person's own rows. They write nothing."""

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Sum
from django.template.defaultfilters import pluralize

from agents.ask.chats import ANSWERED_AT_ONCE
from agents.ask.language import AGENT, COSTS, COSTS_OF_ONE, QUESTIONS, Request, is_covered
from agents.ask.naming import (
    Answer,
    Asker,
    dated,
    days_of,
    heading,
    lines,
    named_days,
    names_in,
    rows_by_id,
    short,
    told,
)
from agents.enums import ApprovalStatus, BudgetScope, QuestionStatus, Status
from agents.exceptions import Invalid, NotFound
from agents.knowledge.projects import precedents_board
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_told
from agents.loop.reads import under_way_of
from agents.models import Agent, AgentSession, Approval, Installation, Precedent, Question, Trigger
from agents.policy.transitions import TERMINAL
from agents.sessions.control_room import HALTED, health, meter_today
from agents.sessions.reads import purposes
from agents.sessions.standing import PERMISSION
from agents.skills.registry import skills_left_out
from agents.text.clean import one_line
from audit.kinds import actors_of, usernames
from audit.receipt_text import NAMES, receipt_text
from audit.receipts import UnknownChain, both_usd, build_receipt, usd
from audit.rows import UnreadableRow

# The fast path that tells what was spent: by both ledgers, of the person's own sessions. It writes nothing.


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
    spent = {name: _sums(_sessions_begun(who, *span).aggregate(**_SUMS)) for name, span in spans.items()}
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
    row = _sums(_sessions_begun(who, *span).filter(agent=agent).aggregate(**_SUMS))
    name = one_line(agent.name, _NAME_CHARS)
    text = f"Sessions of {name} that began {dated(days, span)}, in UTC: {_said(name, row)}."
    return told(text, agents=[{"id": str(agent.public_id), "name": name, **row}], days=days)


def _per_agent(days: str, who: Asker) -> Answer:
    span = days_of(who.now)[days]
    rows: Any = _sessions_begun(who, *span).order_by().values("agent__public_id", "agent__name")
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


def _sessions_begun(who: Asker, since: datetime, until: datetime) -> QuerySet[AgentSession]:
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


# The fast path that tells what waits for the person: calls that need a decision, and what agents ask. It writes
# nothing, and so tells no words of what others are asked.


SHOWN: Final = 20
_WORDS_CHARS: Final = 80
_DECIDE: Final = " `approve <id>` shows one and how to decide on it."
_ANSWER: Final = ' Answer on the page Questions of the admin, or with `manage.py answer <id> "…" --user NAME`.'


def reachable_approvals(who: Asker) -> QuerySet[Approval]:
    """Those of the person's own sessions; who may decide on approvals reaches everybody's."""
    rows = Approval.objects.select_related("session", "session__owner").order_by("created_at", "pk")
    return rows if who.by.has_perm(PERMISSION) else rows.filter(session__owner=who.by)


def pending_approvals(who: Asker) -> QuerySet[Approval]:
    return reachable_approvals(who).filter(status=ApprovalStatus.PENDING)


def pending_questions(who: Asker) -> QuerySet[Question]:
    """What the person may answer: the same reach."""
    rows = Question.objects.filter(status=QuestionStatus.PENDING).select_related("session", "session__owner")
    rows = rows.order_by("asked_at", "pk")
    return rows if who.by.has_perm(PERMISSION) else rows.filter(session__owner=who.by)


def waiting(request: Request, who: Asker) -> Answer | None:
    """Both, each with how it is dealt with; of the one that nothing is there of, nothing is said. In a chat,
    `any questions?` is said to the agent: None."""
    if who.in_chat and request.said & QUESTIONS:
        return None
    calls, asked = pending_approvals(who), pending_questions(who)
    count, questions = calls.count(), asked.count()
    approvals = [described_approval(row) for row in calls[:SHOWN]]
    shown = [_described_question(row, who) for row in asked[:SHOWN]]
    heads = [
        *([heading(count, "call", " waiting for a decision", most=SHOWN) + _DECIDE] if count else []),
        *([heading(questions, "question", " waiting for an answer", most=SHOWN) + _ANSWER] if questions else []),
    ]
    said = [*map(said_of_approval, approvals), *map(_said_of_question, shown)]
    text = "\n".join([" ".join(heads), *(f"- {line}" for line in said)]) if heads else "Nothing waits for a decision."
    return told(text, count=count, approvals=approvals, questions_count=questions, questions=shown)


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


def _described_question(row: Question, who: Asker) -> dict[str, Any]:
    own = row.session.owner_id == who.by.pk
    return {
        "id": str(row.public_id),
        "text": one_line(row.text, _WORDS_CHARS) if own else "",
        "session": str(row.session.public_id),
        "owner": row.session.owner.get_username(),
        "expires_at": row.expires_at.isoformat(),
    }


def _said_of_question(shown: dict[str, Any]) -> str:
    return f"{shown['id'][:8]} asks {shown['owner']}" + (f": {shown['text']}" if shown["text"] else "")


_UNDER_WAY: Final = tuple(status for status in Status if status not in TERMINAL)
_STATUS_WORDS: Final = {
    "running": _UNDER_WAY,
    "active": _UNDER_WAY,
    **dict.fromkeys(("open", "live", "ongoing", "unfinished"), _UNDER_WAY),
    "queued": (Status.QUEUED,),
    "waiting": (Status.WAITING,),
    "sleeping": (Status.SLEEPING,),
    "completed": (Status.COMPLETED,),
    "finished": tuple(sorted(TERMINAL)),
    "done": tuple(sorted(TERMINAL)),
    "halted": (Status.HALTED,),
    "stopped": (Status.HALTED,),
    **dict.fromkeys(("failed", "fail", "failing", "crashed", "failures"), (Status.FAILED,)),
}
_NEWEST: Final = frozenset({"last", "latest", "newest", "recent"})


def own_sessions(who: Asker) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(owner=who.by).select_related("agent", "trigger").order_by("-pk")


def _runs(who: Asker) -> QuerySet[AgentSession]:
    """Without the messages that were answered at once: nothing ran for them."""
    return own_sessions(who).exclude(ANSWERED_AT_ONCE)


def under_way(who: Asker) -> QuerySet[AgentSession]:
    return own_sessions(who).exclude(status__in=sorted(TERMINAL))


def status(request: Request, who: Asker) -> Answer:
    """How the installation is; and of the person's agents, when these are asked for."""
    if request.said & AGENT:
        return _agents(who)
    try:
        found = health(who.now)
    except Installation.DoesNotExist:
        raise Invalid("The installation row is missing: run manage.py migrate.") from None
    mine = under_way(who).order_by().values_list("status").annotate(number=Count("pk"))
    sessions = dict(mine.order_by("status"))
    counts = ", ".join(f"{number} {name}" for name, number in sessions.items()) or "none"
    waiting = {"approvals_pending": pending_approvals(who).count(), "questions_pending": pending_questions(who).count()}
    red = [line for line in found.red if line != HALTED] + list(skills_left_out())
    attention = [*red, *(_WAITS[name].format(number) for name, number in waiting.items() if number)]
    halted = [HALTED] if found.halted else []
    state = f"{_halt_said()} Your" if found.halted else "Work goes on. Your"
    head = f"{state} sessions under way: {counts}."
    text = lines(f"{head} Needs attention:", attention) if attention else head
    text += "" if attention or halted else " Nothing needs attention."
    return told(text, halted=found.halted, red=[*halted, *red], sessions=sessions, **waiting)


_WAITS: Final = {
    "approvals_pending": "Calls that wait for a decision: {}. Ask: what waits for me?",
    "questions_pending": "Questions of agents that wait for an answer: {}. Ask: what waits for me?",
}


def _halt_said() -> str:
    """By whom all work is halted, why, and how it is released."""
    halt = current_halt()
    return f"{halt_told(halt)} {TO_RELEASE}" if halt else HALTED


def _agents(who: Asker) -> Answer:
    rows = list(Agent.objects.filter(owner=who.by).order_by("name", "pk")[:SHOWN])
    count, going = Agent.objects.filter(owner=who.by).count(), under_way_of([row.pk for row in rows])
    shown = [
        {
            "id": str(row.public_id),
            "name": one_line(row.name, _NAME_CHARS),
            "enabled": row.enabled,
            "by_itself": going[row.pk].status if row.pk in going else None,
        }
        for row in rows
    ]
    standing = [(row["name"], "on" if row["enabled"] else "off", row["by_itself"]) for row in shown]
    said = [f"{name}: {state}" + (f", works by itself ({how})" if how else "") for name, state, how in standing]
    return told(
        lines(heading(count, "agent", most=SHOWN), said, empty="You have no agents."), count=count, agents=shown
    )


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
        lines(heading(count, "trigger", most=SHOWN), said, empty="You have no such triggers."),
        count=count,
        triggers=shown,
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
    rows = _runs_begun(_runs(who), request, who)
    rows = rows.filter(status__in=sorted(wanted)) if wanted else rows
    count, shown = rows.count(), described(list(rows[: min(int(most), SHOWN)]))
    text = lines(heading(count, "session", most=SHOWN), [said_of(row) for row in shown], empty=_instead(who))
    return told(text, count=count, sessions=shown)


def _runs_begun(rows: QuerySet[AgentSession], request: Request, who: Asker) -> QuerySet[AgentSession]:
    """Those that began in the days that the request names, in UTC; all of them if it names none."""
    span = days_of(who.now).get(named_days(request.said))
    return rows.filter(created_at__gte=span[0], created_at__lt=span[1]) if span else rows


def _instead(who: Asker) -> str:
    """What there is when there are no sessions of the kind that was asked for."""
    rows = _runs(who).order_by().values_list("status").annotate(number=Count("pk")).order_by("status")
    counts = ", ".join(f"{number} {name}" for name, number in rows)
    return f"You have no such sessions. You have: {counts}." if counts else "You have no sessions."


def described(rows: list[AgentSession]) -> list[dict[str, Any]]:
    known = purposes(rows)
    return [
        {
            "id": str(row.public_id),
            "status": row.status,
            "terminal_reason": row.terminal_reason,
            "purpose": one_line(known[row.pk], _NAME_CHARS),
            "charged_usd": str(row.cost_total_usd),
            "actual_usd": str(row.cost_actual_usd),
            "created_at": row.created_at.isoformat(),
        }
        for row in rows
    ]


def said_of(shown: dict[str, Any]) -> str:
    cost = both_usd(Decimal(shown["charged_usd"]), Decimal(shown["actual_usd"]))
    return f"{shown['id'][:8]} {shown['status']}: {shown['purpose']}, {cost}"


def receipt(request: Request, who: Asker) -> Answer:
    rows = own_sessions(who)
    if not request.ids and request.said & _NEWEST and not request.said & {"receipts"}:
        found = list(_runs(who)[:1])
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
    return told(receipt_text(built, {**NAMES, **usernames(actors_of(built))}), receipt=built)


def precedents(request: Request, who: Asker) -> Answer:
    rows = precedents_board(who.by.pk)
    count, shown = rows.count(), [_precedent(row) for row in rows[:SHOWN]]
    said = [
        f"{row['summary']} ({row['kind']}, seen {row['observed_count']} time{pluralize(row['observed_count'])})"
        for row in shown
    ]
    text = lines(heading(count, "precedent", most=SHOWN), said, empty="You have no precedents.")
    return told(text, count=count, precedents=shown)


def _precedent(row: Precedent) -> dict[str, Any]:
    return {
        "id": str(row.public_id),
        "kind": row.pattern_kind,
        "summary": one_line(row.summary, _NAME_CHARS),
        "observed_count": row.observed_count,
        "last_seen_at": row.last_seen_at.isoformat(),
    }
