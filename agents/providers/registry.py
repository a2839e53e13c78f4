"""Which provider serves which model. Only the guard asks; everything else reaches a model through it."""

from collections.abc import Iterator
from contextlib import contextmanager

from agents.providers.base import Fault, Provider, ProviderError

_providers: dict[str, Provider] = {}


def provider_for(model: str) -> Provider:
    try:
        return _providers[model]
    except KeyError:
        message = f"No provider serves model {model!r}: configure one."
        raise ProviderError(message, fault=Fault.NOT_SERVED, contacted=False) from None


@contextmanager
def serving(model: str, provider: Provider) -> Iterator[Provider]:
    """Lets `provider` serve `model` inside the block, in every thread of the process."""
    before = _providers.get(model)
    _providers[model] = provider
    try:
        yield provider
    finally:
        if before is None:
            _providers.pop(model, None)
        else:
            _providers[model] = before
