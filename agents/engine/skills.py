"""The executor of skill calls: in their order, groups side by side, each through the guard, one result for each.

A result is what the model is told. Brakes are not caught here: they end the run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

from agents.conf import clock, skill_hosts
from agents.engine.calls import asked_before
from agents.engine.prompting import Admission
from agents.engine.simulation import PLACE
from agents.enums import Level, Outcome, QuestionStatus, Risk, ToolIntent
from agents.exceptions import OutcomeUnknown
from agents.guard import guarded_group
from agents.guard.calls import Asked
from agents.guard.notes import note_refusal
from agents.guard.params import BadParams
from agents.models import AgentSession, Question
from agents.skills.parsing import SkillCall
from agents.skills.registry import pace_of, skill_named, skill_refusal, skill_standing
from agents.skills.risk import RiskAssessor, level_for
from agents.skills.skill import BadArguments, Skill
from agents.types import ToolResult
from audit.rows import canonical

NOT_FOUND = "not found or disabled"
ERROR_CHARS = 300
OUTPUT_CHARS = 200_000  # of what a model is told; the journal has all of it
NOBODY = "Nobody answered in time."


@dataclass(frozen=True)
class SkillResult:
    """What came of a call. A failed one has no output; `waits` means that a person has the word."""

    output: str | None = None
    error: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    waits: bool = False

    @property
    def failed(self) -> bool:
        return bool(self.error)

    @property
    def text(self) -> str:
        """As the model reads it."""
        told = self.output if self.output is not None else f"error: {self.error}"
        simulation = self.metadata.get("simulation", "")
        return f"{told}\n{simulation}" if simulation else told


@dataclass(frozen=True)
class _Planned:
    call: SkillCall
    key: str
    skill: Skill
    arguments: dict[str, Any]
    risk: Risk | None
    simulation: str

    @property
    def asked(self) -> Asked:
        params = {"skill": self.skill.name, "arguments": self.arguments}
        return Asked(ToolIntent.RUN_SKILL, params, self.key, risk=self.risk, simulation=self.simulation)


class ModelManager(Protocol):
    """Asks a model what will probably come of a call, as agents.engine.simulation.anticipate does."""

    def __call__(
        self, session: AgentSession, skill: Skill, arguments: Mapping[str, Any], /, *, context: str, key: str
    ) -> str: ...


class SkillExecutor:
    """Carries out what a reply asks for. `registry` holds the skills that may be asked for here; no others exist.
    Without a model manager no call is predicted. `admit` gives the admission to a group of calls, if there are limits
    besides those of the guard."""

    def __init__(
        self,
        registry: Mapping[str, Skill],
        model_manager: ModelManager | None = None,
        *,
        session: AgentSession,
        context: str = "",
        admit: Callable[[], Admission] | None = None,
    ) -> None:
        self._registry, self._model_manager = registry, model_manager
        self._session = session
        self._context = context
        self._admit = admit
        self._assessor = RiskAssessor()

    def execute_batch(self, calls: Sequence[tuple[str, SkillCall]]) -> Iterator[tuple[str, SkillResult]]:
        """Results by the calls' places, in the order of the calls. It ends early where a person has to be waited for.

        Calls of one group that follow each other run side by side; every other call is a group of its own.
        """
        for _, members in groupby(enumerate(calls), key=_group):
            results = self._execute_group([call for _, call in members])
            yield from results
            if any(result.waits for _, result in results):
                return

    def execute_one(self, key: str, call: SkillCall) -> SkillResult:
        [(_, result)] = self._execute_group([(key, call)])
        return result

    def _execute_group(self, calls: Sequence[tuple[str, SkillCall]]) -> list[tuple[str, SkillResult]]:
        admit = self._admit() if self._admit else None
        planned = [(key, self._plan(key, call, admit)) for key, call in calls]
        ready = [plan for _, plan in planned if isinstance(plan, _Planned)]
        try:
            done = guarded_group(self._session, [plan.asked for plan in ready]) if ready else []
        except BadParams as error:
            return [(key, SkillResult(error=str(error)[:ERROR_CHARS])) for key, _ in calls]
        told = {plan.key: self._told(plan, result) for plan, result in zip(ready, done, strict=True)}
        return [(key, plan if isinstance(plan, SkillResult) else told[key]) for key, plan in planned]

    def _plan(self, key: str, call: SkillCall, admit: Admission | None) -> _Planned | SkillResult:
        """Known and enabled? its level; how risky; and, where it is dangerous, what will probably come of it."""
        skill = self._registry.get(call.name) or skill_named(call.name)
        missing = f"the skill {call.name[:64]} is {NOT_FOUND}"
        if skill is None:
            return SkillResult(error=missing)
        standing = skill_standing(skill.name, skill.level)
        if call.name not in self._registry or not standing.enabled:
            return self._refused(skill, standing.level, call.arguments, missing)
        if skill.lacking:
            return self._refused(skill, standing.level, call.arguments, f"{skill.name} cannot work: {skill.lacking}")
        try:
            before = asked_before(self._session, key)
            arguments = dict(before["arguments"]) if before else skill.arguments(call.arguments)
        except BadArguments as error:
            return self._refused(skill, standing.level, call.arguments, str(error))
        level = level_for(skill, standing.level, arguments, skill_hosts())
        if admit and before is None and (why := admit(key, skill, arguments)):
            return self._refused(skill, level, arguments, why, outcome=str(Outcome.RATE_LIMITED))
        dangerous = level.rank >= Level.RESTRICTED.rank or self._assessor.escalates(skill, arguments)
        risk = self._assessor.assess(skill, arguments) if dangerous else None
        plan = _Planned(call, key, skill, arguments, risk=risk, simulation="")
        pace = pace_of(skill.name, level, standing.hourly_limit, cooldown_seconds=skill.cooldown_seconds)
        predict = self._model_manager
        if dangerous and predict and before is None and not skill_refusal(pace, now=clock()):
            said = predict(self._session, skill, arguments, context=self._context, key=f"{key}{PLACE}")
            plan = replace(plan, simulation=said)
        return plan

    def _refused(self, skill: Skill, level: Level, arguments: Mapping[str, Any], why: str, **about: str) -> SkillResult:
        """A call that does not get as far as the guard, which notes its own refusals."""
        note_refusal(self._session, skill, level, arguments, why, now=clock())
        return SkillResult(error=why[:ERROR_CHARS], metadata=dict(about))

    def _told(self, plan: _Planned, result: ToolResult) -> SkillResult:
        about: dict[str, Any] = {"duration_ms": result.took_ms, "outcome": str(result.outcome)}
        if plan.simulation:
            about["simulation"] = plan.simulation
        if result.outcome == Outcome.UNKNOWN:
            raise OutcomeUnknown(f"Call {plan.key!r} of {plan.skill.name} may have taken effect.")
        if result.outcome == Outcome.APPROVAL_PENDING:
            return SkillResult(metadata=about, waits=True)
        if not result.ok:
            return SkillResult(error=(result.error or str(result.outcome))[:ERROR_CHARS], metadata=about)
        if plan.skill.name == "ask_person":
            return self._answer(result.data["question_id"], about)
        output = result.data if isinstance(result.data, str) else canonical(result.data)
        return SkillResult(output=_cut(output), metadata=about)

    def _answer(self, question_id: str, about: dict[str, Any]) -> SkillResult:
        asked = Question.objects.get(session=self._session, public_id=question_id)
        if asked.status == QuestionStatus.PENDING:
            return SkillResult(metadata={**about, "waits_for": "input"}, waits=True)
        return SkillResult(output=asked.answer or NOBODY, metadata=about)


def _cut(output: str) -> str:
    if len(output) <= OUTPUT_CHARS:
        return output
    return f"{output[:OUTPUT_CHARS]}\n[cut here: the first {OUTPUT_CHARS} of {len(output)} characters]"


def _group(numbered: tuple[int, tuple[str, SkillCall]]) -> tuple[int, int]:
    place, (_, call) = numbered
    return (-1, call.parallel_group) if call.parallel_group is not None else (place, 0)
