"""Fast paths that only read: status, lists, receipts and costs of the person's own rows."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.db.models import Count, Q, QuerySet, Sum

from agents.ask.chats import ANSWERED_AT_ONCE
from agents.ask.naming import Answer, AskContext, Match, lines, listing, message, rows_by_id, short_id
from agents.enums import ApprovalStatus, BudgetScope, QuestionStatus, RunResult, Status
from agents.exceptions import Invalid, NotFound
from agents.knowledge.projects import precedents_open
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_message
from agents.loop.reads import autonomous_sessions
from agents.models import Agent, AgentSession, Approval, Installation, Precedent, Question, Trigger
from agents.models.sessions import spent_by_run
from agents.people.delegations import is_approver
from agents.policy.periods import Span, spans
from agents.policy.transitions import TERMINAL
from agents.sessions.approvals import PERMISSION
from agents.sessions.control_room import HALTED, health, meter_today, sessions_unfinished
from agents.sessions.pauses import pause_message, work_paused
from agents.sessions.reads import progress_of, purposes
from agents.sessions.second_eyes import tally, yeses_needed
from agents.skills.registry import skills_left_out
from agents.text.clean import one_line
from audit.kinds import actors_of, usernames
from audit.receipts import NAMES, UnknownChain, build_receipt, receipt_text, usd
from audit.rows import UnreadableRow

MAX_SHOWN: Final = 20
_TEXT_CHARS: Final = 80


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _heading(number: int, noun: str, hint: str = "") -> str:
    shown = f"; the first {MAX_SHOWN} are shown" if number > MAX_SHOWN else ""
    return f"{_count(number, noun)}{shown}: {hint}".rstrip()


def _list(
    noun: str, rows: QuerySet[Any], describe: Callable[[Any], tuple[str, Any]], *, empty: str, hint: str = ""
) -> Answer:
    """A list of rows; `describe` gives the line and the data of one."""
    count = rows.count()
    shown = [describe(row) for row in rows[:MAX_SHOWN]]
    return listing(_heading(count, noun, hint), shown, f"{noun}s", empty=empty, count=count)


# --- Status, agents and triggers ---


def status(match: Match, context: AskContext) -> Answer:
    """The state of the installation, or of the person's agents."""
    if match.action == "agents":
        return _agents(context)
    try:
        found = health(context.now)
    except Installation.DoesNotExist:
        raise Invalid("The installation row is missing: run manage.py migrate.") from None
    active = under_way(context).order_by().values_list("status").annotate(number=Count("pk")).order_by("status")
    counts = dict(active)
    approvals, questions = pending_approvals(context).count(), pending_questions(context).count()
    halt = current_halt()
    red = [*found.red, *skills_left_out()]
    attention = [line for line in red if line != HALTED]
    if approvals:
        attention.append(f"Calls waiting for approval: {approvals}. Ask: approvals")
    if unfinished := sessions_unfinished(context.now).filter(owner=context.user).count():
        attention.append(
            f"Your runs that failed or stopped early in the last 24 hours: {unfinished}. Ask: runs failed partial"
        )
    if questions:
        attention.append(f"Questions of agents waiting for an answer: {questions}. Ask: questions")
    runs = ", ".join(f"{number} {name}" for name, number in counts.items())
    paused = work_paused()
    state = f"{halt_message(halt)} {TO_RELEASE}" if halt else "Nothing is halted."
    state += f" {pause_message(paused)}" if paused else ""
    text = f"{state} Your active runs: {runs or 'none'}."
    if attention:
        text = lines(f"{text} Needs attention:", attention)
    elif not halt and not paused:
        text += " Nothing needs attention."
    return message(
        text,
        halted=halt is not None,
        paused=paused is not None,
        red=red,
        sessions=counts,
        approvals_pending=approvals,
        questions_pending=questions,
    )


def _agents(context: AskContext) -> Answer:
    rows = Agent.objects.filter(owner=context.user, archived_at__isnull=True).order_by("name", "pk")
    active = autonomous_sessions([row.pk for row in rows[:MAX_SHOWN]])

    def describe(row: Agent) -> tuple[str, Any]:
        name = one_line(row.name, _TEXT_CHARS)
        loop = active[row.pk].status if row.pk in active else None
        line = f"{name}: {'on' if row.enabled else 'off'}" + (f", loop {loop}" if loop else "")
        return line, {"id": str(row.public_id), "name": name, "enabled": row.enabled, "by_itself": loop}

    return _list("agent", rows, describe, empty="You have no agents.")


_TRIGGER_STATES: Final[dict[str, dict[str, bool]]] = {
    "active": {"enabled": True, "paused_at__isnull": True},
    "enabled": {"enabled": True},
    "disabled": {"enabled": False},
    "paused": {"paused_at__isnull": False},
}


def triggers(match: Match, context: AskContext) -> Answer:
    rows = Trigger.objects.filter(owner=context.user, deleted_at__isnull=True).order_by("-pk")
    for word, state in _TRIGGER_STATES.items():
        if word in match.words:
            rows = rows.filter(**state)
    return _list("trigger", rows, _trigger, empty="You have no such triggers.")


def _trigger(row: Trigger) -> tuple[str, Any]:
    name = one_line(row.name, _TEXT_CHARS)
    state = "paused" if row.paused_at else "on" if row.enabled else "off"
    due = row.next_run_at.isoformat() if row.next_run_at and state == "on" else None
    data = {"id": str(row.public_id), "name": name, "kind": row.kind, "state": state, "next_run_at": due}
    return f"{name} ({row.kind}, {state}), {short_id(row)}", data


# --- Runs and receipts ---


_ACTIVE: Final = tuple(status for status in Status if status not in TERMINAL)
_STATUS_WORDS: Final = {
    **{str(status): (status,) for status in Status},
    **dict.fromkeys(("running", "active"), _ACTIVE),
    "fail": (Status.FAILED,),
}
# A run can complete and still have failed at its work.
_RESULT_WORDS: Final = {
    **dict.fromkeys(("fail", "failed"), (RunResult.FAILED,)),
    "partial": (RunResult.PARTIAL,),
}


def own_sessions(context: AskContext) -> QuerySet[AgentSession]:
    return AgentSession.objects.filter(owner=context.user).select_related("agent", "trigger").order_by("-pk")


def under_way(context: AskContext) -> QuerySet[AgentSession]:
    return own_sessions(context).exclude(status__in=sorted(TERMINAL))


def _runs(context: AskContext) -> QuerySet[AgentSession]:
    """Without messages that were answered at once: nothing ran for them."""
    return own_sessions(context).exclude(ANSWERED_AT_ONCE)


def sessions(match: Match, context: AskContext) -> Answer:
    """The newest runs, of the status and in the days that the request says."""
    rows = _runs(context)
    if days := _days_named(match):
        rows = _started_in(rows, spans(context.now)[days])
    words = match.words.split()
    statuses = {status for word in words for status in _STATUS_WORDS.get(word, ())}
    results = {result for word in words for result in _RESULT_WORDS.get(word, ())}
    if statuses or results:
        rows = rows.filter(Q(status__in=sorted(statuses)) | Q(run_result__in=sorted(results)))
    count = rows.count()
    shown = session_rows(list(rows[:MAX_SHOWN]))
    return listing(_heading(count, "run"), shown, "sessions", empty="You have no such runs.", count=count)


def session_rows(rows: list[AgentSession]) -> list[tuple[str, Any]]:
    """The line and the data of each run."""
    known = purposes(rows)
    found = []
    for row in rows:
        data = {
            "id": str(row.public_id),
            "status": row.status,
            "terminal_reason": row.terminal_reason,
            "result": row.run_result,
            "result_reason": row.result_reason,
            "purpose": one_line(known[row.pk], _TEXT_CHARS),
            "spent_usd": str(row.spent_usd),
            "charged_usd": str(row.cost_total_usd),
            "actual_usd": str(row.cost_actual_usd),
            "created_at": row.created_at.isoformat(),
        }
        found.append((f"{short_id(row)} {_state(row)}: {data['purpose']}, {_cost_text(data)}{_why(row)}", data))
    return found


def _state(row: AgentSession) -> str:
    """The result of a run that is over, with its status if that says more; else the status."""
    if not row.run_result:
        return f"{row.status}, {progress}" if (progress := progress_of(row)) else row.status
    return row.run_result if row.status in {Status.COMPLETED, row.run_result} else f"{row.run_result} ({row.status})"


def _why(row: AgentSession) -> str:
    return f". {row.result_reason}" if row.run_result in {RunResult.PARTIAL, RunResult.FAILED} else ""


def receipt(match: Match, context: AskContext) -> Answer:
    if match.ids:
        found = rows_by_id(own_sessions(context), match.ids[0])
        if not found:
            raise NotFound(f"You have no run {match.ids[0]}. Ask: runs")
    else:
        is_last = "last" in match.words or "latest" in match.words
        found = list(_runs(context)[: 1 if is_last else MAX_SHOWN])
    if len(found) == 1:
        return _receipt(found[0])
    rows = session_rows(found)
    return listing("Say which run: `receipt <id>`.", rows, "sessions", empty="You have no runs.")


def _receipt(session: AgentSession) -> Answer:
    try:
        built = build_receipt(session.chain)
    except (UnknownChain, UnreadableRow):
        return message(
            f"Run {short_id(session)} has no receipt yet: it has not started.", session=str(session.public_id)
        )
    return message(receipt_text(built, {**NAMES, **usernames(actors_of(built))}), receipt=built)


# --- Approvals and questions ---


def reachable_approvals(context: AskContext) -> QuerySet[Approval]:
    """Those of the person's own runs; of everybody's for those who may decide on approvals."""
    rows = Approval.objects.select_related("session", "session__owner").order_by("created_at", "pk")
    return rows if is_approver(context.user, context.now) else rows.filter(session__owner=context.user)


def pending_approvals(context: AskContext) -> QuerySet[Approval]:
    return reachable_approvals(context).filter(status=ApprovalStatus.PENDING)


def pending_questions(context: AskContext) -> QuerySet[Question]:
    """Those that the person may answer: the same rule."""
    rows = Question.objects.filter(status=QuestionStatus.PENDING).select_related("session", "session__owner")
    rows = rows.order_by("asked_at", "pk")
    return rows if context.user.has_perm(PERMISSION) else rows.filter(session__owner=context.user)


def waiting(match: Match, context: AskContext) -> Answer | None:
    """Calls that need a decision and questions of agents. In a chat, `any questions` is meant for the agent."""
    if context.in_chat and match.action == "questions":
        return None
    calls = _list(
        "approval", pending_approvals(context), approval_row, empty="", hint="`approve <id>` shows the call in full."
    )
    how = 'Answer on the page Questions of the admin, or with `manage.py answer <id> "…" --user NAME`.'
    questions = _list("question", pending_questions(context), partial(_question, context), empty="", hint=how)
    text = "\n".join(filter(None, [calls.text, questions.text])) or "Nothing is waiting for you."
    more = {"questions": questions.data["questions"], "questions_count": questions.data["count"]}
    return message(text, **calls.data, **more)


def approval_row(row: Approval) -> tuple[str, dict[str, Any]]:
    """The line and the data of an approval; as in the list of the API, without arguments."""
    owner = row.session.owner.get_username()
    data = {
        "id": str(row.public_id),
        "action": row.action,
        "level": row.level,
        "risk": row.risk_level,
        "session": str(row.session.public_id),
        "owner": owner,
        "expires_at": row.expires_at.isoformat(),
    }
    said = f", {tally(row)}" if yeses_needed(row.level) > 1 else ""
    return f"{short_id(row)} {row.action} (level {row.level}) for {owner}{said}", data


def _question(context: AskContext, row: Question) -> tuple[str, Any]:
    """Without its text if it belongs to somebody else: reading that would have to be audited."""
    owner = row.session.owner.get_username()
    text = one_line(row.text, _TEXT_CHARS) if row.session.owner_id == context.user.pk else ""
    data = {
        "id": str(row.public_id),
        "text": text,
        "session": str(row.session.public_id),
        "owner": owner,
        "expires_at": row.expires_at.isoformat(),
    }
    return f"{short_id(row)} asks {owner}" + (f": {text}" if text else ""), data


# --- Precedents ---


def precedents(match: Match, context: AskContext) -> Answer:
    rows = precedents_open(context.user.pk)
    return _list("precedent", rows, _precedent, empty="You have no precedents.")


def _precedent(row: Precedent) -> tuple[str, Any]:
    data = {
        "id": str(row.public_id),
        "kind": row.pattern_kind,
        "summary": one_line(row.summary, _TEXT_CHARS),
        "observed_count": row.observed_count,
        "last_seen_at": row.last_seen_at.isoformat(),
    }
    return f"{data['summary']} ({row.pattern_kind}, seen {_count(row.observed_count, 'time')})", data


# --- Costs ---


_SUMS: Final = {
    "number": Count("pk"),
    "spent": Sum(spent_by_run()),
    "charged": Sum("cost_total_usd"),
    "actual": Sum("cost_actual_usd"),
}


def costs(match: Match, context: AskContext) -> Answer:
    """Return the cost of the person's runs that started in some days (UTC), by agent or of one agent if asked for."""
    named = _days_named(match)
    if match.rows or "per" in match.words:
        return _costs_by_agent(named or "this month", match.of("agent"), context)
    days = {name: spans(context.now)[name] for name in ("today", named, "last 7 days", "this month") if name}
    spent = {
        name: _sums_data(_started_in(own_sessions(context), span).aggregate(**_SUMS)) for name, span in days.items()
    }
    cap = Installation.objects.filter(pk=1).values_list("max_cost_per_day_usd", flat=True).first()
    whole = meter_today(BudgetScope.INSTALLATION, 0, cap=cap, name="Installation", now=context.now)
    text = lines(
        "Your runs, by the day on which they started (UTC):",
        [
            *(_spent_line(_days_text(name, days[name]), row) for name, row in spent.items()),
            f"the whole installation today: {usd(whole.spent_usd)}, cap {usd(whole.cap_usd)}",
        ],
    )
    installation = {
        "spent_usd": f"{whole.spent_usd:.6f}",
        "charged_usd": f"{whole.charged_usd:.6f}",
        "actual_usd": f"{whole.actual_usd:.6f}",
        "cap_usd": None if whole.cap_usd is None else str(whole.cap_usd),
    }
    spent = {name.replace(" ", "_"): row for name, row in spent.items()}
    return message(text, spent=spent, installation=installation)


def _costs_by_agent(days: str, agents: list[Agent], context: AskContext) -> Answer:
    span = spans(context.now)[days]
    runs = _started_in(own_sessions(context), span)
    rows: Any = (runs.filter(agent__in=agents) if agents else runs).order_by().values("agent__public_id", "agent__name")
    found: Sequence[dict[str, Any]] = rows.annotate(**_SUMS).order_by("-spent", "agent__name")[:MAX_SHOWN]
    shown = [
        {
            "id": str(row["agent__public_id"] or ""),
            "name": one_line(row["agent__name"] or "without an agent", _TEXT_CHARS),
            **_sums_data(row),
        }
        for row in found
    ]
    head = f"Your runs that started {_days_text(days, span)}, in UTC, by agent:"
    rows_shown = [(_spent_line(row["name"], row), row) for row in shown]
    return listing(head, rows_shown, "agents", empty=f"You have no such runs {days}.", days=days)


def _sums_data(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "sessions": row["number"],
        "spent_usd": f"{row['spent'] or Decimal(0):.6f}",
        "charged_usd": f"{row['charged'] or Decimal(0):.6f}",
        "actual_usd": f"{row['actual'] or Decimal(0):.6f}",
    }


def _cost_text(row: dict[str, Any]) -> str:
    return usd(Decimal(row["spent_usd"]))


def _spent_line(name: str, row: dict[str, Any]) -> str:
    return f"{name}: {_cost_text(row)}, {_count(row['sessions'], 'run')}"


# --- Days, in UTC ---


_PERIOD: Final = re.compile(r"\b(?:today|yesterday|overnight|last night|(?:this|last) (?:week|month))\b")


def _days_named(match: Match) -> str:
    """The period that a request names; empty if it names none."""
    found = _PERIOD.search(match.words)
    return found[0] if found else ""


def _days_text(name: str, span: Span) -> str:
    """A period with its dates: last week (2 March to 8 March)."""
    first, last = span[0], span[1] - timedelta(days=1)
    return name if first == last else f"{name} ({first:%-d %B} to {last:%-d %B})"


def _started_in(rows: QuerySet[AgentSession], span: Span) -> QuerySet[AgentSession]:
    return rows.filter(created_at__gte=span[0], created_at__lt=span[1])
