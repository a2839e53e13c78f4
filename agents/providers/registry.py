"""Which provider serves which model. Only the guard's metering may ask here; nothing else reaches a model."""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agents.definitions.catalogue import declaration_of
from agents.policy.model_catalogue import GATED
from agents.providers.anthropic import KEY_HEADER, Anthropic
from agents.providers.base import LOOK_SECONDS, Chunk, Fault, Provider, ProviderError
from agents.providers.http import Endpoint
from agents.providers.openai_compat import OpenAICompatible
from agents.providers.openai_embeddings import OpenAIEmbeddings
from agents.providers.proxies import proxy_for
from agents.providers.scripted import ScriptedProvider, Step
from agents.providers.transport import Timeouts
from agents.queue import let_worker_go_on
from agents.types import ModelReply, ModelRequest

_WAITS = ("connect", "first_token", "between_tokens", "total")

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
            provider = _made[model] = Limited(_BUILDERS[declared["provider"]](model, declared), declared)
    if provider is None:
        message = f"No provider serves model {model!r}: declare it on the page Models, or in LQOPS_MODELS_FILE."
        raise ProviderError(message, fault=Fault.NOT_SERVED, contacted=False)
    return provider


def is_in_process(model: str) -> bool:
    """Return True when a request to the model never leaves this process, so that no name needs hiding."""
    return declaration_of(model).get("provider") == "offline"


class Limited:
    """Limits the calls of one model that run at once in this process; others wait."""

    def __init__(self, inner: Provider, declared: Mapping[str, Any]) -> None:
        self.name = inner.name
        self.declared = declared
        self._inner = inner
        self._turn = threading.BoundedSemaphore(max(1, declared.get("concurrency", 8)))

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        try:
            while not self._turn.acquire(timeout=LOOK_SECONDS):
                on_chunk(Chunk(is_before=True))
        except ProviderError as error:
            error.contacted = False
            raise
        let_worker_go_on()
        try:
            return self._inner.stream(request, on_chunk)
        finally:
            self._turn.release()


def model_key(variable: str) -> str:
    """Read a secret from an environment variable, or from the file that `<variable>_FILE` names."""
    if value := os.environ.get(variable, ""):
        return value
    path = os.environ.get(f"{variable}_FILE", "")
    return Path(path).read_text(encoding="utf-8").strip() if path else ""


def _openai_compatible(model: str, declared: Mapping[str, Any]) -> Provider:
    return OpenAICompatible(model, _endpoint(model, declared, key_header="Authorization"))


def _openai_embeddings(model: str, declared: Mapping[str, Any]) -> Provider:
    return OpenAIEmbeddings(model, _endpoint(model, declared, key_header="Authorization"))


def _anthropic(model: str, declared: Mapping[str, Any]) -> Provider:
    return Anthropic(model, _endpoint(model, declared, key_header=KEY_HEADER))


def _endpoint(model: str, declared: Mapping[str, Any], *, key_header: str) -> Endpoint:
    variable = declared.get("key_env", "")
    waits = {name: float(declared[f"{name}_seconds"]) for name in _WAITS if f"{name}_seconds" in declared}
    return Endpoint(
        url=declared["url"],
        model=declared.get("name", model),
        key=lambda: model_key(variable) if variable else "",
        key_name=variable,
        key_header=declared.get("key_header", key_header),
        extra=declared.get("extra", {}),
        reasoning=declared.get("reasoning"),
        timeouts=Timeouts(**waits),
        connections=max(1, declared.get("concurrency", 8)),
        proxy=proxy_for(declared["url"]),
        gated=declared.get(GATED, False),
    )


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
