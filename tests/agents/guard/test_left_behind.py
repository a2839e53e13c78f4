"""What a skill's thread may still do when its call has been settled without it: nothing with the model."""

import threading
from dataclasses import replace
from unittest.mock import patch

import pytest

from agents.definitions.catalogue import model_for
from agents.enums import Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call, intents, metering
from agents.guard.calls import OutgoingRequest
from agents.guard.metering import Meter
from agents.models import InferenceLog, ToolCall
from agents.providers.base import Fault, ProviderError, Tries
from agents.providers.scripted import ScriptedProvider, Step
from agents.skills.registry import skill_named
from agents.types import ModelReply, ModelRequest, Usage
from tests.agents.conftest import MODEL
from tests.factories import NOW, make_agent, make_price, make_session
from tests.flows.processes import PATIENCE
from tests.serving import serving

ASKED = {"skill": "extract_fields", "arguments": {"text": "The rent is 5.", "fields": {"rent": "the rent"}}}


class Busy:
    """A model server that answers its first request, with an error that may pass, when it is let."""

    name = "scripted"

    def __init__(self):
        self.asked_by = []
        self.let = threading.Event()

    def stream(self, request, on_chunk):
        self.asked_by.append(threading.current_thread())
        assert self.let.wait(PATIENCE)
        if len(self.asked_by) == 1:
            raise ProviderError("503 from the model server", fault=Fault.SERVER)
        return ModelReply('{"rent": "5"}', usage=Usage(10, 10))


@pytest.mark.django_db(transaction=True)
def test_thread_of_a_skill_over_its_time_asks_the_model_no_second_time_and_books_nothing():
    model = model_for("small")
    make_price(model, input_usd="1", output_usd="1")
    session = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="semi"))
    hasty = replace(skill_named("extract_fields"), timeout_seconds=0.2)
    server = Busy()
    with serving(model, server), patch.object(intents, "skill_named", lambda name: hasty):
        late = guarded_tool_call(session, ToolIntent.RUN_SKILL, ASKED, key="turn:1", now=NOW)
        row = ToolCall.objects.get()
        settled = books(session)
        with patch.object(metering, "next_wait", return_value=0.0):
            server.let.set()
            server.asked_by[0].join(PATIENCE)

    assert late.outcome == Outcome.TIMEOUT
    assert not server.asked_by[0].is_alive()
    assert len(server.asked_by) == 1
    assert books(session) == settled == (row.approved_usd, row.actual_usd, 0, 0)
    assert row.approved_usd > 0
    assert InferenceLog.objects.count() == 1


def books(session):
    session.refresh_from_db()
    return session.cost_total_usd, session.cost_actual_usd, session.cost_reserved_usd, session.cost_held_usd


def meter(book):
    request = OutgoingRequest(ModelRequest(MODEL, ({"role": "user", "content": "Is it in order?"},)))
    return Meter(request, book=book, stopped=lambda: False, tries=Tries(most=3))


def test_call_that_is_settled_while_an_attempt_is_booked_waits_and_then_finds_it_booked():
    seen = []
    closing = threading.Thread(target=lambda: (call.close(), seen.append(unbooked(call.last))))

    def book(attempt):
        closing.start()
        closing.join(0.2)
        seen.append("booked")
        return True

    call = meter(book)
    failing = Step(error=ProviderError("503", fault=Fault.SERVER))
    with (
        serving(MODEL, ScriptedProvider([failing])),
        patch.object(metering, "wait_listening", lambda seconds, listen: closing.join(PATIENCE)),
        pytest.raises(ProviderError, match="The call is over"),
    ):
        call.infer()

    assert seen == ["booked", "nothing left to book"]


def unbooked(attempt):
    return attempt if attempt and attempt.contacted else "nothing left to book"


def test_request_that_is_out_when_its_call_is_settled_counts_as_one_that_reached_the_model():
    at_the_end = []

    def settle_meanwhile(request, on_chunk):
        call.close()
        at_the_end.append(call.contacted)
        return ModelReply("ok", usage=None)

    call = meter(lambda attempt: True)
    server = ScriptedProvider([])
    server.stream = settle_meanwhile
    with serving(MODEL, server):
        call.infer()

    assert at_the_end == [True]
