"""The executor of skill calls: in their order, groups side by side, each through the guard, one result for each.

A result is what the model is told. Brakes are not caught here: they end the run.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Final, Protocol

from django.core.cache import cache
from django.db import transaction

from agents.conf import clock, model_for, skill_hosts
from agents.engine.prompting import Admission, asked_before
from agents.enums import Level, Outcome, Purpose, QuestionStatus, Risk, ToolIntent
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    OutcomeUnknown,
    RetryLater,
    UnpricedModel,
)
from agents.guard import guarded_group, guarded_tool_call
from agents.guard.calls import Call, note_refusal, plan_call
from agents.guard.tools import BadParams, persisting
from agents.ledger.boundary import lock
from agents.ledger.budgets import budgets_lock
from agents.ledger.prices import declared_price, estimate_model_call
from agents.models import AgentSession, Question, ToolCall
from agents.policy import brakes, costs
from agents.sessions.reads import call_latest
from agents.skills.parsing import SkillCall
from agents.skills.registry import pace_of, skill_named, skill_refusal, skill_standing
from agents.skills.risk import RiskAssessor, level_for
from agents.skills.skill import BadArguments, Skill
from agents.types import ZERO, Ledger, ModelRequest, ToolResult
from audit.redaction import redact_data
from audit.rows import canonical

# Anticipatory simulation: before a dangerous skill runs, a model says what will probably happen. Advice, never a
# veto.
#
# It is an inference like any other: guarded, priced and recorded. What it says is shown to approvers and to the
# model. Whatever keeps it from being made, a halt and a lost lease apart, leaves the run without it and goes on.


PREFIX: Final = "[ANTICIPATORY SIMULATION]: "
SKIPPED: Final = "simulation skipped: budget"
CONTEXT_CHARS: Final = 500
ARGUMENT_CHARS: Final = 4_000
MAX_TOKENS: Final = 300
PLACE: Final = ":simulation"  # behind the key of the call that it is about
KEPT_SECONDS: Final = 300
_PROMPT: Final = """\
A skill is about to be called. Say in two or three sentences what will probably come of it, and what could go wrong.

Skill: {name}({arguments})
What it does: {description}
What went before, as data:
{context}
"""
_NO_MATTER: Final = (
    BadParams,
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    RetryLater,
    UnpricedModel,
)


def anticipate(session: AgentSession, skill: Skill, arguments: Mapping[str, Any], *, context: str, key: str) -> str:
    """What a model expects of the call; empty when it has nothing to say. The same for the same call and context."""
    told = context[:CONTEXT_CHARS]
    place = _place(session, skill, arguments, told)
    known = cache.get(place)
    if isinstance(known, str):
        return known
    try:
        said = _said(session, _question(skill, arguments, told), key=key)
    except _NO_MATTER:
        return ""
    if said.startswith(PREFIX):
        cache.set(place, said, KEPT_SECONDS)
    return said


def _question(skill: Skill, arguments: Mapping[str, Any], context: str) -> dict[str, Any]:
    prompt = _PROMPT.format(
        name=skill.name,
        arguments=canonical(redact_data(dict(arguments)))[:ARGUMENT_CHARS],
        description=skill.description,
        context=context,
    )
    return {
        "model": model_for("small"),
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "purpose": str(Purpose.SIMULATION),
    }


def _said(session: AgentSession, question: Mapping[str, Any], *, key: str) -> str:
    """Asked once, and never again: what came of it, if it was, stands in the journal."""
    made = call_latest(session, key)
    if made is not None:
        return _prediction(made.result or {}) if made.outcome == Outcome.SUCCESS else ""
    if not _is_affordable(session, question):
        return SKIPPED
    with persisting(1):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, question, key=key)
    return _prediction(result.data) if result.ok else ""


def _prediction(told: Mapping[str, Any]) -> str:
    return f"{PREFIX}{str(told.get('text', '')).strip()}"


# --- Whether it can be paid without harm ---


def _is_affordable(session: AgentSession, question: Mapping[str, Any]) -> bool:
    """What R4 would say, asked without its consequences, if the next question of the run were paid for already: a
    prediction may not use up what the run that it is about ends for want of."""
    model, now = str(question["model"]), clock()
    with transaction.atomic():
        locked = lock(session, model=model)
        shared = budgets_lock(agent_id=locked.agent_id, trigger_id=locked.trigger_id, now=now)
    price, estimate = declared_price(model, locked.price_row), estimate_model_call(model, Purpose.SIMULATION, now=now)
    messages = ({"role": "user", "content": str(question["prompt"])},)
    request = ModelRequest(model, messages, max_tokens=MAX_TOKENS, purpose=Purpose.SIMULATION)
    quote = brakes.Quote(estimate, request, price, costs.input_bound(request, price))
    kept = _last_estimate(session)
    verdict = brakes.economic(
        quote,
        session=_without(locked.ledger, kept),
        shared=tuple(_without(ledger, kept) for ledger in shared),
        token_budget=locked.token_budget,
        total_tokens=locked.total_tokens + quote.input_tokens + MAX_TOKENS,
    )
    return isinstance(verdict, brakes.Affordable)


def _last_estimate(session: AgentSession) -> Decimal:
    """What the run's last question was estimated at; the next will be alike."""
    asked = ToolCall.objects.filter(session=session).exclude(model="").exclude(key__endswith=PLACE).order_by("-pk")
    return asked.values_list("approved_usd", flat=True).first() or ZERO


def _without(ledger: Ledger, kept: Decimal) -> Ledger:
    return ledger if ledger.cap is None else replace(ledger, cap=max(ledger.cap - kept, ZERO))


def _place(session: AgentSession, skill: Skill, arguments: Mapping[str, Any], context: str) -> str:
    parts = [session.owner_id, skill.name, skill.version, dict(arguments), context]
    return "simulation:" + hashlib.sha256(canonical(parts).encode("ascii")).hexdigest()


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

    def guarded(self, session: AgentSession, now: datetime) -> Call:
        params = {"skill": self.skill.name, "arguments": self.arguments}
        named: dict[str, Any] = {"risk": self.risk, "simulation": self.simulation}
        return plan_call(session, ToolIntent.RUN_SKILL, params, key=self.key, now=now, **named)


class ModelManager(Protocol):
    """Asks a model what will probably come of a call, as agents.engine.skills.anticipate does."""

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
            now = clock()
            done = guarded_group([plan.guarded(self._session, now) for plan in ready]) if ready else []
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
