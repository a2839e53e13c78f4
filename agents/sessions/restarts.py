"""When the loop of a session that is over starts again, and which agents were started but do not run.

An agent is wanted from when it is started until a person stops it. A halt of all work does not change that.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from agents.definitions.in_force import autonomy_of, definition_of
from agents.definitions.schema import AgentDefinition, Autonomy, DefinitionError
from agents.enums import HaltScope, HaltState, Mode, NoticeKind, TerminalReason
from agents.ledger.boundary import current_halt
from agents.models import Agent, AgentSession, Halt, agents_may_run
from agents.people.notifications import notification_create
from agents.policy.restarts import EndedLoop, renewal_at, restart_at

RESTARTS: Final = "restarts"  # in a loop's metadata: how many restarts in a row led to it


def ended_loop(row: AgentSession) -> EndedLoop:
    """Return what decides whether a loop that is over starts again."""
    has_tokens = not row.token_budget or row.total_tokens < row.token_budget
    return EndedLoop(
        reason=TerminalReason(str(row.terminal_reason)),
        started_at=row.created_at,
        ended_at=row.completed_at or row.created_at,
        restarts=int(row.metadata.get(RESTARTS) or 0),
        has_room=has_tokens and (row.left_usd is None or row.left_usd > 0),
    )


def loop_restart_at(row: AgentSession) -> datetime | None:
    """Return when `restart` of the definition starts the loop again, with the rest of its cap; None: not at all."""
    limits = _limits_of(row)
    return restart_at(ended_loop(row), restart=limits.restart, max_restarts=limits.max_restarts)


def loop_renewal_at(row: AgentSession) -> datetime | None:
    """Return when `renew` of the definition starts the loop again, with a full cap; None: not at all."""
    return renewal_at(ended_loop(row)) if _limits_of(row).renew == "daily" else None


def loop_due_at(row: AgentSession) -> datetime | None:
    """Return when the loop starts again by either; None: it does not."""
    return min(filter(None, (loop_restart_at(row), loop_renewal_at(row))), default=None)


def _definition_of(row: AgentSession) -> AgentDefinition | None:
    """Return the definition of the session's agent; None without a readable one."""
    try:
        return definition_of(row.agent) if row.agent else None
    except DefinitionError:
        return None


def _limits_of(row: AgentSession) -> Autonomy:
    """Return the limits of the loop's agent; without a readable definition with a loop, those that start nothing."""
    definition = _definition_of(row)
    return autonomy_of(definition) if definition and definition.is_autonomous else Autonomy(restart="never")


# --- Agents that were started and do not run ---

LISTED: Final = 200
TOLD: Final = "told_not_running"  # in the metadata of the session that ended: its owner was notified
TOLD_AFTER: Final = timedelta(minutes=1)  # a release may start them again at once
AGENTS_PATH: Final = "/admin/agents/agent/"
_SELF_ENDED: Final = (TerminalReason.AGENT_SHUTDOWN, TerminalReason.COMPLETED)
_STOPPING: Final = (HaltState.HALT_REQUESTED, HaltState.HALTED)


def agents_not_running(
    ending: QuerySet[AgentSession] | None = None, *, agent: Agent | None = None
) -> list[AgentSession]:
    """Return the last loop and the last heartbeat of agents that were started, and that nothing starts again.

    Sessions that a person halted by themselves, and those that the agent ended, are left out. Those in `ending` count
    as ended. With `agent`, of this one alone.
    """
    wanted = Agent.objects.filter(agents_may_run("owner"), enabled=True, wanted=True)
    if agent is not None:
        wanted = wanted.filter(pk=agent.pk)
    over = Q(completed_at__isnull=False) | Q(halt_state__in=_STOPPING)
    if ending is not None:
        over |= Q(pk__in=ending.values("pk"))
    by_itself = Halt.objects.filter(scope=HaltScope.SESSION, session=OuterRef("pk"))
    found: list[AgentSession] = []
    for mode in (Mode.LOOP, Mode.HEARTBEAT):
        newest = AgentSession.objects.filter(agent=OuterRef("pk"), mode=mode).order_by("-pk").values("pk")[:1]
        last = wanted.annotate(last=Subquery(newest)).values("last")
        rows = AgentSession.objects.filter(over, pk__in=last).exclude(terminal_reason__in=_SELF_ENDED)
        rows = rows.exclude(Exists(by_itself) & ~Q(terminal_reason=TerminalReason.OPTED_OUT))
        found += rows.select_related("agent", "owner").defer("result").order_by("pk")[:LISTED]
    return [row for row in found if _could_start(row)]


def _could_start(row: AgentSession) -> bool:
    """Return whether the definition has what the session was, and nothing will start it."""
    definition = _definition_of(row)
    if definition is None:
        return False
    if row.mode == Mode.HEARTBEAT:
        return definition.heartbeat is not None and definition.heartbeat.enabled
    return definition.is_autonomous and (row.completed_at is None or loop_due_at(row) is None)


def agent_names(rows: Iterable[AgentSession]) -> list[str]:
    """Return the names of the agents of sessions, each once."""
    return list(dict.fromkeys(row.agent.name for row in rows if row.agent))


def owners_tell_not_running(now: datetime) -> int:
    """Notify owners of agents that do not run, once for each end. Return how many owners.

    While all work is halted no owner is notified: the release may start them again.
    """
    if current_halt() is not None:
        return 0
    released = Halt.objects.filter(scope=HaltScope.ORGANISATION).order_by("-pk").values_list("released_at", flat=True)
    if (last := released.first()) is not None and last > now - TOLD_AFTER:
        return 0
    by_owner: dict[int, list[AgentSession]] = {}
    for row in agents_not_running():
        if not row.metadata.get(TOLD) and row.completed_at is not None and row.completed_at <= now - TOLD_AFTER:
            by_owner.setdefault(row.owner_id, []).append(row)
    return sum(_owner_tell(owner_id, rows, now=now) for owner_id, rows in by_owner.items())


@transaction.atomic
def _owner_tell(owner_id: int, rows: list[AgentSession], *, now: datetime) -> bool:
    """Notify the owner of those that no notification has named yet."""
    pks = [row.pk for row in rows]
    locked = AgentSession.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=pks).order_by("pk")
    new = [row for row in locked.select_related("agent") if not row.metadata.get(TOLD)]
    for row in new:
        row.metadata[TOLD] = True
        row.save(update_fields=["metadata"])
    names = agent_names(new)
    if names:
        what = f"The agent {names[0]} is not running" if len(names) == 1 else f"{len(names)} agents are not running"
        body = (
            f"They were started, have ended, and do not start again by themselves: {', '.join(names)}. Start each "
            "again on its page, or stop it there if it is not to run."
        )
        notification_create(
            owner_id=owner_id, kind=NoticeKind.RUN_STOPPED, title=what, body=body, now=now, page=AGENTS_PATH
        )
    return bool(names)
