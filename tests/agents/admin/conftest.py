"""Rows that the tests of one module share: made once, restored after each test.

A module that uses them opens the database by these fixtures alone: the `django_db` mark closes the connection.
"""

import pytest
from django.db import transaction

from tests.agents.admin.rows import make_everything


@pytest.fixture(scope="module")
def module_database(django_db_setup, django_db_blocker):
    """One transaction for all tests of a module."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def everything(module_database):
    return make_everything()


@pytest.fixture
def shared_rows(everything):
    """One row for every page; the changes of a test are rolled back."""
    saved = transaction.savepoint()
    yield everything
    transaction.savepoint_rollback(saved)
