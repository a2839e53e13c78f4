"""Anticipatory simulation: before a dangerous skill runs, a model says what will probably happen. Advice, never a veto.

It is an inference like any other: guarded, priced and recorded. What it says is shown to approvers and to the model.
Whatever keeps it from being made, a halt and a lost lease apart, leaves the run without it and goes on.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from django.core.cache import cache
from django.db import transaction

from agents.conf import clock, model_for
from agents.enums import Outcome, Purpose, ToolIntent
from agents.exceptions import BudgetExceeded, BudgetRefused, CostCapReached, ModelSuspended, RetryLater, UnpricedModel
from agents.guard import guarded_tool_call
from agents.guard.context import persisting
from agents.guard.params import BadParams
from agents.ledger.boundary import lock
from agents.ledger.budgets import budgets_lock
from agents.ledger.prices import declared_price, estimate_model_call
from agents.models import AgentSession, ToolCall
from agents.policy import brakes, costs
from agents.sessions.reads import call_latest
from agents.skills.skill import Skill
from agents.types import ZERO, Ledger, ModelRequest
from audit.redaction import redact_data
from audit.rows import canonical

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
