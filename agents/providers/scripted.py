"""A provider that plays a script: for tests, rehearsals and dry runs. It opens no connection.

A script is a list of steps, played in order; the last one repeats. Each says what to reply and in what pieces, what to
report as usage (also falsely), how long to take, or how and when to fail. The provider counts its calls to find the
next step, or the model's messages in the conversation, which works in any process.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.providers.base import Chunk, Fault, ProviderError, ended_once
from agents.types import ModelReply, ModelRequest, RequestedCall, Usage


@dataclass(frozen=True)
class Step:
    """One reply. `error` fails the call at once; after `break_after` characters a stream breaks."""

    text: str = ""
    usage: Usage | None = field(default_factory=lambda: Usage(10, 10))
    delay_seconds: float = 0
    stop_reason: str = "end_turn"
    calls: tuple[RequestedCall, ...] = ()
    error: ProviderError | None = None
    before_reply: Callable[[], None] | None = None
    chunk_chars: int = 16
    break_after: int | None = None


class ScriptedProvider:
    """Plays its steps to any number of threads and keeps every request."""

    name = "scripted"

    def __init__(self, steps: Sequence[Step] = (Step(),), *, by_conversation: bool = False) -> None:
        self._steps = tuple(steps)
        self._by_conversation = by_conversation
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> ModelReply:
        step = self._next(request)
        if step.break_after is not None:
            raise _broken(step)
        return _reply(step)

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        with ended_once(on_chunk) as on_text:
            step = self._next(request)
            text = step.text[: step.break_after]
            for start in range(0, len(text), step.chunk_chars):
                on_text(text[start : start + step.chunk_chars])
            if step.break_after is not None:
                raise _broken(step)
            return _reply(step)

    def _next(self, request: ModelRequest) -> Step:
        with self._lock:
            number = _replies_so_far(request) if self._by_conversation else len(self.requests)
            step = self._steps[min(number, len(self._steps) - 1)]
            self.requests.append(request)
        if step.before_reply is not None:
            step.before_reply()
        time.sleep(step.delay_seconds)
        if step.error is not None:
            raise step.error
        return step


def _reply(step: Step) -> ModelReply:
    return ModelReply(step.text, step.usage, step.stop_reason, step.calls)


def _replies_so_far(request: ModelRequest) -> int:
    return sum(message.get("role") == "assistant" for message in request.messages)


def _broken(step: Step) -> ProviderError:
    return ProviderError("The stream broke.", fault=Fault.CONNECTION, usage=step.usage, began=bool(step.break_after))
