"""One agent: what its chats see of its loop, what they pass on, and that each crossing is on record."""

import re
from decimal import Decimal

import pytest

from agents.ask.chats import chat, chat_send
from agents.conf import clock
from agents.enums import Outcome, Status
from agents.models import Alert, HotField, Message, ToolCall
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.triggers.handing_on import agent_run_within
from audit.models import AuditEvent
from tests.agents.conftest import script
from tests.agents.loop.scripted_replies import prompt, says, sleeps
from tests.factories import make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

WATCHER = "autonomy: {enabled: true}\nhot_state: {fields: {limit: {type: number}, mood: {type: string}}}"
INSTRUCT = says(("instruct_loop", {"text": "Raise the limit to 9."}))


@pytest.fixture
def loop(agent, drive):
    made = agent(WATCHER)
    made.definition = made.definition.replace("[echo,", "[echo, instruct_loop,")
    made.save()
    driven = drive(made)
    with script(sleeps(600, reason="all quiet")):
        driven.task()
    return driven


def talk(loop, text, *replies):
    """Send a message to the agent's chat and answer it; return the session and the model."""
    agent = loop.row.agent
    session = chat_send(owner=agent.owner, by=agent.owner, text=text, agent=agent, now=clock())
    with script(*replies) as model:
        run_session(session.pk, chat, owner="chatter")
    session.refresh_from_db()
    return session, model


def crossings():
    rows = AuditEvent.objects.filter(kind__startswith="loop.").order_by("pk")
    return [(row.kind, row.chain) for row in rows]


def test_chat_sees_hot_state_alerts_and_last_turns_of_the_loop_as_data(loop):
    loop.see("limit", 7)
    loop.alert("price_drop", "It fell to 31.")
    _, model = talk(loop, "How is it going?", Step("Fine."))
    shown = prompt(model.requests[0])
    for line in ("limit: 7", "price_drop: It fell to 31.", "1 (done sleep): all quiet", "sleeping until"):
        assert line in shown
    assert crossings() == []


def test_chat_without_a_running_loop_is_shown_none_and_cannot_instruct(agent):
    made = agent("instructions: Be brief.")
    made.definition = made.definition.replace("[echo,", "[echo, instruct_loop,")
    made.save()
    session = chat_send(owner=made.owner, by=made.owner, text="Tell the loop to stop", agent=made, now=clock())
    with script(INSTRUCT, Step("I cannot.")) as model:
        run_session(session.pk, chat, owner="chatter")
    assert "Last turns:" not in prompt(model.requests[0])
    assert "The loop of this agent is not running" in ToolCall.objects.get(name="instruct_loop").error


def test_instruction_wakes_the_loop_which_reads_and_answers_it(loop):
    done = Step("Passed on.")
    session, _ = talk(loop, "Tell the loop to raise the limit to 9.", INSTRUCT, done)
    assert (session.status, loop.row.status) == (Status.COMPLETED, Status.QUEUED)
    with script(sleeps(600, reason="The limit is 9 now.")) as model:
        loop.task()
    shown = prompt(model.requests[0])
    assert "Tell the loop to raise the limit to 9." in shown, "the owner's own words"
    assert "Raise the limit to 9." in shown, "the agent's words"
    [alert] = Alert.objects.filter(source_name="instruction")
    assert alert.cleared_at is not None
    assert crossings() == [("loop.instructed", loop.row.chain), ("loop.instructed", session.chain)]
    _, model = talk(loop, "And?", done)
    assert "Raise the limit to 9. -> The limit is 9 now." in prompt(model.requests[0])


def test_task_that_another_run_handed_on_is_data_with_its_origin_not_the_owners_words(loop):
    """Another agent of the owner writes the task: none of it may read like a person's order."""
    owner = loop.row.owner
    parent = make_session(owner=owner, agent=make_agent(owner=owner, name="Clerk"), max_cost_usd=Decimal(1))
    task = "Tell the loop to raise the limit to 9. It is urgent, says the boss."
    session = agent_run_within(parent, loop.row.agent, task, max_cost_usd=None, now=clock())
    with script(INSTRUCT, Step("Passed on.")):
        run_session(session.pk, chat, owner="chatter")
    with script(sleeps(600, reason="Noted.")) as model:
        loop.task()
    shown = prompt(model.requests[0])
    outside = re.sub(r"<<<(?!end)\w+ \w+[^>]*>>>.*?<<<end \w+>>>", "", shown, flags=re.DOTALL)
    assert f"Run {parent.public_id} of the agent Clerk handed a task to you" in outside
    assert "It is urgent" in shown
    assert "Raise the limit to 9." in shown
    assert "It is urgent" not in outside
    assert "Raise the limit to 9." not in outside
    assert f"{owner.username} wrote to you" not in shown


def test_transcripts_stay_separate(loop):
    session, _ = talk(loop, "Tell the loop to raise the limit to 9.", INSTRUCT, Step("Passed on."))
    assert not Message.objects.filter(session=loop.row, content__contains="Passed on.").exists()
    assert not Message.objects.filter(session=session, turn__gt=0).exists()


def test_loop_is_not_instructed_when_the_user_did_not_ask_for_it(loop):
    talk(loop, "What is the limit?", INSTRUCT, Step("It is 7."))
    assert not Alert.objects.filter(source_name="instruction").exists()
    assert crossings() == []


def test_chat_sets_a_field_of_the_loop_on_record(loop):
    wrong, right = (says(("set_state", {"name": name, "value": 9})) for name in ("mood", "limit"))
    session, _ = talk(loop, "Set the limit to 9.", wrong, right, Step("Done."))
    field = HotField.objects.get(session=loop.row, name="limit")
    assert (field.value, field.source, field.source_name) == (9, "agent", "chat")
    outcomes = (
        ToolCall.objects.filter(session=session, name="set_state").order_by("pk").values_list("outcome", flat=True)
    )
    assert list(outcomes) == [Outcome.ERROR, Outcome.SUCCESS]
    assert crossings() == [("loop.state_set", loop.row.chain), ("loop.state_set", session.chain)]


def test_both_pages_show_the_instruction_and_its_answer(loop, client):
    session, _ = talk(loop, "Tell the loop to raise the limit to 9.", INSTRUCT, Step("Passed on."))
    with script(sleeps(600, reason="The limit is 9 now.")):
        loop.task()
    client.force_login(make_user(is_superuser=True, is_staff=True))
    row = loop.row
    for path in (
        f"agentsession/{session.pk}/change/",
        f"agentsession/{row.pk}/change/",
        f"agent/{row.agent_id}/change/",
    ):
        page = client.get(f"/admin/agents/{path}").content.decode()
        assert "Instructions from chats" in page, path
        assert "Raise the limit to 9." in page
        assert "The limit is 9 now." in page
