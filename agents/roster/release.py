"""Release of all work, and the second start of what the halt has ended: agents, and runs where that is asked for.

Each start goes through the function that a person's start goes through, with its permissions, caps and audit events.
One that is refused keeps no other from starting.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet

from agents.enums import HaltScope, Mode, TerminalReason
from agents.exceptions import LqopsError
from agents.models import Agent, AgentSession, Halt
from agents.people.access import SYSTEM
from agents.roster.agents import agent_start
from agents.sessions.halts import ended_by, release_all_work
from agents.sessions.restarts import agent_names, agents_not_running
from agents.triggers.firing import session_restart

MOST: Final = 200  # runs that are started again at a time


Row = TypeVar("Row", Agent, AgentSession)


@dataclass(frozen=True)
class Ended:
    """What a halt of all work has ended, or is about to end, and what can be started again."""

    agents: tuple[Agent, ...]
    runs: tuple[AgentSession, ...]


@dataclass(frozen=True)
class Released:
    """Result of a release: what was started again, why the rest was not, and which agents do not run."""

    halt: Halt
    agents: tuple[Agent, ...] = ()
    runs: tuple[AgentSession, ...] = ()
    refused: tuple[str, ...] = ()
    not_running: tuple[str, ...] = ()


def ended_with(halt: Halt) -> Ended:
    """Return the agents and runs that the halt has ended or, while it is in force, is about to end."""
    ending = ended_by(halt) if halt.released_at is None else AgentSession.objects.none()
    since = halt.requested_at
    rows = agents_not_running(ending)
    agents = {row.agent_id: row.agent for row in rows if row.completed_at is None or row.completed_at >= since}
    named = sorted((agent for agent in agents.values() if agent is not None), key=lambda one: (one.name, one.pk))
    return Ended(tuple(named), tuple(_runs_ended(halt, ending)))


def _runs_ended(halt: Halt, ending: QuerySet[AgentSession]) -> Iterable[AgentSession]:
    """Return the runs, without those that another run started and those whose input is read again by itself."""
    by_itself = Halt.objects.filter(scope=HaltScope.SESSION, session=OuterRef("pk"))
    over = Q(terminal_reason=TerminalReason.EXTERNAL_HALT, completed_at__gte=halt.requested_at)
    rows = AgentSession.objects.filter(over | Q(pk__in=ending.values("pk")), mode=Mode.PHASED)
    rows = rows.filter(created_at__lte=halt.requested_at, parent__isnull=True, unread_input__isnull=True)
    rows = rows.filter(~Exists(by_itself), restarts__isnull=True)
    return rows.select_related("agent", "owner", "trigger", "project").defer("result").order_by("pk")[:MOST]


def work_release(
    *,
    by: User | None,
    now: datetime,
    actor: str = SYSTEM,
    resume_spared: bool = True,
    start_again: bool | Collection[int] = False,
    run_again: bool | Collection[int] = False,
) -> Released:
    """Release all work, then start the agents and runs again that the halt has ended: those with these keys, or all."""
    halt = release_all_work(by=by, now=now, actor=actor, resume_spared=resume_spared)
    ended = ended_with(halt)
    refused: list[str] = []
    agents = _each(
        _chosen(ended.agents, which=start_again),
        lambda one: agent_start(agent=one, by=by, now=now, actor=actor),
        refused,
    )
    runs = _each(
        _chosen(ended.runs, which=run_again), lambda one: session_restart(session=one, by=by, now=now), refused
    )
    left = agent_names(agents_not_running())
    return Released(halt, tuple(agents), tuple(runs), tuple(refused), tuple(left))


def _chosen(rows: tuple[Row, ...], *, which: bool | Collection[int]) -> list[Row]:
    if isinstance(which, bool):
        return list(rows) if which else []
    return [row for row in rows if row.pk in which]


def _each(rows: list[Row], start: Callable[[Row], Any], refused: list[str]) -> list[Row]:
    """Start each; return those that were started, and note why the others were not."""
    started = []
    for row in rows:
        try:
            start(row)
        except LqopsError as error:
            name = row.name if isinstance(row, Agent) else f"Run {row.public_id}"
            refused.append(f"{name}: {error}")
        else:
            started.append(row)
    return started
