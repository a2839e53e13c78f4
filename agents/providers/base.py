"""What lqops asks of a model provider."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agents.providers.errors import Fault, ProviderError
from agents.types import ModelReply, ModelRequest

__all__ = ["Chunk", "Fault", "Provider", "ProviderError"]


@dataclass(frozen=True)
class Chunk:
    """A piece of a reply. The last one is `finished` and carries nothing else."""

    text: str = ""
    finished: bool = False


class Provider(Protocol):
    """Asks a model once. Both ways raise ProviderError, and a stream always ends with one finished chunk."""

    name: str

    def complete(self, request: ModelRequest) -> ModelReply: ...

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply: ...
