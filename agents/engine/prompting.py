"""One question of the step loop to its model: what of the transcript is sent, and what is left to spend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.conf import clock, model_for
from agents.engine.calls import asked_before
from agents.engine.wire import as_sent
from agents.enums import Purpose, ToolIntent
from agents.guard import guarded_tool_call
from agents.guard.context import listening
from agents.models import AgentSession, Message
from agents.policy.context_window import fit, parted, split_for_summary, summary_prompt, unmarked, with_summary
from agents.policy.guardrails import GuardrailsConfig, LoopConfig, Strategy, budget_line, step_limit
from agents.sessions.transcripts import Entry
from agents.skills.skill import Skill
from agents.text.blocks import nonce_of
from agents.types import ToolResult

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
