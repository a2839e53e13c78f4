"""Fixtures for all tests."""

import gc
from unittest.mock import patch

import hypothesis
import pytest
import pytest_django.fixtures
from django.db import connection

from tests import databases, sampling

pytest_plugins = ["tests.ahead", "tests.per_test", "tests.side_by_side"]

# The same examples every time, so that a change is judged by what it changed: the first ones in `make test`, and more
# of them when coverage is measured. `make stress` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("exploring", deadline=None, print_blob=True, max_examples=1_000)
hypothesis.settings.load_profile("repeatable")

# Garbage is searched for seldom: with Python's own thresholds a third of the processor time went into it.
gc.set_threshold(300_000, 10, 50)

# They take long, most because they start processes and wait for them: begun early, they do not keep the rest waiting.
SLOW = (
    "tests/browser/",
    "tests/flows/",
    "tests/simulation/",
    "tests/lqops/",
    "tests/architecture/test_migrations",
    "tests/agents/text/test_extraction",
    "tests/agents/skills/test_isolation",
    "tests/agents/sensors/",
    "tests/agents/net/",
)


def pytest_addoption(parser):
    parser.addoption("--part", default="", help="Run one part of the chosen tests, as in 2/8.")
    parser.addoption("--whole", default="", help="Files and folders that every part has, with blanks between.")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption("lf", False) and not any("[" in named for named in config.args):  # else rows are missing
        sampling.mark_long_rows(items)
    yield  # those that the options leave out go
    if connection.vendor != "sqlite":
        others = [item for item in items if item.get_closest_marker("sqlite")]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)
    items.sort(key=_turns(items).__getitem__)
    if config.option.part:
        items[:], others = sampling.part_of(items, config.option.part, (*config.option.whole.split(),))
        config.hook.pytest_deselected(items=others)


def _turns(items):
    """Let files that wait and others take turns, for the processors to have work while some workers wait."""
    files = dict.fromkeys(item.nodeid.partition("::")[0] for item in items)
    turns = {}
    for offset, is_slow in enumerate((True, False)):
        chosen = [file for file in files if file.startswith(SLOW) == is_slow]
        turns |= {file: 2 * number + offset for number, file in enumerate(chosen)}
    return {item: turns[item.nodeid.partition("::")[0]] for item in items}


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
def django_db_modify_db_settings(request, django_db_blocker, django_db_modify_db_settings_parallel_suffix):
    """Of the workers that run side by side, one migrates its database, and the others copy it."""
    shared = databases.Shared.of(request.config)
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


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)])
def some(request):
    """`some(rows, 5)`: every fifth row in `make test`, from `start` on, and all of them in `make test-long`."""

    def chosen(rows, step, *, start=0):
        found = [*rows][start % step :: step] if request.param == "some" else [*rows]
        assert found, "nothing is left of these rows: the test would prove nothing"
        return found

    return chosen


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
