"""Fixtures for all tests."""

import pytest
from django.test import TransactionTestCase

from tests import flushing


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
