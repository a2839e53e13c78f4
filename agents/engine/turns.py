"""Runs one turn of an agent, for a chat, a heartbeat, a loop or a trigger.

The caller gives what differs between them; everything else comes from the agent's definition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.conf import clock
from agents.definitions.in_force import guardrails_config_of
from agents.engine.loop import Answered, StepLoop
from agents.engine.prompting import Admission, Brief, instructions_of, model_of, skills_of, with_instructions
from agents.enums import Purpose, TerminalReason
from agents.ledger.model_limits import answer_tokens
from agents.models import Agent, AgentSession, Message
from agents.policy.guardrails import LoopConfig, Stop
from agents.policy.model_catalogue import CONSOLE, MAIN
from agents.sessions.transcripts import Entry, transcript_append
from agents.skills.skill import Skill
from agents.text.blocks import nonce_of
from agents.types import End, Finished


@dataclass(frozen=True)
class SessionKey:
    """Where a turn is stored: the transcript of a held session, under its turn number if there are several.

    Its journal keys start with `calls`.
    """

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
    max_tokens: int = 1_024,
    started_at: datetime | None = None,
    purpose: Purpose = Purpose.AUTONOMOUS_EXECUTOR,
    before: tuple[Message, ...] = (),
    listener: Callable[[Any], None] | None = None,
    admit: Callable[[], Admission] | None = None,
    closing: Skill | None = None,
    skills: dict[str, Skill] | None = None,
) -> Answered | End:
    """Run a turn to its end or until it must wait. Called again, it continues.

    `message` opens the turn, including what it quotes. `system` holds the rules of the turn; the agent's instructions
    follow them in a block of their own. `before` holds earlier turns of the same session. With a `closing` skill, the
    turn ends after a reply that calls it and whose calls all succeed. `started_at` is the start of the slice, by
    default now. `max_tokens` limits a reply, unless its model declares a limit. `skills` replace those of the agent.
    """
    session = session_key.session
    if skills is None:
        skills = skills_of(agent, phase=session.current_phase, owner_id=session.owner_id)
    nonce = nonce_of(session.public_id, session_key.calls)
    system = with_instructions(system, instructions_of(agent), nonce=nonce)
    model = model_of(agent, CONSOLE if purpose == Purpose.CHAT else MAIN)
    brief = Brief(
        model=model,
        opening=(Entry("system", system), *message),
        skills={**skills, closing.name: closing} if closing else skills,
        before=before,
        turn=session_key.turn,
        key=session_key.calls,
        purpose=purpose,
        max_tokens=answer_tokens(model, purpose, otherwise=max_tokens),
        config=config,
        guardrails=guardrails_config_of(session),
        listener=listener,
        admit=admit,
        closing=closing.name if closing else "",
    )
    return StepLoop(session, brief, started_at=started_at or clock()).run()


def answer_at_round_limit(session: AgentSession, config: LoopConfig, end: Answered | End) -> Answered | End:
    """Answer a turn that reached its limit of call rounds with a message that says so."""
    if end != Finished(TerminalReason.MAX_STEPS) or not 0 < config.max_tool_rounds <= config.max_steps:
        return end
    text = f"I stopped after {config.max_tool_rounds} rounds of calls, which is the limit of one turn."
    transcript_append(session, [Entry("assistant", text, stop=Stop.END_TURN)], now=clock())
    return Answered(text)
