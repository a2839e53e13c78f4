"""A run that is paused, or whose worker is lost, anywhere goes on from its journal: nothing twice, and the same end."""

import json
from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from django.db import OperationalError
from django.test import override_settings

from agents.conf import clock
from agents.engine.prompting import journaled_call
from agents.enums import Outcome, Phase, RunResult, Status, WaitingOn
from agents.exceptions import LeaseLost, ToolFailed
from agents.guard import guarded_tool_call
from agents.guard.calls import fitting
from agents.guard.guard import _dispatch
from agents.knowledge.playbooks import playbook_delete
from agents.knowledge.projects import memory_keep, project_create, project_edit
from agents.models import AgentSession, Approval, InferenceLog, Memory, ToolCall
from agents.providers.scripted import Step
from agents.runner import run_session
from agents.sessions.approvals import approval_approve_edited
from agents.sessions.lifecycle import session_enter_phase
from agents.sessions.pauses import session_pause, session_resume
from agents.walk import walk as engine
from agents.walk.citations import votes_of
from agents.walk.walk import walk
from tests.agents.walk.scene import PHASES, Scene, lose, model, phases, reply, run, shown
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db

RICH = reply(privilege_concerns=["marked secret"], artifacts=[{"name": "letter", "content": "# Dear landlord"}])
YES = '{"supported": true}'
KEYS = [
    "intake:retrieve", "analysis:1", "judge:0:0", "judge:0:1", "finding:0", "finding:1", "memory:0", "precedent:0",
    "artifact:0", "ethics", "delivery:notify",
]  # fmt: skip
_left = {}


@pytest.fixture(autouse=True)
def _two_judges():
    with override_settings(LQOPS_MODEL_ROLES={"main": ["offline"], "judges": ["offline", "offline"]}):
        yield


def rich(scene):
    collection = str(scene.collection.public_id)
    return scene.of_document(collection=collection, judge_citations=True, emit_artifacts=True)


class WorkerDied(BaseException):
    """As SIGKILL: nothing below the worker catches it."""


@pytest.fixture
def undisturbed():
    """What such a run leaves behind if nothing happens to it; plain values, so that one run will do for all tests."""
    if not _left:
        with model(RICH, YES):
            session = run(rich(Scene()))
        assert list(ToolCall.objects.filter(session=session).order_by("pk").values_list("key", flat=True)) == KEYS
        _left.update(shown(session))
    return _left


def fragile(number, *, before):
    """The guard, for a worker that is lost at its call of this number: just before it, or when it is done."""
    made = []

    def call(session, *args, **more):
        made.append(more["key"])
        if before and len(made) == number:
            raise LeaseLost("lost")
        result = guarded_tool_call(session, *args, **more)
        if len(made) == number:
            raise LeaseLost("lost")
        return result

    return one_by_one(call)


@contextmanager
def one_by_one(call):
    """The run makes each of its calls by itself, by this function."""

    def batch(calls):
        return [call(one.session, one.intent, one.arguments, key=one.key) for one in calls]

    with (
        patch("agents.walk.walk._read", lambda _: False),
        patch("agents.walk.walk._write", lambda _: None),
        patch("agents.engine.prompting.guarded_tool_call", call),
        patch("agents.engine.prompting.guarded_batch", batch),
    ):
        yield


def again(session):
    """Another worker takes the session over."""
    session.refresh_from_db()
    assert session.status == Status.RUNNING
    lose(session)
    return run(session)


def done_once(session):
    counts = Counter(session.tool_calls.values_list("key", flat=True))
    return [key for key in KEYS if key in counts] == KEYS and set(counts.values()) == {1}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, len(KEYS) + 1), ids=KEYS)
def test_a_worker_lost_at_any_call_is_replaced_without_a_trace_in_the_result(undisturbed, number, before):
    scene = Scene()
    session = rich(scene)
    with model(RICH, YES) as asked:
        with fragile(number, before=before):
            assert run_session(session.pk, walk, owner="first")
        again(session)
    assert shown(session) == undisturbed
    assert done_once(session)
    assert len(asked.requests) == InferenceLog.objects.filter(session=session).count() == 3
    assert session.cost_total_usd == sum(session.tool_calls.values_list("charged_usd", flat=True))


def pausing(number):
    """The guard, for a run that somebody pauses before its call of this number."""
    made = []

    def call(session, *args, **more):
        made.append(more["key"])
        if len(made) == number:
            session_pause(session.pk, by=None, reason="", now=clock())
        return guarded_tool_call(session, *args, **more)

    return one_by_one(call)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", ["finding:0", "precedent:0", "ethics", "delivery:notify"])
def test_a_worker_lost_while_it_writes_leaves_nothing_of_it(key):
    session, other = Scene().of_document(), Scene().of_document()

    def losing(call, stopped):
        made = _dispatch(call, stopped)
        if call.key == key:
            raise LeaseLost("lost")
        return made

    with model(reply(), reply()) as asked:
        run(other)
        with patch("agents.guard.guard._dispatch", losing):
            assert run_session(session.pk, walk, owner="first")
        assert set(session.tool_calls.values_list("key", flat=True)) == {"intake:retrieve", "analysis:1"}
        assert phases(session) == ["intake", "analysis"]
        again(session)
    assert shown(session) == shown(other)
    assert phases(session) == PHASES
    assert len(asked.requests) == 2


@pytest.mark.parametrize("within", ["intake.journaled_call", "drafting.votes_of"])
def test_a_deadlock_while_it_writes_has_it_written_one_by_one(within):
    session, error, seen = Scene().of_document(), OperationalError("deadlock detected"), []
    error.__cause__ = type("DriverError", (Exception,), {"sqlstate": "40P01"})()
    real = {"intake.journaled_call": journaled_call, "drafting.votes_of": votes_of}[within]

    def acts(*given):
        seen.append(given)
        made = real(*given)
        if len(seen) == 1:
            raise error
        return made

    with model(), patch(f"agents.walk.{within}", acts):
        run(session)
    assert set(Counter(session.tool_calls.values_list("key", flat=True)).values()) == {1}
    assert (session.status, phases(session), len(seen)) == (Status.COMPLETED, PHASES, 2)


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_database_while_it_writes_leaves_the_run_to_be_taken_over():
    session = Scene().of_document()
    with model():
        with patch("agents.walk.drafting.votes_of", side_effect=OperationalError("server closed the connection")):
            assert run_session(session.pk, walk, owner="first")
        assert phases(session) == ["intake", "analysis"]
        again(session)
    assert session.status == Status.COMPLETED


def test_what_cannot_be_stored_together_is_stored_as_far_as_it_goes():
    session = Scene().of_document()

    with model(), patch("agents.guard.intents.memory_propose", side_effect=ToolFailed("no room")):
        run(session)
    assert (session.status, session.terminal_reason) == (Status.FAILED, "worker_error")
    assert "propose_memory at memory:0 was not stored" in session.error
    assert list(session.findings.values_list("title", flat=True)) == ["Pays late", "Renews"]
    assert session.tool_calls.get(key="memory:0").outcome == Outcome.ERROR


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(1, len(KEYS) + 1), ids=KEYS)
def test_a_run_paused_at_any_call_goes_on_as_if_it_had_never_been(undisturbed, number):
    session = rich(Scene())
    with model(RICH, YES) as asked:
        with pausing(number):
            assert run_session(session.pk, walk, owner="first")
        session.refresh_from_db()
        assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.RESUME)
        assert list(session.tool_calls.order_by("pk").values_list("key", flat=True)) == KEYS[: number - 1]
        assert not run_session(session.pk, walk, owner="second")
        session_resume(session.pk, by=None, now=clock())
        run(session)
    assert shown(session) == undisturbed
    assert done_once(session)
    assert len(asked.requests) == InferenceLog.objects.filter(session=session).count() == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lost_in", PHASES)
def test_a_worker_lost_at_a_border_between_phases_is_replaced(undisturbed, lost_in):
    def enter(session, phase, **more):
        session_enter_phase(session, phase, **more)
        if phase == lost_in:
            raise LeaseLost("lost")

    scene = Scene()
    session = rich(scene)
    with model(RICH, YES):
        with patch.object(engine, "session_enter_phase", enter):
            assert run_session(session.pk, walk, owner="first")
        again(session)
    assert shown(session) == undisturbed
    assert done_once(session)


def test_a_question_that_was_lost_on_its_way_is_asked_again_word_for_word(scene):
    project = project_create(name="Matter", context_md="Old context.", **scene.by)
    session = scene.of_document(project=project)

    def die():
        raise WorkerDied

    with model(Step(before_reply=die), reply()) as asked:
        with pytest.raises(WorkerDied):
            run_session(session.pk, walk, owner="first")
        project_edit(project=project, context_md="New context.", by=scene.owner, now=NOW)
        memory = Memory.objects.create(owner=scene.owner, content="A new note.", created_at=NOW)
        memory_keep(memory=memory, by=scene.owner, now=NOW)
        playbook_delete(scene.playbook, by=scene.owner, now=NOW)
        again(session)
    first, second = asked.requests
    assert first.messages == second.messages
    assert "Old context." in json.dumps(second.messages)
    assert [call.outcome for call in session.tool_calls.filter(key="analysis:1").order_by("attempt")] == [
        Outcome.WORKER_LOST,
        Outcome.SUCCESS,
    ]
    assert session.status == Status.COMPLETED, session.error
    assert session.context_version == 1


def test_a_run_is_not_disturbed_by_what_happens_to_its_document_later(scene):
    session = scene.of_document()
    with model():
        with fragile(3, before=False):  # after the first finding
            run_session(session.pk, walk, owner="first")
        AgentSession.objects.get(pk=session.pk).owner.lqops_documents.update(deleted_at=NOW)
        again(session)
    assert session.status == Status.COMPLETED, session.error
    first, second, _ = session.findings.all()
    assert (first.quote_check, second.quote_check) == ("verified", "unverified")


def test_words_that_a_person_changed_are_not_asked_for_again(scene, approver):
    session = scene.of_document(review_flagged=True)
    with model(reply(scope_concerns=["too wide"])):
        run(session)
        ticket = Approval.objects.get(session=session)
        arguments = {**ticket.arguments, "title": "Changed by a person"}
        approval_approve_edited(
            ticket.pk, by=approver, digest=ticket.digest, arguments=arguments, fits=fitting, now=clock()
        )
        with fragile(1, before=False):
            session.refresh_from_db()
            assert run_session(session.pk, walk, owner="first")
        again(session)
    assert session.status == Status.COMPLETED, session.error
    told = session.notifications.filter(kind__in=("run_findings", "run_completed"))
    assert [notice.title for notice in told] == ["Changed by a person"]


# --- A run that another version has begun ---


def killed_in_delivery(**more):
    """A run whose worker is lost as it begins to deliver; its findings are written."""
    session = Scene().of_document(**more)

    def die(_):
        raise WorkerDied

    with (
        model(reply()),
        one_by_one(guarded_tool_call),
        patch.object(engine, "PHASES", {**engine.PHASES, Phase.DELIVERY: die}),
        pytest.raises(WorkerDied),
    ):
        run_session(session.pk, walk, owner="version before")
    session.refresh_from_db()
    assert session.current_phase == Phase.DELIVERY
    assert session.findings.count() == 3
    return session


def without_notes(session):
    """As a version has left it that noted neither a plan of sections nor a result."""
    kept = {name: value for name, value in session.metadata.items() if name in {"inputs", "phase_entered"}}
    AgentSession.objects.filter(pk=session.pk).update(metadata=kept)


def test_run_killed_in_delivery_under_a_version_that_planned_no_sections_ends_with_its_findings():
    session = killed_in_delivery()
    without_notes(session)

    with model() as asked:
        session = again(session)

    assert (session.status, session.run_result, session.result_reason) == (
        "completed",
        "findings",
        "Everything was checked.",
    )
    assert session.owner.lqops_notifications.get().title.startswith("Run completed: 2 findings")
    assert asked.requests == []


@pytest.mark.parametrize(
    ("note", "result"), [("", RunResult.FINDINGS), ("note:partial", RunResult.PARTIAL)], ids=["all of it", "a part"]
)
def test_answer_that_only_another_version_could_read_counts_as_what_drafting_made_of_it(note, result):
    session = killed_in_delivery()
    without_notes(session)
    session.tool_calls.filter(key="analysis:1").update(result={"text": "in a form of the version before"})
    if note:
        ToolCall.objects.filter(session=session, key="finding:1").update(key=note)

    session = again(session)

    assert (session.status, session.run_result) == ("completed", result)
    assert "checked by another version" in session.result_reason


def test_concerns_that_cannot_be_read_any_more_are_reviewed_by_a_person():
    make_user(is_superuser=True)
    session = killed_in_delivery(review_flagged=True)
    without_notes(session)
    session.tool_calls.filter(key="analysis:1").update(result={"text": "in a form of the version before"})

    session = again(session)

    assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.APPROVAL)


def test_run_of_which_nothing_was_checked_still_says_so_after_a_kill_in_delivery():
    session = Scene().of_document()
    with model("no structure", "none either"), fragile(5, before=True):
        assert run_session(session.pk, walk, owner="first")
    without_notes(AgentSession.objects.get(pk=session.pk))

    session = again(session)

    assert session.run_result == RunResult.FAILED
    assert session.result_reason.startswith("Nothing was checked")
