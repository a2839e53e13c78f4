"""One turn of an agent, whoever asks for it: a chat, a heartbeat, a loop, a trigger. The agent's instructions and what
was said, the model with its skills, rounds of calls up to a limit, and the transcript of it all.

What differs from one to the other is given; everything else is as the agent's definition says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.conf import clock
from agents.definitions.in_force import definition_of, guardrails_of
from agents.engine.loop import Answered, StepLoop
from agents.engine.prompting import Admission, Brief, model_of, skills_of
from agents.enums import Purpose, TerminalReason
from agents.models import Agent, AgentSession, Message
from agents.policy.guardrails import LoopConfig, Stop
from agents.sessions.transcripts import Entry, transcript_append
from agents.skills.skill import Skill
from agents.types import End, Finished


@dataclass(frozen=True)
class SessionKey:
    """Where a turn is written down: in the transcript of a held session, under the turn's number if it has several, and
    in its journal under places that begin with `calls`."""

    session: AgentSession
    turn: int = 0
    calls: str = "step"


def run_agent_turn(
    agent: Agent | None,
    session_key: SessionKey,
    message: tuple[Entry, ...],
    *,
    system: str,
    config: LoopConfig,
    instructed: bool = True,
    max_tokens: int = 1_024,
    started_at: datetime | None = None,
    purpose: Purpose = Purpose.AUTONOMOUS_EXECUTOR,
    before: tuple[Message, ...] = (),
    listener: Callable[[Any], None] | None = None,
    admit: Callable[[], Admission] | None = None,
    closing: Skill | None = None,
) -> Answered | End:
    """Runs a turn to its end, or as far as it comes; begun again, it goes on where it was.

    `message` opens it, with what is quoted before it. `system` are the rules of the turn, which nobody can leave out;
    the agent's own instructions stand before them, unless the turn is not `instructed`. `before` is what was said in
    earlier turns of the same session. With a `closing` skill the turn ends with a reply that calls it, if all calls of
    that reply went well. `started_at` says when the slice began that it is a part of, if not now.
    """
    session, skills = session_key.session, skills_of(agent)
    instructions = definition_of(agent).instructions if agent and instructed else ""
    brief = Brief(
        model=model_of(agent),
        opening=(Entry("system", f"{instructions}\n\n{system}" if instructions else system), *message),
        skills={**skills, closing.name: closing} if closing else skills,
        before=before,
        turn=session_key.turn,
        key=session_key.calls,
        purpose=purpose,
        max_tokens=max_tokens,
        config=config,
        guardrails=guardrails_of(session),
        listener=listener,
        admit=admit,
    )
    return _Turn(session, brief, started_at=started_at or clock(), closing=closing.name if closing else "").run()


def said_at_the_limit(session: AgentSession, config: LoopConfig, end: Answered | End) -> Answered | End:
    """A turn that ran out of rounds of calls is answered with words that say so."""
    if end != Finished(TerminalReason.MAX_STEPS) or not 0 < config.max_tool_rounds <= config.max_steps:
        return end
    told = f"I stopped after {config.max_tool_rounds} rounds of calls, which is the limit of one turn."
    transcript_append(session, [Entry("assistant", told, stop=Stop.END_TURN)], now=clock())
    return Answered(told)


class _Turn(StepLoop):
    """The step loop, which a call of one skill can end."""

    def __init__(self, session: AgentSession, brief: Brief, *, started_at: datetime, closing: str) -> None:
        super().__init__(session, brief, started_at=started_at)
        self._closing = closing

    def _finish_step(self) -> Answered | End | None:
        return super()._finish_step() or self._closed()

    def _closed(self) -> Answered | None:
        last = self._last_reply
        if last is None or all(call["name"] != self._closing for call in last.calls):
            return None
        results = {entry.call_id: entry for entry in self._transcript if entry.seq > last.seq}
        answers = [results.get(call["id"]) for call in last.calls]
        went_well = all(answer is not None and not answer.failed for answer in answers)
        return Answered(last.content) if went_well else None
