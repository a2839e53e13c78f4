"""One question of the step loop to its model: what of the transcript is sent, and what is left to spend."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from agents.conf import clock, model_for
from agents.definitions.in_force import definition_of
from agents.enums import Purpose, Risk, ToolIntent
from agents.guard import guarded_tool_call
from agents.guard.tools import listening
from agents.models import Agent, AgentSession, Message, SkillSetting
from agents.policy.context_window import (
    MARK,
    Mark,
    fit,
    parted,
    split_for_summary,
    summary_prompt,
    unmarked,
    with_summary,
)
from agents.policy.guardrails import GuardrailsConfig, LoopConfig, Reason, Strategy, budget_line, step_limit
from agents.sessions.reads import arguments_asked
from agents.sessions.transcripts import Entry
from agents.skills.registry import installed_skills
from agents.skills.skill import Skill
from agents.text.blocks import nonce_of, render_block
from agents.types import ToolResult

# --- A guarded call at a fixed place of a run, asked again in the very words of the journal ---
#
# What went into a lost attempt may have changed since (notes, context, documents); the run is repeatable because the
# stored arguments are used again, not because the world stood still.


def call(
    session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any], *, risk: Risk | None = None
) -> ToolResult:
    """One guarded call: in the words of the journal if it holds this place already, else with these parameters."""
    return guarded_tool_call(session, intent, asked_before(session, key) or params, key=key, risk=risk)


def asked_before(session: AgentSession, key: str) -> Mapping[str, Any] | None:
    """The arguments of an earlier attempt. Not those that a person changed: they are not what was asked for."""
    return arguments_asked(session, key)


# What a run works with, as its agent's definition says: the model it asks, and the skills that it is offered.


def model_of(agent: Agent | None) -> str:
    """The agent's own model, else the installation's."""
    chosen = definition_of(agent).model if agent else None
    return chosen or model_for("main")


def skills_of(agent: Agent | None) -> dict[str, Skill]:
    """Those that the definition names, else all that are installed; of either, those that are not disabled."""
    named = definition_of(agent).skills if agent else None
    disabled = set(SkillSetting.objects.filter(enabled=False).values_list("name", flat=True))
    offered = {name: skill for name, skill in installed_skills().items() if named is None or name in named}
    return {name: skill for name, skill in offered.items() if name not in disabled}


# A transcript in the form that model servers read. What tools said stands in marked blocks: it is data. Pure.


SYNTAX: Final = "skill_syntax"  # the reason of what is said of a reply whose calls cannot be read
_ASIDES: Final = frozenset({SYNTAX, *Reason})


class Said(Protocol):
    """An entry of a transcript."""

    role: str
    content: str
    calls: list[dict[str, Any]]
    call_id: str
    reason: str


def as_sent(transcript: Iterable[Said], *, nonce: str) -> list[dict[str, Any]]:
    """Results of calls that came as tags go back as the user's words, for there is no call id to answer to.

    They, and what the loop itself says on the way, are marked: neither is what the user asked for.
    """
    sent: list[dict[str, Any]] = []
    native: dict[str, str] = {}
    for entry in transcript:
        if entry.role == "assistant":
            native = {call["id"]: call["name"] for call in entry.calls if call["native"]}
            sent.append({"role": "assistant", "content": entry.content, **_asked(entry.calls)})
        elif entry.role == "tool":
            block = render_block("tool_output", entry.content, nonce=nonce)
            if entry.call_id in native:
                sent.append({"role": "tool", "tool_call_id": entry.call_id, "content": block})
            else:
                told = f"Result of call {entry.call_id}:\n{block}"
                sent.append({"role": "user", "content": told, MARK: Mark.RESULT})
        else:
            aside = {MARK: Mark.ASIDE} if entry.reason in _ASIDES else {}
            sent.append({"role": entry.role, "content": entry.content, **aside})
    return sent


def _asked(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    asked = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _object(call)}}
        for call in calls
        if call["native"]
    ]
    return {"tool_calls": asked} if asked else {}


def _object(call: Mapping[str, Any]) -> str:
    """The arguments of a call, or of one that could not be read none: servers refuse what is no JSON object."""
    try:
        return call["arguments"] if isinstance(json.loads(call["arguments"]), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


SUMMARY_TOKENS = 1_024

# Asked about each call of a group, in order, before any of them is made: why it may not be, or nothing.
Admission = Callable[[str, Skill, Mapping[str, Any]], str]


@dataclass(frozen=True)
class Brief:
    """What a run of steps works with. `opening` is said once, at the beginning of the transcript (or of a loop's turn);
    `before` was said in earlier turns, and is sent again without being written again."""

    model: str
    opening: tuple[Entry, ...]
    skills: dict[str, Skill]
    before: tuple[Message, ...] = ()
    turn: int = 0
    key: str = "step"
    purpose: Purpose = Purpose.AUTONOMOUS_EXECUTOR
    max_tokens: int = 1_024
    config: LoopConfig = field(default_factory=LoopConfig)
    guardrails: GuardrailsConfig = field(default_factory=GuardrailsConfig)
    listener: Callable[[Any], None] | None = None
    admit: Callable[[], Admission] | None = None


def _whole(transcript: Sequence[Message], before: Sequence[Message]) -> list[Message]:
    """The system's words of now, what was said before, and what was said since."""
    told = [entry for entry in transcript if entry.role == "system"]
    return [*told, *before, *(entry for entry in transcript if entry.role != "system")]


class Asker:
    """Asks at a fixed place of the run, and again in the same words when an answer was lost."""

    def __init__(self, session: AgentSession, config: LoopConfig, *, key: str) -> None:
        self._session, self._config, self._key = session, config, key

    def ask(self, transcript: Sequence[Message], brief: Brief, *, number: int) -> ToolResult:
        place = f"{self._key}:{number}"
        params = asked_before(self._session, place)
        if params is None:
            params = {
                "model": brief.model,
                "messages": [*self._window(_whole(transcript, brief.before), brief, place), self._what_is_left(number)],
                "max_tokens": brief.max_tokens,
                "purpose": str(brief.purpose),
                "tools": [skill.offer for skill in brief.skills.values() if not skill.lacking],
            }
        with listening(brief.listener if self._config.streaming else None):
            return guarded_tool_call(self._session, ToolIntent.RUN_SKILL, params, key=place)

    def _window(self, transcript: Sequence[Message], brief: Brief, place: str) -> list[dict[str, Any]]:
        """What of the transcript fits the model. The transcript itself is whole, and stays so."""
        config, nonce = self._config, nonce_of(self._session.public_id, self._key)
        sent = as_sent(transcript, nonce=nonce)
        strategy = config.context_strategy
        if strategy == Strategy.SUMMARIZE:
            reserve = min(brief.max_tokens, config.context_window // 2)
            summarised = self._summarised(sent, place, nonce, reserve=reserve)
            sent, strategy = summarised or sent, Strategy.SLIDING_WINDOW
        return unmarked(fit(sent, window=config.context_window, strategy=strategy).messages)

    def _summarised(
        self, sent: Sequence[dict[str, Any]], place: str, nonce: str, *, reserve: int
    ) -> list[dict[str, Any]] | None:
        """With a summary in place of the older part; None when there is no need, or no summary to be had.

        What the reply may need is kept free: `reserve` tokens.
        """
        parts = split_for_summary(sent, window=self._config.context_window, reserve=reserve)
        if parts is None:
            return None
        older, newer = parts
        question = {
            "model": model_for("small"),
            "prompt": summary_prompt(older, window=self._config.context_window, nonce=nonce),
            "max_tokens": SUMMARY_TOKENS,
            "purpose": str(Purpose.COMPACTION),
        }
        key = f"{place}:summary"
        told = guarded_tool_call(
            self._session, ToolIntent.RUN_SKILL, asked_before(self._session, key) or question, key=key, now=clock()
        )
        text = str(told.data.get("text") or "") if told.ok else ""
        if not text.strip():
            return None
        system, _ = parted(sent)
        return [dict(message) for message in with_summary(text, newer, system, nonce=nonce)]

    def _what_is_left(self, number: int) -> dict[str, str]:
        row = AgentSession.objects.get(pk=self._session.pk)
        money = None if row.max_cost_usd is None else row.max_cost_usd - row.ledger.approved
        tokens = row.token_budget - row.total_tokens if row.token_budget else None
        line = budget_line(money, tokens, step_limit(self._config) - number + 1)
        return {"role": "user", "content": line.text}
