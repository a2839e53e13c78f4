"""Prepare every test cheaply: by hooks, and without fixtures that no test uses.

A fixture that every test has costs about 0.1 ms each time, even if it was made once for the whole run, and most tests
take less than 20 ms. So a run is prepared once, before workers are forked, and a test by one hook.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from socketserver import BaseServer
from unittest.mock import patch

import pytest
from django.conf import settings
from django.core import mail
from django.db import connection, transaction
from django.test import TransactionTestCase
from django.test.utils import setup_test_environment, teardown_test_environment
from pytest_django.fixtures import validate_django_db
from pytest_django.plugin import blocking_manager_key

from agents import database_clock
from agents.checks import doctor
from agents.conf import clock
from agents.definitions import catalogue
from agents.ledger import at_once
from agents.ledger.prices import invalidate_estimates
from agents.sessions import figures
from agents.skills import registry
from agents.text import extraction
from tests import flushing

# pytest-django gives these to every test: for marks and settings that nothing here uses, or for what the hooks do.
LEFT_OUT = {
    "_dj_autoclear_mailbox",
    "_django_clear_site_cache",
    "_django_isolate_apps",
    "_django_set_urlconf",
    "_django_setup_unittest",
    "_fail_for_invalid_template_variable",
    "_live_server_helper",
    "_template_string_if_invalid_marker",
    "django_test_environment",
}
_has_database = pytest.StashKey[bool]()
_media = pytest.StashKey[Path]()
_number = count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    manager = session._fixturemanager
    of_all = manager._getautousenames
    manager._getautousenames = lambda node: (name for name in of_all(node) if name not in LEFT_OUT)


def pytest_itemcollected(item):
    for name in ("urls", "ignore_template_errors"):
        if item.get_closest_marker(name):
            raise pytest.UsageError(f"{item.nodeid}: the mark {name} has no effect here; see LEFT_OUT")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session):
    setup_test_environment(debug=False)
    with (
        # Tests load the skills and call `doctor` again and again; no package and no protection changes meanwhile.
        patch.object(registry, "entry_points", cache(registry.entry_points)),
        patch.object(doctor, "isolation_report", cache(doctor.isolation_report)),
        # A busy machine has time to read a document.
        patch.object(extraction, "MAX_SECONDS", dict.fromkeys(extraction.MAX_SECONDS, 60)),
        # A server of a test ends when it is told to, not half a second later.
        patch.object(BaseServer.serve_forever, "__defaults__", (0.01,)),
        # Tests kill processes, not the power: a file need not reach the disk.
        patch.object(os, "fsync", lambda descriptor: None),
        # Tests move the clock, and the database has no other then; those of two clocks take this back.
        patch.object(database_clock, "_ask", clock),
        # Rows of models are read again when a test has changed them, not when time has passed.
        patch.object(catalogue, "KEPT_SECONDS", math.inf),
        _own_flush(),
    ):
        result = yield
    teardown_test_environment()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Forget what other tests have set of models, sent and kept.

    Nothing reads such rows unasked, so most tests need no database. A checkpoint of another test would be too old for
    `Home` after some minutes.
    """
    if not flushing.held_off.is_set():
        settings.LQOPS_CHECKPOINT_FILE.unlink(missing_ok=True)
    catalogue._seen = catalogue._Seen()
    at_once._price_rows = {}
    figures._past = {}
    invalidate_estimates()
    mail.outbox.clear()
    if item.nodeid.startswith("tests/agents/"):
        settings.MEDIA_ROOT = _media_folder(item.config) / str(next(_number))
    else:  # they start processes, which use the folder of the installation
        settings.MEDIA_ROOT = settings.VAR_DIR / "media"


def _media_folder(config):
    """Of this worker. Each test keeps its bytes in a folder of its own there, which is made when it keeps any."""
    if _media not in config.stash:
        config.stash[_media] = config._tmp_path_factory.mktemp("media")
    return config.stash[_media]


@pytest.fixture(scope="session")
def django_test_environment():
    """Prepared for the whole run, above."""


@pytest.fixture
def _django_db_helper(request):
    """Roll back what a test writes; pytest-django makes a test case with two clients for that, anew for each test."""
    mark = request.node.get_closest_marker("django_db")
    if "transactional_db" in request.fixturenames or (mark and validate_django_db(mark)[0]):
        request.getfixturevalue("_django_db_helper")  # that of pytest-django
        yield
        return
    stash = request.config.stash
    if not stash.get(_has_database, False):  # once: a fixture that is there already has its own looked up each time
        request.getfixturevalue("django_db_setup")
        stash[_has_database] = True
    whole = transaction.atomic()
    whole._from_testcase = True
    with stash[blocking_manager_key].unblock(), whole:
        connection.queries_log.clear()
        yield
        try:
            if not connection.needs_rollback and connection.is_usable():
                connection.check_constraints()
        finally:
            transaction.set_rollback(True)


@contextmanager
def _own_flush() -> Iterator[None]:
    """Let a test that commits begin with what a fresh database holds, and leave that behind."""
    setup = TransactionTestCase._fixture_setup.__func__

    def remember(cls):
        flushing.remember()
        return setup(cls)

    def flush(self):
        if not flushing.held_off.is_set():
            flushing.flush_now()

    with (
        patch.object(TransactionTestCase, "_fixture_setup", classmethod(remember)),
        patch.object(TransactionTestCase, "_fixture_teardown", flush),
    ):
        yield
