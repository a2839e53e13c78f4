"""Executes skill calls: in order, groups in parallel, each through the guard, one result for each.

A result is what the model reads. Brakes are not caught here: they end the run. Before a dangerous call a model may
predict its outcome; that is advice for approvers and the model, never a veto.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, Final

from django.db import transaction

from agents.conf import clock, skill_hosts
from agents.definitions.catalogue import model_for
from agents.engine.prompting import Admission
from agents.engine.query_vectors import fetch_query_vector
from agents.enums import Brake, Level, Outcome, Purpose, QuestionStatus, ToolIntent, WaitingOn
from agents.exceptions import (
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    OutcomeUnknown,
    RetryLater,
    RunsAwaited,
    UnpricedModel,
)
from agents.guard import guarded_group, guarded_tool_call
from agents.guard.calls import Call, plan_call
from agents.guard.consent import is_ruled_out
from agents.guard.refusals import refuse_skill
from agents.guard.tools import BadParams, persisting
from agents.ledger.boundary import read_for_update
from agents.ledger.budgets import budgets_lock
from agents.ledger.loans import RUN_RESULT, result_awaited
from agents.ledger.prices import declared_price, estimate_model_call
from agents.models import AgentSession, InferenceLog, Question, ToolCall
from agents.policy import brakes, costs
from agents.policy.outcomes import outcome_code
from agents.sessions.reads import arguments_asked, call_latest
from agents.sessions.transcripts import ERROR_PREFIX
from agents.skills.parsing import SkillCall
from agents.skills.registry import call_pace, skill_named, skill_refusal, skill_standing
from agents.skills.risk import RiskAssessor, level_for
from agents.skills.skill import BadArguments, Skill
from agents.types import ZERO, Ledger, ModelRequest, SkillPace, ToolResult
from audit.redaction import redact_data
from audit.rows import canonical

# --- Anticipatory simulation ---
#
# An ordinary inference: guarded, priced and recorded. If it cannot be made, the run continues without it, unless the
# reason is a halt or a lost lease.


SIMULATION_PREFIX: Final = "[ANTICIPATORY SIMULATION]: "
SKIPPED: Final = "simulation skipped: budget"
CONTEXT_CHARS: Final = 500
ARGUMENT_CHARS: Final = 4_000
MAX_TOKENS: Final = 300
KEY_SUFFIX: Final = ":simulation"  # appended to the key of the call
PREDICTION_AGE: Final = timedelta(minutes=5)  # up to which an answer to the same question is used
MOST_COMPARED: Final = 50
_PROMPT: Final = """\
A skill is about to be called. Say in two or three sentences what will probably come of it, and what could go wrong.

Skill: {name}({arguments})
What it does: {description}
What went before, as data:
{context}
"""
_SKIPS_SIMULATION: Final = (
    BadParams,
    BudgetExceeded,
    BudgetRefused,
    CostCapReached,
    ModelSuspended,
    RetryLater,
    RunsAwaited,
    UnpricedModel,
)


def anticipate(session: AgentSession, skill: Skill, arguments: Mapping[str, Any], *, context: str, key: str) -> str:
    """Return a model's prediction for a call, or ""."""
    try:
        return _predict(session, _question(skill, arguments, context[:CONTEXT_CHARS]), key=key)
    except _SKIPS_SIMULATION:
        return ""


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


def _predict(session: AgentSession, params: Mapping[str, Any], *, key: str) -> str:
    """Ask at most once; a later attempt reads the journal, and so does the same question soon after."""
    earlier = call_latest(session, key)
    if earlier is not None:
        return _prediction(earlier.result or {}) if earlier.outcome == Outcome.SUCCESS else ""
    if (same := _asked_lately(session, params)) is not None:
        return _prediction(same)
    if not _is_affordable(session, params):
        return SKIPPED
    with persisting(1):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key)
    return _prediction(result.data) if result.ok else ""


def _asked_lately(session: AgentSession, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to the same question in any of the owner's runs, in any process; None if it is too old."""
    since = clock() - PREDICTION_AGE
    asked = InferenceLog.objects.filter(model=params["model"], purpose=Purpose.SIMULATION, created_at__gt=since)
    newest = asked.filter(session__owner_id=session.owner_id).order_by("-created_at")
    sessions = set(newest.values_list("session_id", flat=True)[:MOST_COMPARED])
    if not sessions:
        return None
    # In no order: to find the last rows in order, PostgreSQL would read the journal backwards.
    calls = ToolCall.objects.filter(session_id__in=sessions, key__endswith=KEY_SUFFIX, started_at__gt=since)
    found = (call for call in calls.filter(outcome=Outcome.SUCCESS).order_by() if call.arguments == params)
    return next((call.result for call in found if call.result), None)


def _prediction(data: Mapping[str, Any]) -> str:
    return f"{SIMULATION_PREFIX}{str(data.get('text', '')).strip()}"


def _is_affordable(session: AgentSession, params: Mapping[str, Any]) -> bool:
    """Return whether R4 would allow the prediction with the run's next request already paid.

    A prediction must not use up the budget that the run itself needs. Nothing is latched or recorded.
    """
    model = str(params["model"])
    now = clock()
    with transaction.atomic():
        locked = read_for_update(session, model=model)
        shared = budgets_lock(session_id=session.pk, now=now)
    price = declared_price(model, locked.price_row)
    estimate = estimate_model_call(model, Purpose.SIMULATION, now=now)
    messages = ({"role": "user", "content": str(params["prompt"])},)
    request = ModelRequest(model, messages, max_tokens=MAX_TOKENS, purpose=Purpose.SIMULATION)
    quote = brakes.Quote(estimate, request, price, costs.input_bound(request, price))
    next_request = _last_estimate(session)
    verdict = brakes.economic(
        quote,
        session=_reduced(locked.ledger, next_request),
        shared=tuple(_reduced(ledger, next_request) for ledger in shared),
        token_budget=locked.token_budget,
        total_tokens=locked.total_tokens + quote.input_tokens + MAX_TOKENS,
    )
    return isinstance(verdict, brakes.Affordable)


def _last_estimate(session: AgentSession) -> Decimal:
    """Return the estimate of the run's last model request; the next one will be similar."""
    requests = (
        ToolCall.objects.filter(session=session).exclude(model="").exclude(key__endswith=KEY_SUFFIX).order_by("-pk")
    )
    return requests.values_list("approved_usd", flat=True).first() or ZERO


def _reduced(ledger: Ledger, amount: Decimal) -> Ledger:
    return ledger if ledger.cap is None else replace(ledger, cap=max(ledger.cap - amount, ZERO))


# --- Execution ---


SEARCH: Final = "search_documents"  # it is local: the vector of its query is fetched before
NOT_FOUND = "not found or disabled"
ERROR_CHARS = 300
OUTPUT_CHARS = 200_000  # for the model; the journal keeps everything
NOBODY = "Nobody answered in time."


@dataclass(frozen=True)
class SkillResult:
    """The result of a call. A failed call has no output. `waits`: a person, or a started run, comes first."""

    output: str | None = None
    error: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    waits: bool = False
    waits_for: WaitingOn = WaitingOn.APPROVAL
    runs: frozenset[int] = frozenset()  # that it waits for
    outcome: str = ""  # by its code (agents/policy/outcomes.py), of a call that failed

    @property
    def failed(self) -> bool:
        return bool(self.error)

    @property
    def text(self) -> str:
        """The result as the model reads it."""
        text = self.output if self.output is not None else f"{ERROR_PREFIX}{self.error}"
        simulation = self.metadata.get("simulation", "")
        return f"{text}\n{simulation}" if simulation else text


class SkillExecutor:
    """Executes the calls of a reply.

    Only the skills in `registry` can be called. Without a model manager (see `anticipate`) no outcome is predicted.
    `admit` returns the admission check for a group of calls, for limits besides those of the guard.
    """

    def __init__(
        self,
        registry: Mapping[str, Skill],
        model_manager: Callable[..., str] | None = None,
        *,
        session: AgentSession,
        context: str = "",
        admit: Callable[[], Admission] | None = None,
    ) -> None:
        self._registry = registry
        self._model_manager = model_manager
        self._session = session
        self._context = context
        self._admit = admit

    def execute_batch(self, calls: Sequence[tuple[str, SkillCall]]) -> Iterator[tuple[str, SkillResult]]:
        """Yield results by key, in the order of the calls. Stops after a group that waits.

        Consecutive calls of one parallel group run in parallel; every other call runs alone.
        """
        for _, members in groupby(enumerate(calls), key=_group_of):
            results = self._execute_group([call for _, call in members])
            yield from results
            if any(result.waits for _, result in results):
                return

    def execute_one(self, key: str, call: SkillCall) -> SkillResult:
        [(_, result)] = self._execute_group([(key, call)])
        return result

    def _execute_group(self, calls: Sequence[tuple[str, SkillCall]]) -> list[tuple[str, SkillResult]]:
        admit = self._admit() if self._admit else None
        try:
            planned = [(key, self._awaited(key, call) or self._plan(key, call, admit)) for key, call in calls]
            now = clock()
            ready = [replace(plan, now=now) for _, plan in planned if isinstance(plan, Call)]
            done = guarded_group(ready) if ready else []
        except BadParams as error:
            return [(key, SkillResult(error=str(error)[:ERROR_CHARS])) for key, _ in calls]
        results = {call.key: self._result(call, result) for call, result in zip(ready, done, strict=True)}
        return [(key, plan if isinstance(plan, SkillResult) else results[key]) for key, plan in planned]

    def _awaited(self, key: str, call: SkillCall) -> SkillResult | None:
        """Return that the call waits, if it asks for the result of a started run that is not over. It is not made."""
        if call.name != RUN_RESULT or call.name not in self._registry or arguments_asked(self._session, key):
            return None
        runs = result_awaited(self._session, str(call.arguments.get("run")), now=clock())
        return SkillResult(waits=True, waits_for=WaitingOn.RUNS, runs=runs) if runs else None

    def _plan(self, key: str, call: SkillCall, admit: Admission | None) -> Call | SkillResult:
        """Check that a call can be made, grade its risk and, if it is dangerous, predict its outcome."""
        skill = self._registry.get(call.name) or skill_named(call.name)
        missing = f"the skill {call.name[:64]} is {NOT_FOUND}"
        if skill is None:
            return SkillResult(error=missing, outcome=Brake.SKILL)
        standing = skill_standing(skill.name, skill.level)
        if call.name not in self._registry or not standing.enabled:
            return self._refused(skill, standing.level, call.arguments, missing)
        if skill.lacking:
            missing = f"{skill.name} is not available: {skill.lacking}"
            return self._refused(skill, standing.level, call.arguments, missing)
        try:
            earlier = arguments_asked(self._session, key)
            arguments = dict(earlier["arguments"]) if earlier else skill.arguments(call.arguments)
        except BadArguments as error:
            return self._refused(skill, standing.level, call.arguments, str(error), brake=Brake.ARGUMENTS)
        level = level_for(skill, standing.level, arguments, skill_hosts())
        if admit and earlier is None and (reason := admit(key, skill, arguments)):
            return self._refused(skill, level, arguments, reason, brake=Brake.RATE, outcome=str(Outcome.RATE_LIMITED))
        risk = RiskAssessor().grade(skill, level, arguments)
        pace = call_pace(skill, level, standing)
        params = {"skill": skill.name, "arguments": arguments}
        planned = plan_call(self._session, skill.intent, params, key=key, now=clock(), risk=risk)
        return planned if earlier else self._prepared(planned, skill, arguments, pace)

    def _prepared(self, planned: Call, skill: Skill, arguments: Mapping[str, Any], pace: SkillPace) -> Call:
        """Pay for what a call needs beforehand: a prediction, the vector of a query.

        Nothing is paid for a call that will be refused whatever it would come to.
        """
        predict = self._model_manager if planned.risk else None
        searches = skill.name == SEARCH
        if not (predict or searches) or skill_refusal(pace, now=clock()) or is_ruled_out(planned):
            return planned
        if predict:
            simulation = predict(
                self._session, skill, arguments, context=self._context, key=f"{planned.key}{KEY_SUFFIX}"
            )
            planned = planned.but(simulation=simulation)
        if searches:
            fetch_query_vector(self._session, str(arguments["query"]), key=planned.key)
        return planned

    def _refused(
        self,
        skill: Skill,
        level: Level,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        brake: Brake = Brake.SKILL,
        **metadata: str,
    ) -> SkillResult:
        """Record a call that is refused before the guard, which records its own refusals."""
        refuse_skill(self._session, skill, level, arguments, reason, brake=brake, now=clock())
        return SkillResult(error=reason[:ERROR_CHARS], metadata=dict(metadata), outcome=brake)

    def _result(self, call: Call, result: ToolResult) -> SkillResult:
        metadata: dict[str, Any] = {"duration_ms": result.took_ms, "outcome": str(result.outcome)}
        if call.simulation:
            metadata["simulation"] = call.simulation
        if result.outcome == Outcome.UNKNOWN:
            raise OutcomeUnknown(f"Call {call.key!r} of {call.arguments['skill']} may have taken effect.")
        if result.outcome == Outcome.APPROVAL_PENDING:
            return SkillResult(metadata=metadata, waits=True)
        if not result.ok:
            code = outcome_code(result.outcome, detail=result.detail)
            return SkillResult(error=(result.error or code)[:ERROR_CHARS], metadata=metadata, outcome=code)
        if call.arguments["skill"] == "ask_person":
            return self._answer(result.data["question_id"], metadata)
        output = result.data if isinstance(result.data, str) else canonical(result.data)
        return SkillResult(output=_cut(output), metadata=metadata)

    def _answer(self, question_id: str, metadata: dict[str, Any]) -> SkillResult:
        question = Question.objects.get(session=self._session, public_id=question_id)
        if question.status == QuestionStatus.PENDING:
            return SkillResult(metadata=metadata, waits=True, waits_for=WaitingOn.INPUT)
        return SkillResult(output=question.answer or NOBODY, metadata=metadata)


def _cut(output: str) -> str:
    if len(output) <= OUTPUT_CHARS:
        return output
    return f"{output[:OUTPUT_CHARS]}\n[truncated: the first {OUTPUT_CHARS} of {len(output)} characters]"


def _group_of(numbered: tuple[int, tuple[str, SkillCall]]) -> tuple[int, int]:
    number, (_, call) = numbered
    return (-1, call.parallel_group) if call.parallel_group is not None else (number, 0)
