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
