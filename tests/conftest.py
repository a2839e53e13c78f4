"""Fixtures for all tests."""

import gc
import math
from functools import cache
from importlib import import_module
from unittest.mock import patch

import hypothesis
import pytest
import pytest_django.fixtures
from django.conf import settings
from django.db import connection
from django.test import TransactionTestCase

from tests import databases, flushing, sampling

pytest_plugins = ["tests.side_by_side"]

# The same examples every time, so that a change is judged by what it changed; `make stress` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("exploring", deadline=None, print_blob=True, max_examples=1_000)
hypothesis.settings.load_profile("repeatable")

# Garbage is searched for seldom: with Python's own thresholds a third of the processor time went into it.
gc.set_threshold(300_000, 10, 50)

# They take long, most because they start processes and wait for them: begun first, they do not keep the rest waiting.
SLOW = (
    "tests/browser/",
    "tests/flows/",
    "tests/simulation/",
    "tests/lqops/test_up",
    "tests/architecture/test_migrations",
    "tests/agents/text/test_extraction",
    "tests/agents/skills/test_isolation",
)


def pytest_addoption(parser):
    parser.addoption("--part", default="", help="Run one part of the chosen tests, as in 2/8.")
    parser.addoption("--whole", default="", help="Files and folders that every part has, with blanks between.")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    sampling.mark_long_rows(items)
    yield  # those that the options leave out go
    if connection.vendor != "sqlite":
        others = [item for item in items if item.get_closest_marker("sqlite")]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW))
    if config.option.part:
        items[:], others = sampling.part_of(items, config.option.part, (*config.option.whole.split(),))
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish():
    """What was loaded stays to the end, so nothing searches it for garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report):
    """A failure is told when it happens, for whoever waits for the end, or does not live to see it."""
    if report.failed and not databases.worker:
        crash = getattr(report.longrepr, "reprcrash", None)
        print(
            f"\n{report.nodeid} failed ({report.when}): {crash.message if crash else report.longreprtext}", flush=True
        )


def pytest_worker_started(worker):
    databases.own_files(worker)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request, tmp_path_factory, django_db_blocker, django_db_modify_db_settings_parallel_suffix
):
    """Of the workers that run side by side, one migrates its database, and the others copy it."""
    folder = tmp_path_factory.getbasetemp()
    shared = databases.Shared(
        folder.parent if hasattr(request.config, "workerinput") else folder,
        kept_in=request.config.rootpath / ".pytest_cache" / "migrated",
    )
    # Tests that share the transaction of their module have no mark by which pytest-django knows of the database.
    known = pytest_django.fixtures._get_databases_for_setup
    with (
        patch.object(connection.creation, "create_test_db", shared.create),
        patch.object(
            pytest_django.fixtures,
            "_get_databases_for_setup",
            lambda items: (known(items)[0] | {"default"}, known(items)[1]),
        ),
    ):
        yield
    with django_db_blocker.unblock():
        shared.remove_copy()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """A connection stays open: SQLite would write its log back whenever a test closes the last one."""
    kept = connection.copy()
    with django_db_blocker.unblock():
        if kept.vendor == "sqlite":
            kept.introspection.table_names()
        yield
        kept.close()


@pytest.fixture(scope="session", autouse=True)
def _own_flush():
    """A test that commits begins with what a fresh database holds, and leaves that behind."""
    setup, teardown = TransactionTestCase._fixture_setup.__func__, TransactionTestCase._fixture_teardown

    def remember(cls):
        flushing.remember()
        return setup(cls)

    def flush(self):
        if not flushing.held_off.is_set():
            flushing.flush_now()

    TransactionTestCase._fixture_setup, TransactionTestCase._fixture_teardown = classmethod(remember), flush
    yield
    TransactionTestCase._fixture_setup, TransactionTestCase._fixture_teardown = classmethod(setup), teardown


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)])
def some(request):
    """`some(rows, 5)`: every fifth row in `make test`, from `start` on, and all of them in `make test-long`."""
    return lambda rows, step, *, start=0: [*rows][start % step :: step] if request.param == "some" else [*rows]


@pytest.fixture
def durable_commits(db):
    """As in an installation, for tests of what `doctor` finds: tests do not wait for the disk of PostgreSQL."""
    if connection.vendor == "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO on")
        yield
        cursor.execute("RESET synchronous_commit")


@pytest.fixture(scope="session", autouse=True)
def _found_once():
    """Tests load the skills and call `doctor` again and again; no package and no protection changes meanwhile."""
    registry, doctor = import_module("agents.skills.registry"), import_module("agents.checks.doctor")
    with (
        patch.object(registry, "entry_points", cache(registry.entry_points)),
        patch.object(doctor, "isolation_report", cache(doctor.isolation_report)),
    ):
        yield


@pytest.fixture(autouse=True)
def _as_installed(monkeypatch):
    """Forget what a test has set of models; nothing reads such rows unasked, so most tests need no database.

    A checkpoint that another test wrote would be too old for `Home` after some minutes.
    """
    if not flushing.held_off.is_set():
        settings.LQOPS_CHECKPOINT_FILE.unlink(missing_ok=True)
    catalogue = import_module("agents.definitions.catalogue")
    monkeypatch.setattr(catalogue, "KEPT_SECONDS", math.inf)
    monkeypatch.setattr(catalogue, "_seen", catalogue._Seen())
    monkeypatch.setattr(import_module("agents.ledger.at_once"), "_price_rows", {})
    monkeypatch.setattr(import_module("agents.sessions.figures"), "_past", {})
