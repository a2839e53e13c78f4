"""Shared by the tests of the agents: a scripted model with a price, a probe in place of a handler, rows of a module.

A module whose tests share rows opens the database by these fixtures alone: the `django_db` mark closes the connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction

from agents.enums import Level, ToolIntent
from agents.guard.intents import override
from agents.guard.tools import Tool
from agents.providers.scripted import ScriptedProvider, Step
from agents.types import Capability, Usage
from tests.factories import make_user
from tests.serving import serving

MODEL = "test-model"


@pytest.fixture(scope="module")
def module_database(django_db_setup, django_db_blocker):
    """One transaction for all tests of a module. As that of a test case, it does not count as one of the product."""
    whole = transaction.atomic()
    whole._from_testcase = True
    with django_db_blocker.unblock(), whole:
        yield
        transaction.set_rollback(True)


@pytest.fixture
def rolled_back(module_database):
    """The changes of a test are rolled back; what was made for its module stays."""
    saved = transaction.savepoint()
    yield
    transaction.savepoint_rollback(saved)


@pytest.fixture
def approver():
    """A user who may decide on approvals, and nothing else."""
    user = make_user()
    user.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    return user


class Probe:
    """Stands in for a handler: counts its calls, keeps what it was given, answers or raises what it is told to."""

    def __init__(self, answer=None, error=None):
        self.calls = []
        self.answer = {"done": True} if answer is None else answer
        self.error = error

    def __call__(self, context, params):
        self.calls.append((context, params))
        if self.error is not None:
            raise self.error
        return self.answer


@contextmanager
def tool(intent=ToolIntent.RUN_SKILL, *, probe, remote=True, **capability) -> Iterator[Probe]:
    """A tool of the given kind behind an intent, in this thread."""
    declared = Capability(capability.pop("name", "send_letter"), **{"level": Level.SAFE, **capability})
    with override({intent: Tool(probe, declared, remote=remote)}):
        yield probe


@pytest.fixture
def provider():
    """A model named `test-model` that answers "ok" and reports 10 tokens in, 10 out."""
    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(10, 10))])) as scripted:
        yield scripted


def script(*steps):
    return serving(MODEL, ScriptedProvider(steps))


def ask(**more):
    return {"model": MODEL, "prompt": "What is wrong with clause 4?", "max_tokens": 300, **more}


@pytest.fixture
def media(settings):
    """The folder in which this test keeps its bytes."""
    return settings.MEDIA_ROOT
