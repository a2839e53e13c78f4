"""Agentic analysis: steps with skills inside the analysis phase, under its grants, to the same end as one question."""

import json
from datetime import timedelta

import pytest
from django.core.cache import cache

from agents.engine import loop
from agents.enums import Outcome, Phase, Status, TerminalReason, ToolIntent, WaitingOn
from agents.models import AgentEvent, AgentSession, Approval, InferenceLog, Message, Question, ToolCall
from agents.policy.brakes import PHASE_GRANTS
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.runner import run_session
from agents.sessions.approvals import approval_approve
from agents.sessions.questions import question_answer
from agents.skills.registry import installed_skills
from agents.triggers.firing import session_restart
from agents.types import RequestedCall
from agents.walk.walk import walk
from audit.models import AuditEvent
from audit.receipts import build_receipt
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.walk.scene import LEASE, PHASES, Scene, blocks_of, lose, model, phases, reply, run, shown
from tests.factories import NOW, make_agent, make_price
from tests.serving import serving

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    settings.LQOPS_MODEL_ROLES = {"main": ["offline"], "small": ["offline"]}
    installed_skills.cache_clear()
    cache.clear()  # predictions are kept by the ids of owners, which come again in every test
    yield
    installed_skills.cache_clear()


def call(name, **arguments):
    return Step(stop_reason="tool_use", calls=(RequestedCall("x", name, json.dumps(arguments)),))


def agentic(scene, text=LEASE, *, agent=None, **more):
    session = scene.of_document(text, analysis_mode="agentic", **more)
    session.agent = agent or make_agent(owner=scene.owner, definition="name: clerk\nskills: all\n")
    session.save()
    return session


def test_answer_in_one_step_leaves_what_one_question_leaves(scene):
    with model():
        single, steps = run(scene.of_document()), run(agentic(Scene()))  # what is known already is not proposed again

    assert steps.terminal_reason == TerminalReason.COMPLETED
    assert shown(steps) == shown(single)


def test_steps_see_the_same_task_and_documents_and_may_call_skills(scene):
    session = agentic(scene)
    with model(call("look", place="the annex"), reply()) as asked:
        run(session)

    assert phases(session) == PHASES
    first, second = asked.requests
    assert [block.kind for block in blocks_of(first)] == ["playbook", "document"]
    assert "You may call the skills" in first.messages[0]["content"]
    assert {"look", "search_documents"} <= {tool["function"]["name"] for tool in first.tools}
    assert "the annex" in next(block.text for block in blocks_of(second) if block.kind == "tool_output")
    made = ToolCall.objects.filter(session=session, phase=Phase.ANALYSIS).order_by("pk")
    assert [(one.key, one.name) for one in made] == [
        ("analysis:1", "run_skill"),
        ("analysis:call_1_1", "look"),
        ("analysis:2", "run_skill"),
    ]
    assert set(made.values_list("intent", flat=True)) <= PHASE_GRANTS[Phase.ANALYSIS]
    assert AuditEvent.objects.filter(chain=session.chain, kind="session.inputs").count() == 1
    assert build_receipt(session.chain)["terminal_reason"] == "completed"


def test_offered_skills_are_those_that_the_agent_s_definition_names(scene):
    agent = make_agent(owner=scene.owner, definition="name: clerk\nskills: [look]\n")
    session = agentic(scene, agent=agent)
    with model(call("echo", text="x"), reply()) as asked:
        run(session)

    assert [tool["function"]["name"] for tool in asked.requests[0].tools] == ["look"]
    assert "not found or disabled" in Message.objects.get(session=session, role="tool").content


@pytest.mark.parametrize("mode", ["agentic", "single"])
@pytest.mark.parametrize(("said", "asked"), [("model: agents-own\n", "agents-own"), ("", "offline")])
def test_analysis_asks_the_model_of_its_agent_else_the_installation_s(scene, mode, said, asked):
    make_price("agents-own")
    session = scene.of_document(analysis_mode=mode)
    session.agent = make_agent(owner=scene.owner, definition=f"name: clerk\n{said}")
    session.save()
    with serving("agents-own", ScriptedProvider([Step(reply())])), model():
        run(session)

    assert session.terminal_reason == "completed", session.error
    assert list(InferenceLog.objects.values_list("model", flat=True)) == [asked]


@pytest.mark.parametrize(
    ("steps", "reason", "status"),
    [
        ([call("look", place="a")], TerminalReason.STUCK_LOOP, Status.FAILED),
        ([Step("No.", stop_reason="refusal")], TerminalReason.REFUSED, Status.FAILED),
        (
            [Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))],
            TerminalReason.PROVIDER_ERROR,
            Status.FAILED,
        ),
    ],
    ids=["stuck", "refusal", "provider"],
)
def test_stop_of_the_steps_is_the_end_of_the_run(scene, steps, reason, status):
    session = agentic(scene)
    with model(*steps):
        run(session)

    assert (session.terminal_reason, session.status) == (reason, status)
    assert phases(session) == ["intake", "analysis"]
    assert not session.findings.exists()
    assert AgentEvent.objects.filter(session=session, kind="session:error").count() == 1


def test_more_steps_than_may_be_taken_stop_the_run(scene):
    session = agentic(scene, loop={"max_steps": 5, "timeout": 0})
    with model(*[call("echo", text=str(number)) for number in range(6)]) as asked:
        run(session)

    assert (session.terminal_reason, session.status, len(asked.requests)) == ("max_steps", Status.HALTED, 5)


def test_limit_of_its_trigger_holds_and_the_last_step_may_answer(scene):
    session = agentic(scene, loop={"max_steps": 2})
    with model(call("look", place="a"), reply()):
        run(session)
    assert session.terminal_reason == "completed"


def test_call_that_waits_for_a_person_frees_the_worker_and_goes_on_after_a_yes(scene, approver):
    session = agentic(scene)
    with model(call("act", what="it"), "perhaps", reply()) as asked:
        run(session)
        assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.APPROVAL)
        ticket = Approval.objects.get()
        assert ticket.phase == Phase.ANALYSIS
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
        run(session)

    assert (session.terminal_reason, len(asked.requests)) == ("completed", 3)
    assert ToolCall.objects.filter(session=session, name="act", outcome=Outcome.SUCCESS).count() == 1


def test_question_to_a_person_frees_the_worker(scene):
    session = agentic(scene)
    with model(call("ask_person", question="Which annex?"), reply()) as asked:
        run(session)
        assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.INPUT)
        question_answer(Question.objects.get(), answer="The second.", by=scene.owner, now=NOW)
        run(session)

    assert session.terminal_reason == "completed"
    assert "The second." in str(asked.requests[1].messages)


class WorkerDied(BaseException):
    """As SIGKILL: nothing below the worker catches it."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fatal", range(1, 9))
def test_worker_lost_anywhere_changes_nothing_but_the_time_it_takes(scene, fatal, monkeypatch):
    """At each write of the transcript, before it and after it."""
    session, writes = agentic(scene), []
    append = loop.transcript_append

    def dying(*args, **kwargs):
        writes.append(1)
        if len(writes) * 2 - 1 == fatal:
            raise WorkerDied
        added = append(*args, **kwargs)
        if len(writes) * 2 == fatal:
            raise WorkerDied
        return added

    monkeypatch.setattr(loop, "transcript_append", dying)
    with model(call("look", place="a"), reply()) as asked:
        with pytest.raises(WorkerDied):
            run_session(session.pk, walk, owner="worker")
        lose(session)
        run(session)

    assert session.terminal_reason == "completed"
    assert (len(asked.requests), InferenceLog.objects.count()) == (2, 2)
    assert [row.role for row in Message.objects.order_by("seq")] == ["system", "user", "assistant", "tool", "assistant"]
    assert session.findings.filter(title="Pays late").count() == 1


def test_slice_that_is_over_ends_between_two_steps(scene, settings):
    settings.LQOPS_SLICE_SECONDS = 0.000001
    session = agentic(scene)
    with model(call("look", place="a"), call("look", place="b"), reply()) as asked:
        run(session)
    assert (session.terminal_reason, len(asked.requests)) == ("completed", 3)


def test_nothing_to_read_asks_nothing(scene):
    session = scene.session(collection=str(scene.collection.public_id), analysis_mode="agentic")
    with model() as asked:
        run(session)
    assert (session.terminal_reason, len(asked.requests)) == ("completed", 0)
    assert session.findings.get().title == "Nothing to read"


def test_answer_without_a_word_is_told_as_a_failed_analysis(scene):
    session = agentic(scene)
    with model(""):
        run(session)
    assert session.terminal_reason == "completed"
    assert session.findings.get().title == "Analysis failed: nothing was produced"


def test_what_is_gone_when_the_steps_begin_ends_the_run_as_refused(scene):
    session = scene.of_document(analysis_mode="agentic", playbook=None, skill="vanished")
    with model() as asked:
        run(session)
    assert (session.terminal_reason, len(asked.requests)) == ("refused", 0)


def test_finding_may_not_claim_what_no_call_did(scene, approver):
    told = [{"title": "Late", "severity": "warn", "content": "It is late. I sent a mail to the landlord.", "quote": ""}]
    session = agentic(scene)
    with model(reply(findings=told)):
        run(session)
    [finding] = session.findings.filter(title="Late")
    assert finding.content.startswith("It is late.\n\nCorrected by lqops")
    assert "- No skill that could have done it was called." in finding.content


def test_judges_hear_the_quotes_of_an_agentic_answer(scene, settings):
    settings.LQOPS_MODEL_ROLES = {"main": ["offline"], "judges": ["offline"]}
    session = agentic(scene, judge_citations=True)
    with model(reply(), '{"supported": true}'):
        run(session)
    assert session.findings.get(title="Pays late").judges_for == 1


def test_run_made_again_thinks_in_steps_again(scene):
    session = agentic(scene)
    with model():
        run(session)
        again = session_restart(session=session, by=scene.owner, now=NOW + timedelta(minutes=1))
        run(again)

    assert again.params["analysis_mode"] == "agentic"
    assert (again.terminal_reason, again.restarted_from) == ("completed", session)
    assert Message.objects.filter(session=again).exists()


def test_page_of_such_a_run_shows_its_calls(scene, client):
    session = agentic(scene)
    with model(call("look", place="the annex"), reply()):
        run(session)
    sign_in(client)
    assert "look" in text_of(client.get(page(AgentSession, "change", session.pk)))


def test_offline_analyst_answers_in_its_first_step(scene):
    session = run(agentic(scene))

    assert session.terminal_reason == "completed"
    assert session.findings.filter(severity="critical").exists()
    assert ToolCall.objects.filter(session=session, intent=ToolIntent.RUN_SKILL).count() == 1
