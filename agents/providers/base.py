"""What lqops asks of a model provider, and how a provider fails."""

from typing import Protocol

from agents.types import ModelReply, ModelRequest, Usage


class ProviderError(Exception):
    """The call failed. `contacted` tells whether the server may have done (and billed) anything."""

    def __init__(self, message: str, *, contacted: bool = True, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.contacted = contacted
        self.usage = usage


class Provider(Protocol):
    name: str

    def complete(self, request: ModelRequest) -> ModelReply: ...
