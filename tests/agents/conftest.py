"""Shared by the tests of the agents: a scripted model with a price, a probe in place of a handler, rows of a module.

A module whose tests share rows opens the database by these fixtures alone: the `django_db` mark closes the connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction

from agents.checks import doctor
from agents.enums import Level, ToolIntent
from agents.guard.intents import override
from agents.guard.tools import Tool
from agents.ledger.prices import invalidate_estimates
from agents.providers.scripted import ScriptedProvider, Step
from agents.text import extraction
from agents.types import Capability, Usage
from tests.factories import make_user
from tests.serving import serving

MODEL = "test-model"
_number = count(1)


@pytest.fixture(autouse=True)
def _fresh_estimates():
    invalidate_estimates()
    yield
    invalidate_estimates()


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


@pytest.fixture(scope="session")
def _media_of_the_run(tmp_path_factory):
    return tmp_path_factory.mktemp("media")


@pytest.fixture(autouse=True)
def media(settings, _media_of_the_run):
    """Each test keeps its bytes in a folder of its own, which is made when it keeps any."""
    settings.MEDIA_ROOT = _media_of_the_run / str(next(_number))
    return settings.MEDIA_ROOT


@pytest.fixture(scope="session", autouse=True)
def _protections_are_tried_once():
    """A doctor tries what isolated skills are kept from, in a process that takes longer than its other checks."""
    with patch.object(doctor, "isolation_report", cache(doctor.isolation_report)):
        yield


@pytest.fixture(scope="module", autouse=True)
def _patient():
    """A busy machine has time to read a document."""
    with patch.object(extraction, "MAX_SECONDS", dict.fromkeys(extraction.MAX_SECONDS, 60)):
        yield
