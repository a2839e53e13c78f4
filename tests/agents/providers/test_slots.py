"""Turns at a model with declared concurrency count for all processes of an installation."""

from contextlib import contextmanager
from itertools import accumulate
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now

from agents.models import ModelTurn
from agents.providers import registry, slots
from agents.providers.base import Fault, ProviderError
from agents.providers.registry import Limited
from agents.providers.scripted import ScriptedProvider, Step
from agents.providers.slots import Turn
from agents.types import ModelRequest
from tests.flows.processes import Worker

REQUEST = ModelRequest("m", ({"role": "user", "content": "?"},))


def ignore(chunk):
    """Listen to nothing."""


@contextmanager
def refusing(*parts):
    """Refuse statements with these parts, as a database does that restarts. Gives those that were refused."""
    refused = []

    def refuse(execute, sql, params, many, context):
        if all(part in sql for part in parts):
            refused.append(sql)
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield refused


@pytest.mark.django_db(transaction=True)
def test_processes_share_the_turns_of_a_model(tmp_path):
    marks = tmp_path / "marks"
    workers = [Worker("ask_in_turn", marks=str(marks), most=2, threads=3, requests=4) for _ in range(3)]
    for worker in workers:
        worker.result()
    words = marks.read_text().split()
    out_at_once = list(accumulate(1 if word == "in" else -1 for word in words))
    assert words.count("in") == words.count("out") == 36
    assert max(out_at_once) == 2
    assert not ModelTurn.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_turn_of_a_killed_process_is_free_when_its_lease_has_run_out(tmp_path):
    marks = tmp_path / "marks"
    first = Worker("ask_in_turn", marks=str(marks), most=1, threads=1, requests=1, holds=True)
    first.wait_for("holds")
    assert not Turn("test-model", most=1).take()
    first.kill()
    Worker("ask_in_turn", marks=str(marks), most=1, threads=1, requests=1).result()
    assert marks.read_text().split() == ["in", "in", "out"]


@pytest.mark.django_db
def test_turn_is_renewed_while_the_model_is_silent():
    with patch.object(slots, "RENEWED_AFTER", 0.0):
        turn = Turn("m", most=1)
        assert turn.take()
        ModelTurn.objects.update(held_until=Now())
        turn.renew()
        assert ModelTurn.objects.filter(held_until__gt=Now()).count() == 1
        assert not Turn("m", most=1).take()
    turn.give_back()
    assert Turn("m", most=1).take()


@pytest.mark.django_db
def test_turn_that_another_request_takes_first_is_asked_for_again():
    turn = Turn("m", most=1)
    with patch.object(ModelTurn.objects, "filter", lambda **_: ModelTurn._default_manager.none()):
        assert Turn("m", most=1).take()
        assert not turn.take()
    assert not turn.take()


@pytest.mark.django_db
def test_whoever_listens_ends_the_wait_for_a_turn():
    assert Turn("m", most=1).take()
    waiting = []

    def stop(chunk):
        waiting.append(chunk.is_before)
        if len(waiting) == 2:
            raise ProviderError("The session was halted.", fault=Fault.CANCELLED)

    limited = Limited(ScriptedProvider([Step("x")]), {"concurrency": 1}, model="m")
    with patch.object(registry, "LOOK_SECONDS", 0.01), pytest.raises(ProviderError) as ended:
        limited.stream(REQUEST, stop)
    assert (waiting, ended.value.contacted) == ([True, True], False)
    assert ModelTurn.objects.count() == 1


@pytest.mark.django_db
def test_turn_is_given_back_when_the_request_fails():
    failing = ScriptedProvider([Step(error=ProviderError("It broke."))])
    with pytest.raises(ProviderError, match="It broke"):
        Limited(failing, {"concurrency": 1}, model="m").stream(REQUEST, ignore)
    assert not ModelTurn.objects.exists()


def test_model_without_declared_concurrency_asks_no_database():
    """The limit of a process holds then."""
    limited = Limited(ScriptedProvider([Step("x")]), {}, model="m")
    with patch.object(registry, "Turn", side_effect=AssertionError):
        assert limited.stream(REQUEST, ignore).text == "x"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["UPDATE", "DELETE"])
def test_reply_outlives_an_error_of_the_database_about_its_turn(verb):
    """It is paid for by then, and the lease frees the turn."""
    limited = Limited(ScriptedProvider([Step("paid")]), {"concurrency": 1}, model="m")
    with patch.object(slots, "RENEWED_AFTER", 0.0), refusing(verb, 'WHERE "agents_modelturn"."holder"') as refused:
        assert limited.stream(REQUEST, ignore).text == "paid"
    assert refused
    assert ModelTurn.objects.exists() == (verb == "DELETE")


@pytest.mark.django_db(transaction=True)
def test_request_waits_for_its_turn_while_the_database_does_not_answer():
    turn = Turn("m", most=1)
    with refusing('INSERT INTO "agents_modelturn"') as refused:
        assert not turn.take()
    assert refused
    assert turn.take()
