"""Lets a test's own provider serve a model. Whatever any test asks it has to be what strict servers take."""

from contextlib import ExitStack, contextmanager
from unittest import mock

from django.conf import settings

from agents.providers import registry
from tests.wire import check_bodies


@contextmanager
def serving(model, provider):
    """Let `provider` serve `model` inside the block, in every thread of the process."""
    before = registry._made.get(model)
    checked = Checked(provider)
    with ExitStack() as changed:
        if registry.is_in_process(model):  # it is asked like a model elsewhere: names are hidden from it
            changed.enter_context(mock.patch.dict(settings.LQOPS_MODELS[model], provider="scripted"))
        registry._made[model] = checked
        try:
            yield provider
            for request in checked.requests:
                check_bodies(request)
        finally:
            if before is None:
                registry._made.pop(model, None)
            else:
                registry._made[model] = before


class Checked:
    """Keeps what a provider is asked."""

    def __init__(self, inner):
        self.name = inner.name
        self.inner = inner
        self.requests = []

    def stream(self, request, on_chunk):
        self.requests.append(request)
        return self.inner.stream(request, on_chunk)
