"""Which provider serves which model. Only the guard's metering may ask here; nothing else reaches a model."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from agents.definitions.catalogue import declaration_of
from agents.providers.anthropic import Anthropic
from agents.providers.base import LOOK_SECONDS, Chunk, Fault, Provider, ProviderError
from agents.providers.endpoints import CALLS_OF_A_PROCESS, endpoint_of
from agents.providers.openai_compat import OpenAICompatible
from agents.providers.openai_embeddings import OpenAIEmbeddings
from agents.providers.scripted import ScriptedProvider, Step
from agents.providers.slots import Turn
from agents.queue import let_worker_go_on
from agents.types import ModelReply, ModelRequest

_made: dict[str, Provider] = {}
_lock = threading.Lock()


def provider_for(model: str) -> Provider:
    """Return the provider of a declared model, made on first use and kept until that changes; refuse others."""
    declared = declaration_of(model)
    with _lock:
        provider = _made.get(model)
        if isinstance(provider, Limited) and provider.declared != declared:
            provider = None  # calls that are out end with the one that they began with
        if provider is None and declared:
            provider = _made[model] = Limited(_BUILDERS[declared["provider"]](model, declared), declared, model=model)
    if provider is None:
        message = f"No provider serves model {model!r}: declare it on the page Models, or in LQOPS_MODELS_FILE."
        raise ProviderError(message, fault=Fault.NOT_SERVED, contacted=False)
    return provider


def is_in_process(model: str) -> bool:
    """Return True when a request to the model never leaves this process, so that no name needs hiding."""
    return declaration_of(model).get("provider") == "offline"


class Limited:
    """Limits the calls of one model that run at once; others wait.

    Where `concurrency` is declared it counts for all processes of the installation, else each of them makes at most
    eight.
    """

    def __init__(self, inner: Provider, declared: Mapping[str, Any], *, model: str = "") -> None:
        self.name = inner.name
        self.declared = declared
        self._inner = inner
        self._most = max(1, declared.get("concurrency", CALLS_OF_A_PROCESS))
        self._here = threading.BoundedSemaphore(self._most)
        self._model = model if "concurrency" in declared else ""

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        _wait_for(lambda: self._here.acquire(timeout=LOOK_SECONDS), on_chunk)
        try:
            if not self._model:
                let_worker_go_on()
                return self._inner.stream(request, on_chunk)
            return self._in_turn(Turn(self._model, most=self._most), request, on_chunk)
        finally:
            self._here.release()

    def _in_turn(self, turn: Turn, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        """Make the request when other processes leave a turn for it."""

        def take() -> bool:
            if turn.take():
                return True
            time.sleep(LOOK_SECONDS)
            return False

        def listen(chunk: Chunk) -> None:
            turn.renew()
            on_chunk(chunk)

        _wait_for(take, on_chunk)
        try:
            let_worker_go_on()
            return self._inner.stream(request, listen)
        finally:
            turn.give_back()


def _wait_for(taken: Callable[[], object], on_chunk: Callable[[Chunk], None]) -> None:
    """Wait for a turn. The listener may end the wait; nothing was sent then."""
    try:
        while not taken():
            on_chunk(Chunk(is_before=True))
    except ProviderError as error:
        error.contacted = False
        raise


def _openai_compatible(model: str, declared: Mapping[str, Any]) -> Provider:
    return OpenAICompatible(model, endpoint_of(model, declared))


def _openai_embeddings(model: str, declared: Mapping[str, Any]) -> Provider:
    return OpenAIEmbeddings(model, endpoint_of(model, declared))


def _anthropic(model: str, declared: Mapping[str, Any]) -> Provider:
    return Anthropic(model, endpoint_of(model, declared))


def _offline(model: str, declared: Mapping[str, Any]) -> Provider:
    # Imported on first use: the stemmer takes time to load.
    from agents.providers.offline.provider import OfflineProvider

    return OfflineProvider()


def _scripted(model: str, declared: Mapping[str, Any]) -> Provider:
    return ScriptedProvider([Step(text) for text in declared["replies"]], by_conversation=True)


_BUILDERS: dict[str, Callable[[str, Mapping[str, Any]], Provider]] = {
    "openai_compatible": _openai_compatible,
    "openai_embeddings": _openai_embeddings,
    "anthropic": _anthropic,
    "offline": _offline,
    "scripted": _scripted,
}
