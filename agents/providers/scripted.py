"""A provider that plays a script: for tests, rehearsals and dry runs. It opens no connection.

A script is a list of steps, played in order and then from the last one on; each says what to reply, what to report as
usage (also falsely), how long to take, or how to fail.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.providers.base import ProviderError
from agents.types import ModelReply, ModelRequest, Usage


@dataclass(frozen=True)
class Step:
    text: str = ""
    usage: Usage | None = field(default_factory=lambda: Usage(10, 10))
    delay_seconds: float = 0
    stop_reason: str = "end_turn"
    error: ProviderError | None = None
    before_reply: Callable[[], None] | None = None


class ScriptedProvider:
    """Plays its steps to any number of threads and keeps every request that it was sent."""

    name = "scripted"

    def __init__(self, steps: Sequence[Step] = (Step(),)) -> None:
        self._steps = tuple(steps)
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> ModelReply:
        with self._lock:
            step = self._steps[min(len(self.requests), len(self._steps) - 1)]
            self.requests.append(request)
        if step.before_reply is not None:
            step.before_reply()
        time.sleep(step.delay_seconds)
        if step.error is not None:
            raise step.error
        return ModelReply(
            text=step.text,
            usage=step.usage,
            stop_reason=step.stop_reason,
            provider=self.name,
            latency_ms=round(step.delay_seconds * 1_000),
        )
