"""Fixtures for all tests."""

import hypothesis
import pytest
from django.test import TransactionTestCase
from xdist.scheduler import LoadFileScheduling

from tests import flushing

# The same examples every time, so that a change is judged by what it changed; `make stress` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("exploring", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

# They start processes and wait for them: begun first, they do not keep the rest waiting at the end.
SLOW = ("tests/browser/", "tests/flows/", "tests/lqops/test_up", "tests/architecture/test_migrations")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW))


class SideBySide(LoadFileScheduling):
    """The tests of a file stay together, and those of the browser, which share an installation."""

    def _split_scope(self, nodeid):
        return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config, log):
    return SideBySide(config, log)


@pytest.fixture(scope="session", autouse=True)
def _flush_may_empty_the_record():
    """The append-only triggers are removed around the flush that ends a transactional test, and at no other time."""
    flush = TransactionTestCase._fixture_teardown

    def flush_behind_the_triggers(self):
        if not flushing.held_off.is_set():
            flushing.behind_the_triggers(lambda: flush(self))

    TransactionTestCase._fixture_teardown = flush_behind_the_triggers
    yield
    TransactionTestCase._fixture_teardown = flush
