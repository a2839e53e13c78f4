"""The brakes are tested before workers are forked."""

import pytest
from django.db import OperationalError, connections

from agents import tasks
from agents.exceptions import Unarmed
from agents.guard import selftest
from agents.queue import prepare_tasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _untested(monkeypatch):
    monkeypatch.setattr(selftest, "_armed", False)


def test_brakes_are_tested_once_and_no_connection_is_left_for_a_fork(monkeypatch):
    prepare_tasks()
    assert selftest.is_armed()
    assert connections["default"].connection is None

    monkeypatch.setattr(selftest, "run_checks", lambda: pytest.fail("they were tested again"))
    prepare_tasks()


@pytest.mark.parametrize("error", [OperationalError, Unarmed])
def test_brakes_that_cannot_be_tested_yet_are_left_to_the_workers(monkeypatch, caplog, error):
    def fail():
        raise error("not now")

    monkeypatch.setattr(tasks, "arm", fail)
    prepare_tasks()
    assert not selftest.is_armed()
    assert "every worker does so before its first run" in caplog.text


def test_database_that_is_away_is_found_out_once(monkeypatch, caplog):
    def away():
        raise OperationalError("no server")

    monkeypatch.setattr(tasks.transaction, "atomic", away)
    monkeypatch.setattr(tasks, "arm", lambda: pytest.fail("each test would wait for the database"))
    prepare_tasks()
    assert "the brakes could not be tested yet" in caplog.text
