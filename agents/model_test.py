"""Tests a model with small questions: does it answer, to a schema, and after the result of a call?

Each question is a guarded call of a run of its own, so it is priced, booked and in the audit log like any other. What
the server does not take is asked in another form, and that is remembered (agents.ledger.model_servers).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import clock
from agents.enums import Phase, Purpose, TerminalReason, ToolIntent
from agents.exceptions import InvalidTransition, ModelSuspended, RetryLater
from agents.guard import guarded_tool_call
from agents.guard.selftest import arm
from agents.guard.tools import persisting
from agents.ledger.model_servers import form_forget, known_of
from agents.ledger.outages import outage_try_now
from agents.models import AgentSession, InferenceLog, ToolCall
from agents.people.access import actor_of, require_start_permission
from agents.runner import run_claimed
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_create, session_enter_phase
from agents.sessions.model_facts import require_declared
from agents.sessions.reads import call_latest
from agents.types import Finished
from audit import recorder
from audit.models import SYSTEM_CHAIN

MAX_TOKENS: Final = 1_024  # also for what a model thinks
CAP_USD: Final = Decimal("0.25")
OWNER: Final = "models-test"

_SYSTEM: Final = {"role": "system", "content": "You are being tested. Answer in a few words."}
_CALL: Final = {
    "id": "weather01",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Oslo"}'},
}
_WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Returns the weather at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
_NUMBER: Final = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
QUESTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "answer": {"messages": [_SYSTEM, {"role": "user", "content": "Say hello."}], "must_answer": True},
    "schema": {
        "messages": [_SYSTEM, {"role": "user", "content": 'What is 3 + 4? Answer with JSON: {"number": …}'}],
        "response_schema": _NUMBER,
        "must_answer": True,
    },
    "tools": {
        "messages": [
            _SYSTEM,
            {"role": "user", "content": "What is the weather in Oslo?"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "weather01", "content": "Snow, -3 degrees."},
        ],
        "tools": [_WEATHER],
    },
}


EMBEDDING: Final[Mapping[str, Mapping[str, Any]]] = {"answer": {"embed": "test", "query": "Say hello."}}


@dataclass(frozen=True)
class Answer:
    """What came back for one question: text, or why there is none; and what it took."""

    question: str
    ok: bool
    text: str = ""
    error: str = ""
    follows_schema: bool | None = None
    requests: int = 0
    took_ms: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal = Decimal(0)


def model_test(*, model: str, by: User, now: datetime) -> dict[str, Any]:
    """Test a model for a user who may start runs. An answer ends its outage, as that of any other call does."""
    require_declared(model)
    require_start_permission(by)
    return run_test(model, by, by=by, now=now)


def run_test(model: str, owner: User, *, by: User | None, now: datetime) -> dict[str, Any]:
    """Ask the questions in a run of the owner, and return what came back and what was found out."""
    arm()
    answers: list[Answer] = []
    session = claim_session(owner, now=now)
    details = {"model": model, "session_id": str(session.public_id)}
    recorder.append(SYSTEM_CHAIN, "model.tested", now=now, actor=actor_of(by), details=details)
    run_claimed(session, lambda held: ask_model(held, model, answers))
    row = AgentSession.objects.get(pk=session.pk)
    return {
        "model": model,
        "ok": bool(answers) and answers[0].ok,
        "session": str(row.public_id),
        "error": row.error,
        "cost_usd": str(row.cost_total_usd),
        "actual_usd": str(row.cost_actual_usd),
        "answers": [{**asdict(answer), "cost_usd": str(answer.cost_usd)} for answer in answers],
        "server": known_of(model),
    }


@transaction.atomic
def claim_session(owner: User, *, now: datetime) -> AgentSession:
    """Create the run of a test, held by the caller: queued and claimed in one transaction, so no worker takes it."""
    session = session_create(owner=owner, now=now, max_cost_usd=CAP_USD, asked_by=OWNER)
    claimed = lease_claim(session.pk, owner=OWNER, now=now)
    if claimed is None:
        raise InvalidTransition(f"{owner} has as many active runs as allowed; try again later.")
    return claimed


def ask_model(session: AgentSession, model: str, answers: list[Answer]) -> Finished:
    """Ask every question and add what came back. What was found out about the server before is forgotten."""
    session_enter_phase(session, Phase.ANALYSIS, now=clock())
    form_forget(model)
    outage_try_now(model, now=clock())
    questions = EMBEDDING if _embeds(model) else QUESTIONS
    for question, params in questions.items():
        answers.append(_answer(session, model, question, params))
        if not answers[-1].ok and question == "answer":
            return Finished(TerminalReason.PROVIDER_ERROR, error=answers[-1].error)
    return Finished()


def _answer(session: AgentSession, model: str, question: str, params: Mapping[str, Any]) -> Answer:
    seen = InferenceLog.objects.filter(session=session).count()
    asked = {**params, "model": model}
    if not _embeds(model):
        asked |= {"max_tokens": MAX_TOKENS, "purpose": str(Purpose.TEST)}
    intent = ToolIntent.RETRIEVE_CHUNKS if _embeds(model) else ToolIntent.RUN_SKILL
    key = f"test:{question}"
    try:
        with persisting(1):
            result = guarded_tool_call(session, intent, asked, key=key)
        made = call_latest(session, key)
        data, error = result.data or {}, result.error
        if made is not None and made.model != model:  # a fallback
            error = f"{model} did not answer: {_cause(session, key, model)} {made.model} answered instead."
    except (RetryLater, ModelSuspended) as away:
        made = call_latest(session, key)
        data, error = {}, (made.error if made else "") or str(away)
    tried = InferenceLog.objects.filter(session=session).order_by("pk")[seen:]
    return Answer(
        question,
        ok=not error,
        text=str(data.get("text") or ""),
        error=error,
        follows_schema=_has_number(str(data.get("text") or "")) if "response_schema" in params and not error else None,
        requests=len(tried),
        took_ms=sum(one.latency_ms for one in tried),
        input_tokens=sum(one.input_tokens for one in tried),
        output_tokens=sum(one.output_tokens for one in tried),
        reasoning_tokens=sum(one.reasoning_tokens for one in tried),
        cost_usd=sum((one.cost_estimate or Decimal(0) for one in tried), Decimal(0)),
    )


def _embeds(model: str) -> bool:
    return bool(settings.LQOPS_MODELS.get(model, {}).get("provider") == "openai_embeddings")


def _cause(session: AgentSession, key: str, model: str) -> str:
    """Return why the model itself did not answer, as a sentence."""
    tried = ToolCall.objects.filter(session=session, key=key, model=model).order_by("-attempt").first()
    cause = tried.error.strip() if tried else ""
    cause = cause or "it is suspended, or too dear for the cap of a test."
    return cause if cause.endswith((".", "?", "!")) else f"{cause}."


def _has_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text)["number"], int)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
