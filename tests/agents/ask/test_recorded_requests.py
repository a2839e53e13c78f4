"""What chats really send: the conversation so far, and skills that are called."""

import pytest

from agents.ask.chats import chat, chat_send
from agents.enums import Status
from agents.models import AgentSession
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.types import RequestedCall
from tests.agents.conftest import MODEL, script
from tests.factories import NOW, make_price, make_user
from tests.wire import BOTH_FORMS, recording

pytestmark = pytest.mark.django_db


@BOTH_FORMS
def test_every_message_of_a_chat_is_what_strict_servers_take(settings, monkeypatch, form):
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)  # it would wait for the test's transaction
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    make_price(MODEL, input_usd="0", output_usd="10")
    owner, began = make_user(), None
    call = Step("I look.", stop_reason="tool_use", calls=(RequestedCall("x", "current_time", "{}"),))
    with recording(form) as bodies, script(call, Step("It is noon."), call, Step("It is past noon.")):
        for text in ("What is the time?", "And now?"):
            session = chat_send(owner=owner, by=owner, text=text, now=NOW, chat=began)
            began = began or session.public_id
            run_session(session.pk, chat, owner="worker")
    assert len(bodies) == 4
    assert set(AgentSession.objects.values_list("status", flat=True)) == {Status.COMPLETED}
