"""Questions of runs in time: their owner is reminded twice, told when nobody answered, and a halt withdraws them."""

from datetime import timedelta

import pytest

from agents.enums import NoticeKind, QuestionStatus, Status
from agents.models import AgentSession, Notification, Question
from agents.sessions import lifecycle, questions
from agents.sessions.halts import session_halt
from agents.sessions.questions import questions_expire, questions_remind
from agents.ticker import DUTIES
from audit.models import AuditEvent
from tests.agents.ask.rows import make_question, open_chat
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def after(percent):
    return NOW + timedelta(hours=percent)


def asked(**fields):
    """A question with a life of a hundred hours: an hour is a percent."""
    session = open_chat(status=Status.WAITING, waiting_on="input")
    return make_question(session, asked_at=NOW, expires_at=after(100), **fields)


def recorded(kind):
    return list(AuditEvent.objects.filter(kind=kind).order_by("pk"))


def test_owner_is_reminded_after_a_quarter_and_after_three_quarters_and_no_more(approver):
    question = asked()
    sent = [questions_remind(after(percent)) for percent in (0, 24, 25, 26, 74, 75, 76, 99)]

    assert sent == [0, 0, 1, 0, 0, 1, 0, 0]
    notices = Notification.objects.all()
    assert [(one.owner, one.kind, one.body) for one in notices] == [
        (question.session.owner, NoticeKind.QUESTION_WAITING, "Which of the two?")
    ] * 2
    assert notices[0].title == "A run waits for your answer until 18 March, 13:26 UTC"
    assert [row.details["reminder"] for row in recorded("question.reminded")] == [1, 2]


def test_after_a_long_absence_one_reminder_stands_for_both():
    asked()
    assert [questions_remind(after(80)), questions_remind(after(90))] == [1, 0]


@pytest.mark.parametrize("status", sorted({*QuestionStatus} - {QuestionStatus.PENDING}))
def test_what_is_closed_is_not_reminded_of(status):
    asked(status=status)
    assert (questions_remind(after(30)), Notification.objects.count()) == (0, 0)


def test_of_two_that_look_at_once_one_reminds(monkeypatch):
    asked()
    real = lifecycle.session_lock

    def slower(pk):
        monkeypatch.setattr(lifecycle, "session_lock", real)
        assert questions_remind(after(30)) == 1  # the other one was first
        return real(pk)

    monkeypatch.setattr(lifecycle, "session_lock", slower)
    assert (questions_remind(after(30)), Notification.objects.count()) == (0, 1)


def test_owner_is_told_that_nobody_answered_and_the_run_goes_on():
    question = asked()
    assert (questions_expire(after(99)), questions_expire(after(100)), questions_expire(after(101))) == (0, 1, 0)

    notice = Notification.objects.get()
    assert (notice.owner, notice.title.startswith("Nobody answered in time")) == (question.session.owner, True)
    assert AgentSession.objects.get().status == Status.QUEUED
    [closed] = recorded("question.closed")
    assert (closed.actor, closed.details["status"]) == ("system", "expired")


@pytest.mark.parametrize(
    ("module", "sweep", "percent"), [(questions, questions_remind, 25), (questions, questions_expire, 100)]
)
def test_one_that_fails_keeps_no_other_waiting(monkeypatch, caplog, module, sweep, percent):
    first = asked()
    asked()
    real = module.notify_question

    def fail_for_first(question, *more, **named):
        if question.pk == first.pk:
            raise RuntimeError("no")
        real(question, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, "notify_question", fail_for_first)
        assert sweep(after(percent)) == 1
    assert "it is tried again" in caplog.text
    assert sweep(after(percent)) == 1


def test_halt_withdraws_what_was_asked_and_says_so():
    question = asked()
    session_halt(question.session_id, by=question.session.owner, reason="", now=after(1))

    assert Question.objects.get().status == QuestionStatus.CANCELLED
    [closed] = recorded("question.closed")
    assert (closed.actor, closed.details["status"]) == (f"user:{question.session.owner_id}", "cancelled")
    assert (questions_remind(after(30)), questions_expire(after(100))) == (0, 0)


def test_the_ticker_reminds_and_expires():
    assert {"remind of questions", "expire questions"} <= {duty.name for duty in DUTIES}
