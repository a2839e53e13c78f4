"""What lqops asks of a model provider."""

from collections.abc import Callable
from typing import Protocol

from agents.providers.errors import Fault, ProviderError
from agents.providers.streaming import Chunk
from agents.types import ModelReply, ModelRequest

__all__ = ["Chunk", "Fault", "Provider", "ProviderError"]


class Provider(Protocol):
    """Asks a model once. Both ways raise ProviderError, and a stream always ends with one finished chunk."""

    name: str

    def complete(self, request: ModelRequest) -> ModelReply: ...

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply: ...
