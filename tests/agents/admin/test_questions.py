"""The queue of questions: order, who may answer, from where, and closed ones."""

import pytest
from django.urls import reverse

from agents.enums import NoticeKind, QuestionStatus, Status
from agents.models import AgentSession, Question
from agents.people.notifications import notification_create
from audit.models import AuditEvent
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.ask.rows import make_question, open_chat
from tests.factories import NOW, make_agent, make_user

pytestmark = pytest.mark.django_db


def waiting(owner=None, **fields):
    return make_question(open_chat(owner, status=Status.WAITING, waiting_on="input"), **fields)


def answer(client, question, text="The second.", **more):
    return client.post(reverse("admin:agents_question_answer", args=[question.pk]), {"answer": text, **more})


def test_queue_shows_pending_questions_oldest_first(client):
    sign_in(client, "viewer")
    make_question(open_chat(agent=make_agent(name="Clerk")), text="First?")
    waiting(text="Second?")
    waiting(text="Closed?", status=QuestionStatus.ANSWERED)

    found = text_of(client.get(page(Question, "changelist")))
    assert found.index("First?") < found.index("Second?")
    assert "Clerk for" in found
    assert "Closed?" not in found
    assert "Closed?" in text_of(client.get(page(Question, "changelist"), {"queue": "all"}))


def test_owner_answers_without_permissions(client):
    owner = sign_in(client, "viewer")
    question = waiting(owner)
    assert "Send answer</button>" in text_of(client.get(page(Question, "change", question.pk)))

    answered = answer(client, question)
    assert answered.headers["Location"] == page(Question, "change", question.pk)
    question.refresh_from_db()
    assert (question.status, question.answer, question.answered_by) == ("answered", "The second.", owner)
    assert AgentSession.objects.get().status == Status.QUEUED
    shown = text_of(client.get(page(Question, "change", question.pk)))
    assert "The second." in shown
    assert "Send answer</button>" not in shown


def test_approver_answers_and_the_view_is_recorded(client):
    by = sign_in(client, "approver")
    question = waiting()
    assert "Send answer</button>" in text_of(client.get(page(Question, "change", question.pk)))
    assert AuditEvent.objects.get(kind="session.viewed").actor == f"user:{by.pk}"
    assert answer(client, question).status_code == 302


def test_others_read_and_cannot_answer(client):
    sign_in(client, "operator")
    question = waiting()
    assert "an approver can answer" in text_of(client.get(page(Question, "change", question.pk)))
    assert answer(client, question).status_code == 403
    client.force_login(make_user(is_staff=True))
    assert client.get(page(Question, "changelist")).status_code == 403
    assert client.get(page(Question, "change", question.pk)).status_code == 403
    assert Question.objects.get().status == QuestionStatus.PENDING


def test_refusals_are_shown_beside_the_form(client):
    owner = sign_in(client, "viewer")
    question = waiting(owner)
    assert answer(client, question, " ").status_code == 422
    assert client.get(reverse("admin:agents_question_answer", args=[question.pk])).status_code == 405
    answer(client, question)
    again = answer(client, question, "No, the first.")
    assert again.status_code == 409
    assert "has been answered" in text_of(again)
    assert Question.objects.get().answer == "The second."


def test_answer_redirects_to_the_page_of_its_form(client):
    owner = sign_in(client, "operator")
    session = open_chat(owner)
    places = {
        "session": page(AgentSession, "change", session.pk),
        "chat": reverse("admin:chat", args=[session.public_id]),
    }
    for name, address in places.items():
        question = make_question(session, call_key=name)
        assert f'name="from" value="{name}"' in text_of(client.get(address))
        assert answer(client, question, **{"from": name}).headers["Location"] == address
    odd = answer(client, make_question(session), **{"from": "https://example.org/"})
    assert odd.headers["Location"].startswith("/admin/agents/question/")


def test_session_page_shows_the_form_to_those_who_may_answer(client):
    question = waiting(text="Which draft?")
    for role, may in (("approver", True), ("viewer", False)):
        sign_in(client, role)
        shown = text_of(client.get(page(AgentSession, "change", question.session_id)))
        assert "Which draft?" in shown
        assert ("Send answer</button>" in shown) == may


@pytest.mark.parametrize(("role", "badge"), [("approver", "2"), ("viewer", "1")])
def test_home_and_sidebar_count_questions(client, role, badge):
    user = sign_in(client, role)
    waiting(user, text="Mine?")
    waiting(text="Theirs?")
    home = client.get(reverse("admin:index"))

    assert text_of(home).count(">question</span>") == 2
    assert text_of(home).count("Answer</a>") == int(badge)
    items = [item for section in home.context["sidebar_navigation"] for item in section["items"]]
    assert {item["title"]: item.get("badge") for item in items}["Approvals"] == badge
    tabs = client.get(reverse("admin:agents_question_changelist")).context["page_tabs"]
    assert {tab["title"]: tab["badge"] for tab in tabs}["Questions"] == badge


def test_sidebar_counts_approvals_and_questions_apart_and_no_matter_twice(client):
    user = sign_in(client, "approver")
    waiting(user, text="Mine?")
    make_approval()
    for kind in (NoticeKind.APPROVAL_WAITING, NoticeKind.QUESTION_WAITING, NoticeKind.FAULT):
        notification_create(owner_id=user.pk, kind=kind, title="t", body="", now=NOW)
    items = [
        item
        for section in client.get(reverse("admin:index")).context["sidebar_navigation"]
        for item in section["items"]
    ]
    badges = {item["title"]: item.get("badge") for item in items}
    assert (badges["Approvals"], badges["Notifications"]) == ("1 + 1", "1")


def test_questions_and_answers_are_escaped(client):
    owner = sign_in(client)
    hostile = "\n".join(PAYLOADS)
    question = waiting(owner, text=hostile)
    addresses = [
        page(Question, "changelist"),
        page(Question, "change", question.pk),
        page(AgentSession, "change", question.session_id),
        reverse("admin:chat", args=[question.session.public_id]),
        reverse("admin:index"),
    ]
    Question.objects.filter(pk=question.pk).update(answer=hostile)
    for address in addresses:
        found = read(text_of(client.get(address)))
        assert (found.live, found.seen > 0) == ([], True), address
