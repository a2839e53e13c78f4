"""The skills of the console: questions of a person about their own rows, answered by a model that can only read.

Every skill is local and has no side effects. `ROWS` of agents/sessions/own_rows.py says which rows a person may see.
A row is given to the model with its reference; links in an answer are made from references that these skills returned,
and found again for the person who reads it. `propose_action` does nothing: the person gets a button for what it names.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Literal

from django.contrib.auth import get_user_model
from django.db.models import Case, Count, F, Q, QuerySet, Sum, When
from pydantic import Field

from agents.conf import manual_folder
from agents.enums import ApprovalStatus, Level, RunResult, SensorState, Status, TerminalReason
from agents.exceptions import Invalid, NotFound
from agents.knowledge.search import search_chunks
from agents.models import AgentSession
from agents.models.sessions import spent_by_run
from agents.policy.periods import Period, spans
from agents.policy.transitions import TERMINAL
from agents.sessions.own_rows import (
    ROWS,
    Row,
    cut,
    manual_reference,
    reference,
    row_referred,
    rows_with,
    usd_text,
    without_questions,
)
from agents.sessions.reads import purposes
from agents.skills.skill import SkillContext, skill
from agents.text.manual import find_sections
from audit.kinds import usernames

MAX_ROWS: Final = 25
NAME_CHARS: Final = 120

Found = dict[str, Any]


# --- What the skills take and return ---


Words = Annotated[str, Field(max_length=300, description="Words to look for. Empty: every row.")]
When_ = Annotated[Period | None, Field(description="Only rows of this period, in UTC.")]
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS, description="The maximum number of rows.")]
AgentName = Annotated[str, Field(max_length=NAME_CHARS, description="Only of the agent with these words in its name.")]


def _listed(kind: str, rows: QuerySet[Any], limit: int) -> Found:
    found = list(rows[:limit])
    return {"count": rows.count(), "rows": [{"ref": reference(kind, row), **_described(kind, row)} for row in found]}


def _described(kind: str, row: Any) -> Row:
    return ROWS[kind].describe(row)


def _within(rows: QuerySet[Any], field: str, period: str | None, now: datetime) -> QuerySet[Any]:
    if period is None:
        return rows
    start, end = spans(now)[period]
    return rows.filter(**{f"{field}__gte": start, f"{field}__lt": end})


def _named(rows: QuerySet[Any], field: str, words: str) -> QuerySet[Any]:
    for word in words.split():
        rows = rows.filter(**{f"{field}__icontains": word})
    return rows


_ACTIVE: Final = [str(status) for status in Status if status not in TERMINAL]
_RUN_STATES: Final[dict[str, Q]] = {
    "active": Q(status__in=_ACTIVE),
    "waiting": Q(status=Status.WAITING),
    "failed": Q(status=Status.FAILED) | Q(run_result=RunResult.FAILED),
    "halted": Q(status=Status.HALTED),
    "completed": Q(status=Status.COMPLETED),
    "over_cap": Q(terminal_reason__in=[TerminalReason.COST_CAP_REACHED, TerminalReason.BUDGET_EXCEEDED]),
}


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_runs(
    context: SkillContext,
    *,
    words: Words = "",
    state: Annotated[
        Literal["active", "waiting", "failed", "halted", "completed", "over_cap"] | None,
        Field(description="over_cap: stopped because a cost cap or budget was reached."),
    ] = None,
    period: When_ = None,
    agent: AgentName = "",
    limit: Limit = 10,
) -> Found:
    """Lists runs, newest first: status, result, why they failed, agent, trigger, cost. Words also match inputs."""
    rows = _within(ROWS["run"].own(context.owner_id), "created_at", period, context.now)
    rows = without_questions(rows)
    rows = _named(rows.filter(_RUN_STATES[state]) if state else rows, "agent__name", agent)
    found = list(rows_with("run", context.owner_id, words, rows)[:limit])
    titles = purposes(found)
    listed = [{"ref": reference("run", row), "title": cut(titles[row.pk]), **_described("run", row)} for row in found]
    return {"count": rows_with("run", context.owner_id, words, rows).count(), "rows": listed}


_SEVERITIES: Final = Case(When(severity="critical", then=0), When(severity="warn", then=1), default=2)


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_findings(
    context: SkillContext,
    *,
    words: Words = "",
    severity: Annotated[Literal["critical", "warn", "info"] | None, Field()] = None,
    quote_check: Annotated[Literal["verified", "unverified"] | None, Field()] = None,
    period: When_ = None,
    agent: AgentName = "",
    limit: Limit = 10,
) -> Found:
    """Lists findings of runs, the most severe first, each with its document and quote."""
    rows = _within(ROWS["finding"].own(context.owner_id), "created_at", period, context.now)
    rows = _named(rows, "session__agent__name", agent)
    rows = rows.filter(severity=severity) if severity else rows
    rows = rows.filter(quote_check=quote_check) if quote_check else rows
    found = rows_with("finding", context.owner_id, words, rows.order_by(_SEVERITIES, "-created_at", "-pk"))
    return _listed("finding", found, limit)


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_costs(
    context: SkillContext,
    *,
    by: Annotated[Literal["agent", "run"], Field(description="One row for each agent, or for each run.")] = "agent",
    words: Words = "",
    period: When_ = None,
    limit: Limit = 10,
) -> Found:
    """Lists what was spent, dearest first, with the total and the caps. A run counts on the day it started, in UTC."""
    rows = _within(ROWS["run"].own(context.owner_id), "created_at", period, context.now)
    sums = rows.order_by().aggregate(runs=Count("pk"), spent=Sum(spent_by_run()))
    total = {"runs": sums["runs"], "spent_usd": usd_text(sums["spent"] or Decimal(0))}
    if by == "run":
        dearest = rows_with("run", context.owner_id, words, rows.order_by(spent_by_run().desc(), "-pk"))
        return {"total": total, **_listed("run", dearest, limit)}
    named = {row.pk: row for row in rows_with("agent", context.owner_id, words)}
    spent = (
        rows.filter(agent__in=named).order_by().values("agent").annotate(number=Count("pk"), spent=Sum(spent_by_run()))
    )
    listed = [
        {
            "ref": reference("agent", agent),
            "name": agent.name,
            "runs": one["number"],
            "spent_usd": usd_text(one["spent"]),
            "day_cap_usd": usd_text(agent.max_cost_per_day_usd),
        }
        for one in spent.order_by("-spent", "agent")[:limit]
        for agent in [named[one["agent"]]]
    ]
    return {"total": total, "rows": listed}


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_agents(
    context: SkillContext,
    *,
    words: Words = "",
    state: Annotated[Literal["on", "off", "looping"] | None, Field(description="off: paused.")] = None,
    approval_mode: Annotated[
        Literal["auto", "semi", "manual"] | None, Field(description="auto: acts without asking, but for PRIVILEGED.")
    ] = None,
    limit: Limit = 10,
) -> Found:
    """Lists agents: on or off, approval mode, day cap, owner and the start of the definition."""
    rows = ROWS["agent"].own(context.owner_id)
    rows = rows.filter(mode=approval_mode) if approval_mode else rows
    states = {"on": Q(enabled=True), "off": Q(enabled=False), "looping": Q(wanted=True)}
    return _listed(
        "agent", rows_with("agent", context.owner_id, words, rows.filter(states[state]) if state else rows), limit
    )


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_triggers(
    context: SkillContext,
    *,
    words: Words = "",
    state: Annotated[Literal["on", "off", "paused"] | None, Field()] = None,
    kind: Annotated[Literal["watch", "schedule", "event", "manual"] | None, Field()] = None,
    limit: Limit = 10,
) -> Found:
    """Lists triggers, those that are due next first: state, schedule, next run, agent."""
    states = {
        "on": Q(enabled=True, paused_at__isnull=True),
        "off": Q(enabled=False),
        "paused": Q(paused_at__isnull=False),
    }
    rows = ROWS["trigger"].own(context.owner_id).order_by(F("next_run_at").asc(nulls_last=True), "-pk")
    rows = rows.filter(kind=kind) if kind else rows
    return _listed(
        "trigger", rows_with("trigger", context.owner_id, words, rows.filter(states[state]) if state else rows), limit
    )


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_approvals(
    context: SkillContext,
    *,
    words: Words = "",
    status: Annotated[
        Literal["pending", "approved", "rejected", "expired", "cancelled", "decided"] | None,
        Field(description="decided: approved or rejected."),
    ] = None,
    limit: Limit = 10,
) -> Found:
    """Lists calls that wait for a person or waited for one, newest first: what they would do, until when, who decided.

    Approvals of other people's runs are not listed: send the person to the page Approvals for those.
    """
    rows = ROWS["approval"].own(context.owner_id)
    if status == "decided":
        rows = rows.filter(status__in=[ApprovalStatus.APPROVED, ApprovalStatus.REJECTED])
    elif status:
        rows = rows.filter(status=status)
    return _listed("approval", rows_with("approval", context.owner_id, words, rows), limit)


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_sensors(
    context: SkillContext,
    *,
    words: Words = "",
    state: Annotated[
        Literal["fine", "waiting", "not_fine"] | None, Field(description="not_fine: failing or not usable.")
    ] = None,
    limit: Limit = 10,
) -> Found:
    """Lists sensors: state, problem, the last reading and when it was taken, agent."""
    rows = ROWS["sensor"].own(context.owner_id)
    states = {
        "fine": Q(state=SensorState.FINE),
        "waiting": Q(state=SensorState.WAITING),
        "not_fine": ~Q(state__in=[SensorState.FINE, SensorState.WAITING]),
    }
    return _listed(
        "sensor", rows_with("sensor", context.owner_id, words, rows.filter(states[state]) if state else rows), limit
    )


_REFUSED: Final = (
    Q(kind__icontains="refused") | Q(kind="autonomous_session.cost_cap_reached") | Q(details__has_key="brake")
)


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_audit_events(
    context: SkillContext,
    *,
    kind: Annotated[
        str,
        Field(
            max_length=64,
            description="A part of the kind of event: halt, approval, trigger, run_now; refused: by a brake.",
        ),
    ] = "",
    run: Annotated[str, Field(max_length=64, description="Only of this run, by its ref.")] = "",
    actor: Annotated[str, Field(max_length=150, description="Only by the person with this username.")] = "",
    period: When_ = None,
    limit: Limit = 10,
) -> Found:
    """Lists audit events of the person's runs and of their own acts, newest first: what, when, by whom."""
    rows = _within(ROWS["event"].own(context.owner_id), "at", period, context.now)
    rows = rows.filter(_REFUSED if kind == "refused" else Q(kind__icontains=kind)) if kind else rows
    if run:
        session = row_referred(run, context.owner_id)
        rows = rows.filter(chain=str(session.public_id)) if isinstance(session, AgentSession) else rows.none()
    if actor:
        people = get_user_model().objects.filter(username__iexact=actor).values_list("pk", flat=True)
        by = [Q(actor=f"user:{pk}") | Q(actor__startswith=f"user:{pk}:") for pk in people]
        rows = rows.filter(reduce(or_, by)) if by else rows.none()
    found = list(rows[:limit])
    names = usernames({event.actor for event in found})
    listed = [
        {"ref": reference("event", event), **_described("event", event), "actor": names.get(event.actor, event.actor)}
        for event in found
    ]
    return {"count": rows.count(), "rows": listed}


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def list_documents(
    context: SkillContext,
    *,
    words: Words = "",
    period: When_ = None,
    limit: Limit = 10,
) -> Found:
    """Finds documents by words in their name or text, with the matching passages; without words, the newest ones."""
    rows = _within(ROWS["document"].own(context.owner_id), "created_at", period, context.now)
    hits = search_chunks(owner_id=context.owner_id, query=words, limit=limit) if words else []
    passages: dict[int, list[str]] = {}
    for hit in hits:
        passages.setdefault(hit.document_id, []).append(cut(hit.snippet))
    named = list(rows_with("document", context.owner_id, words, rows)[:limit])
    more = rows.filter(pk__in=passages.keys() - {row.pk for row in named})
    found = [*named, *more][:limit]
    listed = [
        {"ref": reference("document", row), **_described("document", row), "passages": passages.get(row.pk, [])}
        for row in found
    ]
    return {"count": len(listed), "rows": listed}


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def search_manual(
    words: Annotated[str, Field(min_length=1, max_length=300, description="Words to look for.")],
    limit: Annotated[int, Field(ge=1, le=8)] = 5,
) -> Found:
    """Finds sections of lqops' documentation: how to do something, what a word means, which command or setting."""
    return {
        "rows": [
            {"ref": manual_reference(one.page, one.anchor), "title": one.title, "text": one.text[:1_200]}
            for one in find_sections(manual_folder(), words, limit=limit)
        ]
    }


# --- Proposing an action: a button for the person, and nothing else ---


PROPOSABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "halt": ("run", "agent"),
    "approve": ("approval",),
    "deny": ("approval",),
    "pause": ("agent", "trigger"),
    "resume": ("agent", "trigger"),
    "start": ("agent",),
    "stop": ("agent",),
    "run": ("trigger",),
    "rerun": ("run",),
}


@skill(level=Level.SAFE, side_effects=False, local=True, console=True)
def propose_action(
    context: SkillContext,
    action: Annotated[
        Literal["halt", "approve", "deny", "pause", "resume", "start", "stop", "run", "rerun"],
        Field(
            description="halt a run or an agent's runs; start or stop a loop; run a trigger; rerun a run that ended."
        ),
    ],
    target: Annotated[str, Field(max_length=64, description="The ref of the row, from a list.")],
) -> dict[str, Any]:
    """Shows the person a button for an action on one row. Nothing is done: only the person can press it.

    Use it when the person asks for a change. Find the row first. Propose only what the person asked for.
    """
    kind = target.partition(":")[0]
    if kind not in PROPOSABLE[action]:
        raise Invalid(f"{action} takes the ref of one of: {', '.join(PROPOSABLE[action])}; not {target}.")
    if row_referred(target, context.owner_id) is None:
        raise NotFound(f"The person has no {target}. Find the row first.")
    return {"proposed": action, "target": target, "note": "The person sees a button. Nothing was done."}
