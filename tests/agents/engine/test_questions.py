"""Questions to people: the run waits for an answer or an expiry, then continues."""

import json
from datetime import timedelta
from io import StringIO

import pytest
import time_machine
from django.conf import settings
from django.core.management import CommandError, call_command

from agents.engine.loop import Answered
from agents.enums import QuestionStatus, Status, WaitingOn
from agents.exceptions import Invalid, InvalidTransition, NotAllowed
from agents.models import Approval, Message, Question, StreamPart
from agents.sessions.approvals import approval_approve
from agents.sessions.ending import session_rest
from agents.sessions.leases import lease_claim
from agents.sessions.questions import question_answer, questions_expire
from agents.sessions.transcripts import parts_delete_old
from agents.types import Waiting
from audit.models import AuditEvent
from tests.factories import NOW, make_session, make_user

from .conftest import Step, calls, script

pytestmark = pytest.mark.django_db
ASKS = calls('ask_person(question="Which of the two?")')


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def waiting(loop):
    """A run that has asked; the question, and the loop to go on with."""

    def ask():
        with script(ASKS):
            assert loop().run() == Waiting(WaitingOn.INPUT)
        return Question.objects.get()

    return ask


def tool_result(session):
    return Message.objects.get(session=session, role="tool").content


def test_answer_is_the_result_of_the_call(waiting, loop, session):
    question = waiting()
    assert session.owner.lqops_notifications.filter(kind="question_waiting").count() == 1

    question_answer(question, answer="The second.", by=session.owner, now=NOW)
    with script(Step("Then it is settled.")):
        assert loop().run() == Answered("Then it is settled.")

    assert tool_result(session) == "The second."
    kinds = AuditEvent.objects.filter(kind__startswith="question.").values_list("kind", flat=True)
    assert set(kinds) == {"question.asked", "question.closed"}


@pytest.mark.django_db(transaction=True)
def test_equal_open_questions_are_merged(loop, session, messages):
    asks = calls(*['ask_person(question="Which of the two?")'] * 5, 'ask_person(question="Why?")', parallel=True)
    with script(asks):
        assert loop().run() == Waiting(WaitingOn.INPUT)
    assert sorted(Question.objects.values_list("text", flat=True)) == ["Which of the two?", "Why?"]
    assert session.owner.lqops_notifications.filter(kind="question_waiting").count() == 2

    for question in Question.objects.all():
        question_answer(question, answer=f"{question.text} The second.", by=session.owner, now=NOW)
    with script(calls('ask_person(question="Why?")')):
        assert loop().run() == Waiting(WaitingOn.INPUT)
    assert [entry.content for entry in messages(role="tool")] == ["Which of the two? The second."] * 5 + [
        "Why? The second."
    ]
    assert Question.objects.filter(text="Why?").count() == 2  # the first was answered


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["yes", "answer"])
def test_run_continues_after_the_approval_or_the_answer(loop, session, approver, first):
    both = calls('ask_person(question="Which?")', 'act(what="it")', parallel=True)
    with script(both, Step("A prediction.")):
        waits = loop().run()
    assert waits == Waiting(WaitingOn.APPROVAL)
    session_rest(session, Status.WAITING, now=NOW, waiting_on=waits.on)
    question, ticket = Question.objects.get(), Approval.objects.get()
    if first == "yes":
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=NOW)
    else:
        question_answer(question, answer="This.", by=session.owner, now=NOW)
    session.refresh_from_db()
    assert session.status == Status.QUEUED

    lease_claim(session.pk, owner="worker", now=NOW)
    with script(Step("Done.")):
        left = loop().run()
    assert left == Waiting(WaitingOn.INPUT if first == "yes" else WaitingOn.APPROVAL)
    assert tool_result(session).startswith("did it" if first == "yes" else "This.")


def test_unanswered_question_expires_and_the_run_continues(waiting, loop, session):
    waiting()
    assert questions_expire(NOW + settings.LQOPS_APPROVAL_LIFETIME - timedelta(seconds=1)) == 0
    assert questions_expire(NOW + settings.LQOPS_APPROVAL_LIFETIME) == 1
    with script(Step("I go on alone.")):
        assert loop().run() == Answered("I go on alone.")
    assert tool_result(session) == "Nobody answered in time."


def test_question_is_answered_once_by_an_allowed_person(waiting, session, approver):
    question = waiting()
    with pytest.raises(NotAllowed):
        question_answer(question, answer="x", by=make_user(), now=NOW)
    with pytest.raises(Invalid):
        question_answer(question, answer=" ", by=session.owner, now=NOW)
    question_answer(question, answer="yes", by=approver, now=NOW)
    with pytest.raises(InvalidTransition):
        question_answer(question, answer="no", by=session.owner, now=NOW)
    assert Question.objects.get().answer == "yes"


def test_command_lists_and_answers(waiting, session):
    question = waiting()
    out = StringIO()
    call_command("answer", "--json", stdout=out)
    [told] = json.loads(out.getvalue())
    assert (told["question"], told["text"]) == (str(question.public_id), "Which of the two?")

    call_command("answer", told["question"], "The first.", "--user", session.owner.get_username(), stdout=out)
    assert Question.objects.get().status == QuestionStatus.ANSWERED
    call_command("answer", stdout=out)
    assert out.getvalue().endswith("There are no open questions.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense", "x", "--user", "nobody"], "There is no question 'nonsense'"),
        (["9e0c7a52-0000-4000-8000-000000000000", "x"], "Give the user who answers"),
    ],
)
def test_command_says_what_is_wrong(arguments, words):
    with pytest.raises(CommandError, match=words):
        call_command("answer", *arguments)


def test_stream_parts_are_deleted_after_their_run(session):
    over = make_session(status="completed", terminal_reason="completed", completed_at=NOW)
    for one in (session, over):
        StreamPart.objects.create(session=one, text="x", created_at=NOW)
    assert parts_delete_old(NOW - timedelta(seconds=1)) == 0
    assert parts_delete_old(NOW) == 1
    assert StreamPart.objects.get().session == session
