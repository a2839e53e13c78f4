"""A provider that plays a script: for tests, rehearsals and dry runs. It opens no connection.

A script is a list of steps, played in order and then the last one again; each says what to reply and in what pieces,
what to report as usage (also falsely), how long to take, or how and when to fail. Which step is next is counted by the
provider, or told by the conversation: as many as the model has spoken in it, whichever process is asked.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.transport import ended_once
from agents.types import ModelReply, ModelRequest, RequestedCall, Usage


@dataclass(frozen=True)
class Step:
    """One reply. `break_after` characters a stream breaks; `error` fails the call before it says anything."""

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
    """Plays its steps to any number of threads and keeps every request that it was sent."""

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
        return self._reply(step)

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        with ended_once(on_chunk) as on_text:
            step = self._next(request)
            told = step.text if step.break_after is None else step.text[: step.break_after]
            for start in range(0, len(told), step.chunk_chars):
                on_text(told[start : start + step.chunk_chars])
            if step.break_after is not None:
                raise _broken(step)
            return self._reply(step)

    def _next(self, request: ModelRequest) -> Step:
        with self._lock:
            place = _spoken(request) if self._by_conversation else len(self.requests)
            step = self._steps[min(place, len(self._steps) - 1)]
            self.requests.append(request)
        if step.before_reply is not None:
            step.before_reply()
        time.sleep(step.delay_seconds)
        if step.error is not None:
            raise step.error
        return step

    def _reply(self, step: Step) -> ModelReply:
        return ModelReply(
            text=step.text,
            usage=step.usage,
            stop_reason=step.stop_reason,
            provider=self.name,
            latency_ms=round(step.delay_seconds * 1_000),
            calls=step.calls,
        )


def _spoken(request: ModelRequest) -> int:
    return sum(message.get("role") == "assistant" for message in request.messages)


def _broken(step: Step) -> ProviderError:
    return ProviderError("The stream broke.", fault=Fault.CONNECTION, usage=step.usage, began=bool(step.break_after))
