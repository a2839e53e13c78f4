"""A trial of an agent's sensors: read each once, judge each signal once, and ask the gate once.

It is a run of its own, so tools and models are guarded, priced and in the audit log like any other. The agent need not
run. Nothing is kept: no cursor, no hot state, no alert; no file is added to a collection.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db import connections, transaction

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.definitions.schema import AgentDefinition, SensorSpec, Signal
from agents.enums import Phase, ToolIntent
from agents.exceptions import Invalid, LqopsError
from agents.guard import guarded_tool_call
from agents.guard.selftest import arm
from agents.loop.gate import ask_gate
from agents.models import Agent, AgentSession, Sensor
from agents.net.streams import StreamingClient
from agents.people.access import SYSTEM, actor_of, require_access, require_start_permission
from agents.policy.conditions import judge
from agents.policy.destinations import Destination
from agents.runner import run_claimed
from agents.sensors.rows import LeasedSensor, Reading, preview, safe_text
from agents.sensors.sensing import Failed, FileChangeWatcher, SensorServices, secret_user
from agents.sensors.signals import CallFailed, Params, SignalScoring
from agents.sensors.slice import sensing_class
from agents.sensors.validation import source_problem, tool_problem
from agents.sessions.leases import lease_claim_now
from agents.sessions.lifecycle import session_create, session_enter_phase
from agents.skills.handles import secrets_resolve
from agents.types import Finished, ToolResult
from audit.receipts import usd
from audit.redaction import redact_exception

CAP_USD: Final = Decimal("0.25")
OWNER: Final = "agent-try"
LOOK_SECONDS: Final = 30.0
Result = TypeVar("Result")


def agent_try(*, agent: Agent, by: User | None, now: datetime, actor: str = SYSTEM) -> dict[str, Any]:
    """Try the sensors, signals and gate of an agent; return what each of them said, and the cost."""
    require_access(by, owner_id=agent.owner_id, permission="agents.change_agentsession")
    if by is not None:
        require_start_permission(by)
    definition = definition_of(agent)
    if not definition.sensors and not _gate_model(definition):
        raise Invalid(f"The agent {agent.name} has neither sensors nor a gate to try.")
    arm()
    found: dict[str, Any] = {"sensors": [], "gate": None}
    session = _claim(agent, definition, actor=actor_of(by, actor), now=now)
    run_claimed(session, lambda held: _try(held, agent, definition, found))
    row = AgentSession.objects.get(pk=session.pk)
    skipped = [{"name": one.name, "type": one.kind, "ok": False, "problem": one.problem, "value": "", "took_ms": 0,
                "signals": []} for one in definition.broken_sensors]  # fmt: skip
    sensors = [*found["sensors"], *skipped]
    return {
        "agent": str(agent.public_id),
        "name": agent.name,
        "ok": not row.error
        and not (found["gate"] or {}).get("problem")
        and all(one["ok"] and not any(signal["problem"] for signal in one["signals"]) for one in sensors),
        "session": str(row.public_id),
        "error": row.error,
        "spent_usd": str(row.spent_usd),
        "charged_usd": str(row.cost_total_usd),
        "cost_usd": str(row.cost_total_usd),
        "actual_usd": str(row.cost_actual_usd),
        "sensors": sensors,
        "gate": found["gate"],
    }


def trial_lines(facts: dict[str, Any]) -> list[str]:
    """Return a trial in words, one line for each sensor and signal."""
    lines = []
    for sensor in facts["sensors"]:
        said = sensor["value"] or "nothing to read now"
        lines.append(f"{sensor['name']}: {said if sensor['ok'] else 'FAILED: ' + sensor['problem']}")
        for signal in sensor["signals"]:
            verdict = "fires" if signal["fires"] else "does not fire"
            problem = f" PROBLEM: {signal['problem']}" if signal["problem"] else ""
            lines.append(f"  {signal['name']}: {verdict}. {signal['text']}{problem}".rstrip())
    if facts["gate"]:
        gate = facts["gate"]
        problem = f" PROBLEM: {gate['problem']}" if gate["problem"] else ""
        lines.append(f"Gate: {'opens' if gate['opens'] else 'stays closed'} ({gate['model']}).{problem}")
    if facts["error"]:
        lines.append(f"Stopped: {facts['error']}")
    lines.append(f"Spent: {usd(Decimal(facts['spent_usd']))}. Run: {facts['session']}.")
    return lines


@transaction.atomic
def _claim(agent: Agent, definition: AgentDefinition, *, actor: str, now: datetime) -> AgentSession:
    """Create the run, held by the caller: queued and claimed in one transaction, so that no worker takes it."""
    cap = CAP_USD if definition.max_cost_usd is None else min(CAP_USD, definition.max_cost_usd)
    session = session_create(
        owner=agent.owner, agent=agent, max_cost_usd=cap, asked_by=actor, purpose=f"trial of {agent.name}", now=now
    )
    return lease_claim_now(session, owner=OWNER, now=now)


def _gate_model(definition: AgentDefinition) -> str | None:
    return definition.autonomy.precheck_model if definition.autonomy else None


def _try(session: AgentSession, agent: Agent, definition: AgentDefinition, found: dict[str, Any]) -> Finished:
    session_enter_phase(session, Phase.ANALYSIS, now=clock())
    found["sensors"] = asyncio.run(_Trial(session, agent, definition).run())
    if model := _gate_model(definition):
        shown = [f"{one['name']}: (none) -> {one['value']}" for one in found["sensors"] if one["ok"]]
        asked = ask_gate(session, "\n".join(shown)[:4_000], model=model, key="try:gate")
        found["gate"] = {
            "model": model,
            "opens": asked.matters,
            "problem": asked.problem,
            "cost_usd": str(asked.cost_usd),
        }
    return Finished()


class _Trial:
    """The sensors of one agent, one after the other, in an event loop of their own."""

    def __init__(self, session: AgentSession, agent: Agent, definition: AgentDefinition) -> None:
        self._session = session
        self._agent = agent
        self._definition = definition
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="sensor-try")

    async def run(self) -> list[dict[str, Any]]:
        try:
            async with StreamingClient() as client:
                services = SensorServices(
                    hand_in=_keep_nothing,
                    loop_of=lambda agent_id: 0,
                    calls=self,
                    resolve=self._resolve,
                    client=client,
                    fetches=asyncio.Semaphore(1),
                    queries=asyncio.Semaphore(1),
                    files=self._threads,
                    threads=self._threads,
                    watcher=FileChangeWatcher(),
                )
                return [await self._try_sensor(spec, services) for spec in self._definition.sensors]
        finally:
            self._threads.shutdown(wait=True)

    async def call(self, held: LeasedSensor, loop_pk: int, key: str, params: Params) -> ToolResult:
        """Make one guarded call under the session of the trial."""
        name = f"try:{held.spec.name}:{key}"

        def work() -> ToolResult:
            given = params(self._session)
            return guarded_tool_call(self._session, ToolIntent.RUN_SKILL, given, key=name, now=clock())

        try:
            return await self._in_thread(work)
        except LqopsError as error:
            raise CallFailed(str(error)) from None

    async def _resolve(
        self, held: LeasedSensor, given: Mapping[str, Any], destination: Destination
    ) -> Mapping[str, Any]:
        """Put secrets in the place of handles; each use is on record."""
        user = secret_user(held, session_id=str(self._session.public_id))
        resolve = partial(secrets_resolve, given, tuple(given), destinations=[destination], user=user)
        return await self._in_thread(lambda: resolve(now=clock()))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(_with_connection, work))

    async def _try_sensor(self, spec: SensorSpec, services: SensorServices) -> dict[str, Any]:
        row = Sensor(agent=self._agent, name=spec.name, kind=spec.type)
        held = LeasedSensor(row, spec, self._definition)
        started = monotonic()
        problem, items = "", []
        try:
            if rejected := await self._in_thread(lambda: tool_problem(held, self._agent)):
                raise Failed(rejected[1])
            if wrong := source_problem(spec.source, spec.type):
                raise Failed(wrong)
            async with asyncio.timeout(LOOK_SECONDS):
                items = await sensing_class(spec)(held, services).sample()
        except Failed as error:
            problem = str(error)
        except TimeoutError:
            problem = f"it took longer than {LOOK_SECONDS:g} seconds"
        except Exception as error:  # noqa: BLE001 whatever a source does, the others are tried
            problem = redact_exception(error)
        took = round((monotonic() - started) * 1000)
        return {
            "name": spec.name,
            "type": str(spec.type),
            "ok": not problem,
            "problem": safe_text(problem),
            "value": preview(items[-1]) if items else "",
            "items": len(items),
            "took_ms": took,
            "signals": [await self._try_signal(held, signal, items) for signal in spec.signals] if not problem else [],
        }

    async def _try_signal(self, held: LeasedSensor, signal: Signal, items: list[Any]) -> dict[str, Any]:
        found = {"name": signal.name, "fires": False, "score": None, "text": "", "problem": ""}
        if not items:
            return {**found, "text": "nothing to judge"}
        if signal.when is not None:
            return {**found, **_judged(held.spec, signal, items)}
        only = LeasedSensor(held.row, held.spec.model_copy(update={"signals": (signal,)}), held.definition)
        scoring = SignalScoring(only, self)
        scoring.add(items, f"try:{signal.name}")
        fired, problems = await scoring.score_due(0)
        state = scoring.state()[signal.name]
        said = f"no score: {state['said']}" if "said" in state else ""
        score = state.get("score")
        text = f"score {score}, threshold {signal.threshold}" if score else said
        return {**found, "fires": bool(fired), "score": score, "text": text, "problem": "; ".join(problems) or said}


def _judged(spec: SensorSpec, signal: Signal, items: list[Any]) -> dict[str, Any]:
    """Judge conditions as if this were the first reading."""
    judged = judge(signal.conditions, {}, items, now=clock(), each=spec.judges_each(signal))
    words = " and ".join(map(str, signal.conditions))
    waits = any(one.changed or one.absent_for is not None or one.hold for one in signal.conditions)
    text = f"{words}{' (needs more than one reading)' if waits else ''}"
    problem = safe_text(judged.problem) if judged.unjudged == len(items) else ""
    return {"fires": bool(judged.fired), "text": text, "problem": problem}


async def _keep_nothing(result: Reading | Any) -> bool:
    return True


def _with_connection(work: Callable[[], Result]) -> Result:
    try:
        return work()
    finally:
        connections.close_all()
