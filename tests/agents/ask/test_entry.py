"""The entry for requests: what each strategy does, that drafts stay off, and what is refused."""

from uuid import UUID

import pytest

from agents.ask.chats import chat as chat_engine
from agents.ask.chats import chat_answer
from agents.ask.entry import ask, send_message
from agents.ask.language import Strategy
from agents.ask.naming import Kind
from agents.definitions.in_force import definition_of
from agents.enums import ApprovalMode, Mode, Status
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound, SessionHalted
from agents.models import Agent, AgentSession, Trigger
from agents.providers.scripted import Step
from agents.runner import run_session
from tests.agents.ask.scene import asked, last_row, make_scene, nothing_was_inferred, trail
from tests.agents.conftest import MODEL, script
from tests.agents.triggers.rows import halt_all, make_collection, make_playbook
from tests.factories import NOW, make_agent, make_price, make_starter, make_user

pytestmark = pytest.mark.django_db

GOAL = "Investigate why the supplier raised its prices"


@pytest.fixture
def scene():
    return make_scene()


def sessions_of(scene):
    return AgentSession.objects.filter(owner=scene.owner, mode=Mode.CHAT)


def test_direct_response_is_a_queued_chat_session(scene):
    text = "What is a break clause?  Tell me."
    answer = asked(scene, text, agent=scene.agent)

    assert (answer.kind, answer.strategy, answer.path) == (Kind.SESSION, Strategy.DIRECT_RESPONSE, "")
    session = sessions_of(scene).get()
    assert (session.status, session.agent, session.params["message"]) == (Status.QUEUED, scene.agent, text)
    assert answer.data == {"session": str(session.public_id), "chat": session.params["chat"]}
    assert nothing_was_inferred()


@pytest.mark.parametrize(("text", "read"), [(GOAL, {}), ("Investigate why Leases grew so much", {"collection"})])
def test_goal_is_a_phased_run_with_what_it_names(scene, text, read):
    answer = asked(scene, text)
    session = answer.session

    assert (answer.kind, answer.strategy, session.mode) == (Kind.SESSION, Strategy.GOAL, Mode.PHASED)
    assert {name: session.params[name] for name in ("goal", "analysis_mode")} == {
        "goal": text,
        "analysis_mode": "agentic",
    }
    assert session.params.keys() - {"goal", "analysis_mode"} == set(read)
    assert ("Inputs: Leases." in answer.text) == bool(read)
    assert nothing_was_inferred()


def test_goal_for_an_agent_has_the_cap_of_that_agent(scene):
    scene.agent = make_agent(owner=scene.owner, name="Thrifty", definition="name: Thrifty\nmax_cost_usd: 0.0700\n")
    session = asked(scene, GOAL, agent=scene.agent).session

    assert (session.agent, str(session.max_cost_usd)) == (scene.agent, "0.070000")


def test_goal_in_a_chat_is_a_message_of_that_chat(scene):
    first = asked(scene, "What is a break clause?  Tell me.").session
    ended = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}
    AgentSession.objects.filter(pk=first.pk).update(**ended)
    session = asked(scene, GOAL, chat=UUID(first.params["chat"])).session

    assert (session.mode, session.params["way"], session.params["chat"]) == (Mode.CHAT, "goal", first.params["chat"])


def test_script_is_a_chat_session(scene):
    text = "Please execute the following python code: print(3)"
    answer = asked(scene, text)
    params = sessions_of(scene).get().params

    assert (answer.kind, answer.strategy) == (Kind.SESSION, Strategy.SCRIPT)
    assert (params["message"], params["way"]) == (text, "script")
    assert nothing_was_inferred()


def test_goal_with_a_playbook_and_a_collection_is_a_run(scene):
    answer = asked(scene, "Review the collection Leases thoroughly with the playbook Lease, and list what is missing")
    assert (answer.strategy, answer.session.mode) == (Strategy.GOAL, Mode.PHASED)
    given = answer.session.params
    assert given["collection"] == str(scene.collection.public_id)
    assert given["playbook"] == str(scene.playbook.public_id)
    assert given["goal"].endswith("and list what is missing"), "no word of it is lost"


def test_goal_with_two_collections_has_neither_as_input(scene):
    make_collection(scene.owner, name="Archive")
    answer = asked(scene, "Compare Leases with Archive by the playbook Lease, clause by clause")
    assert "Inputs: Lease. Skills can read Leases, Archive: only one can be an input." in answer.text
    assert answer.session.params.keys() == {"goal", "playbook", "analysis_mode"}


def test_goal_with_two_playbooks_starts_nothing(scene):
    make_playbook(scene.owner, name="Tenancy")
    answer = asked(scene, "Compare what Lease and Tenancy say about Leases, clause by clause, and explain it")
    assert answer.kind == Kind.ANSWER
    assert len(answer.data["choices"]) == 3


def test_scheduled_task_drafts_a_disabled_trigger(scene):
    answer = asked(scene, "On Mondays at 8 I would like Leases to be looked through with Lease, every clause of it")
    trigger = Trigger.objects.get(kind="schedule")

    assert (answer.kind, answer.strategy, answer.path) == (Kind.DRAFT, Strategy.SCHEDULED_TASK, "")
    assert (trigger.enabled, trigger.cron, trigger.playbook) == (False, "0 8 * * 1", scene.playbook)


def test_scheduled_task_lists_what_is_missing(scene):
    answer = asked(scene, "Remind me tomorrow at 9 to call the landlord")
    assert (answer.kind, answer.strategy) == (Kind.ANSWER, Strategy.SCHEDULED_TASK)
    assert answer.data["missing"] == ["when"], "it comes but once"
    assert not Trigger.objects.filter(kind="schedule").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Create an agent called 'Price Watch' that watches prices", "Price Watch"),
        ("Create an agent named Ada for the archive", "Ada"),
        ("I need a bot to answer the landlord's letters. Soon.", "Answer the landlord's letters"),
        ("Spawn a sub-agent, would you", "Agent of 2026-03-14 09:26"),
    ],
)
def test_sub_agent_is_a_disabled_draft_in_semi_mode(scene, text, name):
    answer = asked(scene, text)
    agent = Agent.objects.exclude(pk=scene.agent.pk).get()

    assert (answer.kind, answer.strategy) == (Kind.DRAFT, Strategy.SUB_AGENT)
    assert (agent.name, agent.enabled, agent.mode) == (name, False, ApprovalMode.SEMI)
    assert definition_of(agent).instructions == text
    assert "give it autonomy, a sensor or a trigger" in answer.text
    assert answer.data["missing"] == ["autonomy", "sensors", "triggers"]
    assert f"resume agent {name}" in answer.text
    asked(scene, f"resume agent {name}")
    assert Agent.objects.get(pk=agent.pk).enabled is True


def test_taken_name_is_refused(scene):
    asked(scene, "I need a bot to sort invoices")
    for text in ("I need a bot to sort invoices", "Create an agent called Clerk"):
        with pytest.raises(Invalid, match="already"):
            asked(scene, text)
    assert set(Agent.objects.values_list("name", flat=True)) == {"Clerk", "Sort invoices"}


def test_nothing_is_switched_on_without_confirmation(scene):
    Agent.objects.all().update(enabled=False)
    Trigger.objects.all().update(enabled=False)
    for text in (
        "every hour run Lease on Leases",
        "Check Leases with Lease every Monday and switch it on right away",
        "Create an enabled agent that runs every minute",
        "Create an agent that is active at once",
        "Delegate this to a new worker and start it",
    ):
        asked(scene, text)
    assert not Agent.objects.filter(enabled=True).exists()
    assert not Trigger.objects.filter(enabled=True).exists()


# --- chats ---


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("text", ["Review this thoroughly", "What do you think?"])
def test_chat_engine_answers_both_messages_of_a_chat(settings, text):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    make_price(MODEL, input_usd="0", output_usd="10")
    owner = make_starter()
    with script(Step("Done."), Step("Done again.")):
        first = ask(text="What do you think?", by=owner, now=NOW)
        run_session(first.session.pk, chat_engine, owner="worker")
        second = ask(text=text, by=owner, now=NOW, chat=first.data["chat"])
        run_session(second.session.pk, chat_engine, owner="worker")
    second.session.refresh_from_db()
    assert second.data["chat"] == first.data["chat"]
    assert chat_answer(second.session) == "Done again."


@pytest.mark.parametrize("text", ["Review this thoroughly", "What do you think?"])
def test_chat_takes_one_message_at_a_time_from_its_owner(scene, text):
    chat = asked(scene, "What do you think?").data["chat"]
    with pytest.raises(InvalidTransition, match="still being answered"):
        asked(scene, text, chat=chat)
    with pytest.raises(NotFound, match="no chat"):
        asked(scene, text, by=make_starter(), chat=chat)


# --- what is not taken ---


@pytest.mark.parametrize(
    "text",
    [
        "What is a break clause?",
        "Review all leases",
        "Run this script: print(3)",
        "show sessions 1f2e3d4c",
        "list runs 0",
    ],
)
def test_request_needs_the_permission_to_start_runs(scene, text):
    with pytest.raises(NotAllowed, match="start"):
        asked(scene, text, by=make_user())
    with pytest.raises(NotAllowed, match="start"):
        send_message(text=text, by=make_user(), now=NOW)
    assert not AgentSession.objects.filter(mode=Mode.CHAT).exists()


def test_run_by_name_needs_the_permission_to_start_runs(scene):
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    for text in ("run the weekly scan", "start Clerk", "Review the collection Leases with the playbook Lease, please"):
        with pytest.raises(NotAllowed, match="start"):
            asked(scene, text)


def test_draft_and_resume_need_the_permission_to_start_runs(scene):
    scene.owner.user_permissions.clear()
    scene.owner = type(scene.owner).objects.get(pk=scene.owner.pk)
    before = Agent.objects.count(), Trigger.objects.count()
    drafts = ("every 6 hours run playbook Lease on collection Leases", "Create an agent that reads leases")
    for text in (*drafts, "resume agent Clerk"):
        with pytest.raises(NotAllowed, match="start"):
            asked(scene, text)
    assert asked(scene, "pause agent Clerk").path
    assert (Agent.objects.count(), Trigger.objects.count()) == before


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "x" * 100_000, "halt " * 5_000])
def test_empty_or_too_long_text_is_refused(scene, text):
    with pytest.raises(Invalid, match="characters"):
        ask(text=text, by=scene.owner, now=NOW)


@pytest.mark.parametrize("text", ["hello \x00 there", "\x00", "half \ud800 of it"])
def test_text_that_cannot_be_stored_is_refused(scene, text):
    with pytest.raises(Invalid, match="NUL"):
        ask(text=text, by=scene.owner, now=NOW)


def test_control_characters_reach_the_model_unchanged(scene):
    answer = asked(scene, "list\x07 sessions \x1b[2J\u202e")
    assert answer.path == ""
    assert answer.session.params["message"] == "list\x07 sessions \x1b[2J\u202e"


def test_secret_in_a_request_is_not_stored(scene):
    secret = "sk-proj-" + "a1B2" * 10
    for text in (f"What is {secret}?", f"Review what {secret} opens", f"Create an agent for {secret}"):
        asked(scene, text)
    stored = f"{list(AgentSession.objects.values_list('params', flat=True))} {list(Agent.objects.values())}"
    assert secret not in stored


@pytest.mark.parametrize("text", ["What is a lease?", "Review all leases", "run the weekly scan"])
def test_nothing_runs_without_opt_in_or_while_halted(text):
    out = make_scene(opted_in=False)
    with pytest.raises(NotAllowed, match="opted in"):
        asked(out, text)
    scene = make_scene()
    halt_all()
    with pytest.raises(SessionHalted):
        asked(scene, text)


def test_user_without_opt_in_can_read_and_halt():
    out = make_scene(opted_in=False)
    assert asked(out, "list sessions").data["count"] == 2
    assert asked(out, "halt session {s}").data["answer"] == "requested"


def test_inactive_user_is_refused():
    with pytest.raises(NotAllowed):
        ask(text="list sessions", by=make_user(is_active=False), now=NOW)


@pytest.mark.parametrize(
    "text", ["list sessions", "What is a lease?", "Review all leases", "every hour run Lease on Leases"]
)
def test_agent_of_another_user_is_not_found(scene, text):
    since = last_row()
    with pytest.raises(NotFound):
        asked(scene, text, agent=make_agent())
    assert trail(since) == []


@pytest.mark.parametrize("text", ["What is a lease?", "Review all leases"])
def test_agent_that_is_off_is_refused(scene, text):
    off = make_agent(owner=scene.owner, enabled=False)
    with pytest.raises(Invalid, match="switched off"):
        asked(scene, text, agent=off)
