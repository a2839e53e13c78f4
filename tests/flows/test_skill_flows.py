"""Skills through the real queue: repeated by a loop, waiting for a person, and left behind by their worker."""

import pytest

from agents.enums import AnalysisMode, ApprovalStatus, EventKind, Outcome, Status, TerminalReason
from agents.exceptions import InvalidTransition
from agents.loop.turns import alert_push
from agents.models import AgentEvent, Approval, InferenceLog, Lease, Message, ToolCall
from agents.roster.agents import agent_start
from agents.sessions.approvals import approval_approve
from audit.models import SkillAudit
from audit.receipts import build_receipt
from audit.verify import verify_chain
from tests.agents.api.conftest import client_of
from tests.agents.skills.leaky import CANARY
from tests.factories import make_agent, make_user, start_run
from tests.flows.cluster import ended, now, running, worker_of
from tests.flows.model_server import structured
from tests.flows.processes import is_alive, until
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)

SKILLS = "skills: all\n"
LOOP = f"{SKILLS}autonomy: {{enabled: true, wake_on_chat: false}}\n"
SIMULATES = "A skill is about to be called."
DAWDLES = "<skill>dawdle(seconds=600)</skill>"


@pytest.fixture(scope="module")
def cluster(django_db_setup, django_db_blocker, _model_of_the_module):
    """One worker: what it left behind would stand in the way of the next run."""
    more = {"LQOPS_WORKERS": "1", "LQOPS_SKILL_MODULES": "tests.agents.skills.leaky,tests.agents.skills.samples"}
    with running(django_db_blocker, {**_model_of_the_module.environment, **more}) as [started]:
        yield started


def started_loop():
    """A loop of an agent in mode semi, and somebody who may decide for it."""
    person = make_user(is_staff=True, is_superuser=True)
    agent = make_agent(owner=person, definition=LOOP, definition_version=1)
    return agent_start(agent=agent, by=person, now=now()).loop, person


def words(request):
    return "\n".join(message["content"] or "" for message in request["messages"])


def ticks_to_come():
    """Returns when the ticker has been round once more, so that whatever is due has been handed to a worker."""
    asked_at = now()
    until(lambda: Lease.objects.filter(name="ticker", done_at__gt=asked_at).exists())


@pytest.mark.long
def test_loop_that_repeats_a_call_runs_it_three_times_and_fails_with_a_receipt(model):
    model.answer = lambda request: '<skill>leak(place="home")</skill>'

    loop, _ = started_loop()
    session = ended(loop)

    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.STUCK_LOOP), session.error
    made = ToolCall.objects.filter(session=session, name="leak")
    assert list(made.values_list("outcome", flat=True)) == [Outcome.SUCCESS] * 3
    assert len(model.requests) == 4
    assert session.result["terminal_reason"] == "stuck_loop"
    assert build_receipt(session.chain) == session.result
    assert verify_chain(session.chain).verified
    [error] = AgentEvent.objects.filter(session=session, kind=EventKind.ERROR)
    assert (error.data["reason"], error.data["recoverable"]) == ("stuck_loop", False)


@pytest.mark.long
def test_restricted_call_of_a_loop_waits_for_a_person_and_runs_once(model):
    def answer(request):
        if SIMULATES in words(request):
            return f"It would be carried with {CANARY}."
        if "carried the letter" in words(request):
            return '<skill>yield(mode="shutdown", reason="It is done.")</skill>'
        return '<skill>carry(what="the letter")</skill>'

    model.answer = answer
    loop, person = started_loop()
    until(lambda: Approval.objects.filter(session=loop).exists())
    until(lambda: type(loop).objects.filter(pk=loop.pk, status=Status.WAITING).exists())

    ticket = Approval.objects.get(session=loop)
    shown = client_of(person).get(f"/api/v1/approvals/{ticket.public_id}").json()
    assert shown["simulation"].startswith("[ANTICIPATORY SIMULATION]: It would be carried with [redacted:")
    assert shown["risk_level"] == "low"

    asked = InferenceLog.objects.filter(session=loop).count()
    alert_push(loop, name="anomaly", text="Look!", source_name="test", now=now())
    ticks_to_come()
    ticks_to_come()
    loop.refresh_from_db()
    assert (loop.status, loop.state) == (Status.WAITING, "waiting_for_approval")
    assert InferenceLog.objects.filter(session=loop).count() == asked == len(model.requests) == 2

    approval_approve(ticket.pk, by=person, digest=ticket.digest, now=now())
    with pytest.raises(InvalidTransition):
        approval_approve(ticket.pk, by=person, digest=ticket.digest, now=now())
    session = ended(loop)

    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.AGENT_SHUTDOWN), session.error
    assert ToolCall.objects.get(session=session, name="carry").outcome == Outcome.SUCCESS
    ticket.refresh_from_db()
    assert (ticket.status, ticket.consumed_at is not None) == (ApprovalStatus.APPROVED, True)
    audited = SkillAudit.objects.get(session_id=session.public_id, skill_name="carry")
    assert (audited.risk_level, audited.capability_level) == ("low", "RESTRICTED")
    assert "[redacted:" in audited.output_summary
    kept = [audited.input_summary, audited.output_summary, *Message.objects.values_list("content", flat=True)]
    assert not [text for text in kept if CANARY in text]


@pytest.mark.long
def test_worker_that_gave_up_a_skill_in_a_thread_is_replaced_before_it_takes_anything_else(model):
    model.answer = lambda request: structured(request) if "Result of call" in words(request) else DAWDLES
    scene = Scene()
    agent = make_agent(owner=scene.owner, mode="auto", definition=SKILLS)

    def run():
        """A run to its end, and the worker that it was begun by."""
        model.requests.clear()
        model.free.clear()
        asked = {"playbook": scene.playbook, "document": scene.attach("Some words."), "agent": agent}
        session = start_run(owner=scene.owner, by=scene.owner, now=now(), analysis_mode=AnalysisMode.AGENTIC, **asked)
        until(lambda: bool(model.requests))
        worker = worker_of(session)
        model.free.set()
        assert ended(session).terminal_reason == TerminalReason.COMPLETED
        return worker

    first, second = run(), run()

    assert first != second
    assert not is_alive(first)
    assert ToolCall.objects.filter(name="dawdle", outcome=Outcome.TIMEOUT).count() == 2
