"""Tests a model with one real question for each of its roles, and reads the answers as a run would.

Each question is a guarded call of a run of its own, so it is priced, booked and in the audit log like any other. What
the server does not take is asked in another form, and that is remembered (agents.ledger.model_servers).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import clock
from agents.definitions.catalogue import declaration_of, roles_of
from agents.definitions.schema import Signal
from agents.enums import Phase, Purpose, TerminalReason, ToolIntent
from agents.exceptions import Invalid, ModelSuspended, RetryLater
from agents.guard import guarded_tool_call
from agents.guard.selftest import arm
from agents.guard.tools import limited_to, persisting
from agents.ledger.model_servers import form_forget, known_of
from agents.ledger.outages import outage_try_now
from agents.models import AgentSession, InferenceLog, ToolCall
from agents.people.access import actor_of, require_start_permission
from agents.policy.guardrails import Stop
from agents.policy.model_catalogue import (
    CALL_SECONDS,
    CONSOLE,
    EMBEDDING_PROVIDER,
    EMBEDDINGS,
    JUDGES,
    MAIN,
    ROLES,
    SMALL,
)
from agents.runner import run_claimed
from agents.sensors.signals import MAX_TOKENS as SCORE_TOKENS
from agents.sensors.signals import read_score, score_messages
from agents.sessions.leases import lease_claim_now
from agents.sessions.lifecycle import session_create, session_enter_phase
from agents.sessions.model_facts import require_declared
from agents.sessions.reads import call_latest
from agents.text.blocks import Part, nonce_of
from agents.types import Finished
from agents.walk.parsing import parse_analysis, parse_judgement
from agents.walk.prompts import analysis_question, judge_question
from audit import recorder
from audit.models import SYSTEM_CHAIN

MAX_TOKENS: Final = 1_024  # also for what a model thinks
TEST_SECONDS: Final = 60  # of all questions together, where somebody waits for the page
CAP_USD: Final = Decimal("0.25")
OWNER: Final = "models-test"

# --- One question for each role, as runs ask it, and how its answer is read ---

Params = dict[str, Any]

_CONTRACT: Final = "The customer pays each invoice within 90 days.\nThe contract is governed by the law of Norway."
_RULE: Final = "# Rules\n- [warn] must: payment within 30 days"
_SIGNAL: Final = Signal(name="door", prompt="Does the newest reading say that the door is open?")
_READINGS: Final = ("10:00 door closed", "10:05 door open")
_CLAIM: Final = "The customer has 90 days to pay."
_WEATHER: Final = "What is the weather in Oslo?"
_CALL: Final = {
    "id": "weather01",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Oslo"}'},
}
_WEATHER_SKILL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Returns the weather at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def _analysis(model: str, nonce: str) -> Params:
    parts = [Part("skill", _RULE, {"name": "test"}), Part("document", _CONTRACT, {"id": "test", "name": "contract"})]
    return {**analysis_question(parts, nonce=nonce, model=model), "max_tokens": MAX_TOKENS}


def _score(model: str, nonce: str) -> Params:
    messages = score_messages(_SIGNAL, _READINGS, sensor="door", nonce=nonce)
    return {"messages": messages, "max_tokens": SCORE_TOKENS, "purpose": str(Purpose.SIGNAL)}


def _judgement(model: str, nonce: str) -> Params:
    return judge_question(claim=_CLAIM, quote=_CONTRACT.splitlines()[0], nonce=nonce, model=model)


def _chat(model: str, nonce: str) -> Params:
    """A chat in which a skill was called: its result is there, and the answer is still to come."""
    return {
        "messages": [
            {"role": "system", "content": "You answer in one sentence. Skills look up what you do not know."},
            {"role": "user", "content": _WEATHER},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "weather01", "content": "Snow, -3 degrees."},
        ],
        "tools": [_WEATHER_SKILL],
        "max_tokens": MAX_TOKENS,
        "purpose": str(Purpose.CHAT),
    }


def _read_analysis(text: str) -> tuple[bool, str]:
    found = parse_analysis(text)
    if not found.is_structured:
        return False, "No findings can be read: the reply holds no JSON object with a list of findings."
    if not found.findings:
        return False, "Readable, but the finding is missing: 90 days instead of 30."
    quoted = sum(bool(one.quote) and one.quote in _CONTRACT for one in found.findings)
    return True, f"Findings read: {len(found.findings)}, of which {quoted} quote the contract."


def _read_score(text: str) -> tuple[bool, str]:
    score = read_score(text)
    return (False, "No score from 0 to 1 can be read.") if score is None else (True, f"Score read: {score}.")


def _read_judgement(text: str) -> tuple[bool, str]:
    supported = parse_judgement(text)
    if supported is None:
        return False, "No verdict can be read."
    return True, f"Verdict read: {'supported' if supported else 'not supported'}."


def _read_chat(text: str) -> tuple[bool, str]:
    words = len(text.split())
    return (True, f"Answer of {words} words read.") if words else (False, "No text: it cannot answer after a call.")


def _embedding(model: str, nonce: str) -> Params:
    return {"embed": "test", "query": "Hello world"}


def _read_embedding(text: str) -> tuple[bool, str]:
    return True, f"Read: {text}."  # what is no vector is no answer


@dataclass(frozen=True)
class RoleQuestion:
    """What a role is asked, in words and as a request, and what is read from the answer."""

    words: str
    params: Callable[[str, str], Params]
    read: Callable[[str], tuple[bool, str]]
    intent: ToolIntent = ToolIntent.RUN_SKILL


QUESTIONS: Final[Mapping[str, RoleQuestion]] = {
    MAIN: RoleQuestion("Check a contract of two lines against: payment within 30 days.", _analysis, _read_analysis),
    SMALL: RoleQuestion(f"{_SIGNAL.prompt} One number from 0 to 1.", _score, _read_score),
    JUDGES: RoleQuestion(f"Does the quote support the claim: {_CLAIM}", _judgement, _read_judgement),
    CONSOLE: RoleQuestion(f"{_WEATHER} (with the result of a call)", _chat, _read_chat),
    EMBEDDINGS: RoleQuestion("A vector of two words.", _embedding, _read_embedding, ToolIntent.RETRIEVE_CHUNKS),
}


@dataclass(frozen=True)
class Answer:
    """What came back for one question, what was read from it, and what it took; or why there is no answer."""

    role: str
    question: str
    answered: bool
    readable: bool = False
    text: str = ""
    error: str = ""
    reading: str = ""
    requests: int = 0
    took_ms: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal = Decimal(0)


# --- A test ---


def model_test(*, model: str, by: User, now: datetime, role: str = "") -> dict[str, Any]:
    """Test a model for a user who may start runs, and who waits for the answer: for a minute at most.

    An answer ends its outage, as that of any other call does.
    """
    require_declared(model)
    require_start_permission(by)
    return run_test(model, by, by=by, now=now, role=role, seconds=TEST_SECONDS)


def run_test(
    model: str,
    owner: User,
    *,
    by: User | None,
    now: datetime,
    role: str = "",
    seconds: float = len(ROLES) * CALL_SECONDS,
) -> dict[str, Any]:
    """Ask the question of one role, or of each that the model has, in a run of the owner.

    Returns what came back, what was read from it, and what was found out about the server. A model without a role is
    asked what the main one is asked.
    """
    if role and role not in QUESTIONS:
        raise Invalid(f"There is no role {role[:32]!r}; known: {', '.join(QUESTIONS)}.")
    embeds = declaration_of(model).get("provider") == EMBEDDING_PROVIDER
    roles = [role] if role else roles_of(model) or [EMBEDDINGS if embeds else MAIN]
    arm()
    answers: list[Answer] = []
    session = claim_session(owner, model, now=now)
    details = {"model": model, "session_id": str(session.public_id)}
    recorder.append(SYSTEM_CHAIN, "model.tested", now=now, actor=actor_of(by), details=details)
    run_claimed(session, lambda held: ask_model(held, model, roles, answers, seconds=seconds))
    row = AgentSession.objects.get(pk=session.pk)
    return {
        "model": model,
        "ok": len(answers) == len(roles) and all(answer.readable for answer in answers),
        "session": str(row.public_id),
        "error": row.error,
        "spent_usd": str(row.spent_usd),
        "charged_usd": str(row.cost_total_usd),
        "cost_usd": str(row.cost_total_usd),
        "actual_usd": str(row.cost_actual_usd),
        "answers": [{**asdict(answer), "cost_usd": str(answer.cost_usd)} for answer in answers],
        "server": known_of(model),
    }


@transaction.atomic
def claim_session(owner: User, model: str, *, now: datetime) -> AgentSession:
    """Create the run of a test, held by the caller: queued and claimed in one transaction, so no worker takes it."""
    session = session_create(
        owner=owner, now=now, max_cost_usd=CAP_USD, asked_by=OWNER, purpose=f"test of model {model}"
    )
    return lease_claim_now(session, owner=OWNER, now=now)


def ask_model(
    session: AgentSession, model: str, roles: Sequence[str], answers: list[Answer], *, seconds: float
) -> Finished:
    """Ask the question of each role and add what came back, until one gets no answer or the time is over.

    What was found out about the server before is forgotten.
    """
    session_enter_phase(session, Phase.ANALYSIS, now=clock())
    form_forget(model)
    outage_try_now(model, now=clock())
    ends_at = time.monotonic() + seconds
    for role in roles:
        left = ends_at - time.monotonic()
        with limited_to(left), persisting(1):
            over = Answer(
                role, QUESTIONS[role].words, answered=False, error=f"Not asked: {seconds:g} seconds are over."
            )
            answers.append(_answer(session, model, role, seconds=left) if left > 0 else over)
        if not answers[-1].answered:
            return Finished(TerminalReason.PROVIDER_ERROR, error=answers[-1].error)
    return Finished()


def _answer(session: AgentSession, model: str, role: str, *, seconds: float) -> Answer:
    seen = InferenceLog.objects.filter(session=session).count()
    key = f"test:{role}"
    question = QUESTIONS[role]
    asked = {**question.params(model, nonce_of(session.public_id, key)), "model": model}
    if declaration_of(model).get("provider") != "offline":  # which tells from the purpose what it is asked
        asked["purpose"] = str(Purpose.TEST)
    try:
        result = guarded_tool_call(session, question.intent, asked, key=key)
        made = call_latest(session, key)
        data, error = result.data or {}, result.error
        if made is not None and made.model != model:  # a fallback
            error = f"{model} did not answer: {_cause(session, key, model)} {made.model} answered instead."
    except (RetryLater, ModelSuspended) as away:
        made = call_latest(session, key)
        data, error = {}, (made.error if made else "") or str(away)
    text = str(data.get("text") or "")
    readable, reading = (False, "") if error else question.read(text)
    if data.get("stop_reason") == Stop.MAX_TOKENS:
        reading = f"{reading} The answer was cut off at its maximum of tokens: raise max_tokens of the model."
    tried = InferenceLog.objects.filter(session=session).order_by("pk")[seen:]
    if data.get("stop_reason") == Stop.OUT_OF_TIME:
        readable, reading = False, _too_slow(model, text, tried, seconds=seconds)
    return Answer(
        role,
        question.words,
        answered=not error,
        readable=readable,
        text=text,
        error=error,
        reading=reading,
        requests=len(tried),
        took_ms=sum(one.latency_ms for one in tried),
        input_tokens=sum(one.input_tokens for one in tried),
        output_tokens=sum(one.output_tokens for one in tried),
        reasoning_tokens=sum(one.reasoning_tokens for one in tried),
        cost_usd=sum((one.cost_estimate or Decimal(0) for one in tried), Decimal(0)),
    )


def _too_slow(model: str, text: str, tried: Iterable[InferenceLog], *, seconds: float) -> str:
    """Say that the time ran out while the model was writing, whose limit that is, and how fast the model is."""
    waits = float(declaration_of(model).get("total_seconds", CALL_SECONDS))
    whose = "the test" if seconds < waits else "every call of this model (total_seconds)"
    pace = len(text) / max(sum(one.latency_ms for one in tried) / 1_000, 0.1)
    runs = f" Runs wait {waits:.0f} seconds." if seconds < waits else ""
    return (
        f"The answer was not whole after {min(seconds, waits):.0f} seconds, the limit of {whose}. The model wrote "
        f"{pace:.0f} characters a second.{runs}"
    )


def _cause(session: AgentSession, key: str, model: str) -> str:
    """Return why the model itself did not answer, as a sentence."""
    tried = ToolCall.objects.filter(session=session, key=key, model=model).order_by("-attempt").first()
    cause = tried.error.strip() if tried else ""
    cause = cause or "it is suspended, or too dear for the cap of a test."
    return cause if cause.endswith((".", "?", "!")) else f"{cause}."
