"""Lets a test's own provider serve a model."""

from contextlib import ExitStack, contextmanager
from unittest import mock

from django.conf import settings

from agents.providers import registry


@contextmanager
def serving(model, provider):
    """Let `provider` serve `model` inside the block, in every thread of the process."""
    before = registry._made.get(model)
    with ExitStack() as changed:
        if registry.is_in_process(model):  # it is asked like a model elsewhere: names are hidden from it
            changed.enter_context(mock.patch.dict(settings.LQOPS_MODELS[model], provider="scripted"))
        registry._made[model] = provider
        try:
            yield provider
        finally:
            if before is None:
                registry._made.pop(model, None)
            else:
                registry._made[model] = before
