"""How many actions a loop may begin in a minute. An action is a call with side effects; reading is free.

A call beyond the limit is not made: it costs nothing, uses up no other limit, and the model is told so.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from agents.conf import clock
from agents.engine.prompting import Admission
from agents.enums import EventKind, Outcome, Phase, ToolIntent
from agents.guard.calls import plan_call
from agents.guard.consent import denied
from agents.loop.pacing import RATE_WINDOW, Pace
from agents.loop.turns import Done, calls_since
from agents.models import AgentSession
from agents.people.activity import event_emit
from agents.skills.registry import skill_named
from agents.skills.skill import Skill

NAME: Final = "max_actions_per_minute"


def is_action(call: Done) -> bool:
    """A call of a skill that changes something, as its author declared. Questions to models change nothing."""
    skill = skill_named(call.name)
    return skill is not None and skill.side_effects


class ActionRate:
    """The limit over one slice of a turn. `refused` counts the calls of the turn that came too fast."""

    def __init__(self, session: AgentSession, pace: Pace, *, limit: int) -> None:
        self._session, self._limit = session, limit
        self._after = pace.last_call
        self._before = [datetime.fromisoformat(at) for at in pace.actions]
        self.refused = pace.refused

    def group(self) -> Admission:
        """Admission to one group of calls: those that are admitted together count before any of them is made."""
        begun: list[datetime] = []

        def admit(key: str, skill: Skill, arguments: Mapping[str, Any]) -> str:
            if not skill.side_effects:
                return ""
            now = clock()
            taken = len(self.recent(now)) + len(begun)
            if taken < self._limit:
                begun.append(now)
                return ""
            return self._refuse(key, skill, arguments, taken=taken, now=now)

        return admit

    def recent(self, now: datetime) -> list[datetime]:
        """When the actions of the last minute were begun."""
        journal = [call.started_at for call in calls_since(self._session, self._after) if is_action(call)]
        return [at for at in (*self._before, *journal) if at > now - RATE_WINDOW]

    def frees_at(self, now: datetime) -> datetime:
        """When the next action may be begun."""
        return min(self.recent(now), default=now) + RATE_WINDOW

    def _refuse(self, key: str, skill: Skill, arguments: Mapping[str, Any], *, taken: int, now: datetime) -> str:
        self.refused += 1
        params = {"skill": skill.name, "arguments": dict(arguments)}
        call = replace(plan_call(self._session, ToolIntent.RUN_SKILL, params, key=key, now=now), phase=Phase.TURN)
        why = (
            f"{taken} actions were begun in the last minute, and {self._limit} are allowed ({NAME}); "
            f"{skill.name} was not run. Wait before you act again."
        )
        denied(call, NAME, why, outcome=Outcome.RATE_LIMITED)
        told: dict[str, Any] = {"guardrail": NAME, "actions": taken, "limit": self._limit, "skill": skill.name}
        event_emit(EventKind.GUARDRAIL_TRIGGERED, session=self._session, now=now, **told)
        return why
