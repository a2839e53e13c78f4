"""Questions of agents through the API: order, who may answer, and that one answer is final."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.api import base
from agents.conf import clock
from agents.enums import QuestionStatus, Status
from agents.models import AgentSession, ApiKey, Question
from agents.sessions.halts import session_halt
from audit.models import AuditEvent
from tests.agents.ask.rows import make_question, open_chat
from tests.factories import make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
QUESTIONS = "/api/v1/questions"


def waiting(owner, **fields):
    return make_question(open_chat(owner, status=Status.WAITING, waiting_on="input"), **fields)


def answer(client, question, text="The second."):
    return client.post(f"{QUESTIONS}/{question.public_id}/answer", {"answer": text}, format="json")


def test_pending_questions_come_first_oldest_first(api, person):
    session = open_chat(person)
    statuses = ["answered", "pending", "expired", "pending"]
    rows = [make_question(session, call_key=str(place), status=status) for place, status in enumerate(statuses)]
    waiting(make_user())

    found = api.get(QUESTIONS).json()["results"]
    assert [row["id"] for row in found] == [str(rows[place].public_id) for place in (1, 3, 2, 0)]
    assert (found[0]["text"], found[0]["owner"]) == ("Which of the two?", person.username)
    assert api.get(QUESTIONS, {"status": "expired"}).json()["count"] == 1
    assert api.get(QUESTIONS, {"status": "nonsense"}).status_code == 422


@pytest.mark.sqlite  # PostgreSQL decides by its statistics, and has none of an empty table
@pytest.mark.parametrize(
    ("address", "index"), [(QUESTIONS, "question_pending"), ("/api/v1/approvals", "approval_by_status")]
)
def test_what_waits_is_read_by_its_index_however_much_was_decided(approver, address, index):
    with CaptureQueriesContext(connection) as seen:
        assert client_of(approver).get(address).status_code == 200
    pages = [query["sql"] for query in seen if "= 'pending' ORDER BY" in query["sql"]]
    assert len(pages) == 1
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {pages[0]}")
        assert index in str(cursor.fetchall())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("named", [0, 1_000])
def test_pages_go_from_the_pending_questions_on_to_the_others(api, person, monkeypatch, size, named):
    monkeypatch.setattr(base, "MOST_NAMED_RUNS", named)
    session = open_chat(person)
    statuses = ["answered", "pending", "expired", "pending", "cancelled"]
    rows = [make_question(session, call_key=str(place), status=status) for place, status in enumerate(statuses)]
    waiting(make_user())

    seen, address = [], f"{QUESTIONS}?page_size={size}"
    while address:
        page = api.get(address).json()
        seen += [row["id"] for row in page["results"]]
        address = page["next"]

    assert seen == [str(rows[place].public_id) for place in (1, 3, 4, 2, 0)]
    assert page["count"] == 5
    assert api.get(QUESTIONS, {"page": 4, "page_size": 2}).json()["results"] == []


def test_answer_resumes_the_run_and_records_the_key(api, person):
    question = waiting(person)
    response = answer(api, question, "The second, with sk-proj-" + "a1B2" * 10)

    assert response.status_code == 200
    assert (response.json()["status"], response.json()["answered_by"]) == ("answered", person.username)
    assert "a1B2" not in response.json()["answer"]
    assert AgentSession.objects.get().status == Status.QUEUED
    event = AuditEvent.objects.get(kind="question.closed")
    assert event.actor == f"user:{person.pk}:key:{ApiKey.objects.get().prefix}"


def test_closed_question_cannot_be_answered(api, person):
    answered, expired, halted = (waiting(person) for _ in range(3))
    answer(api, answered)
    Question.objects.filter(pk=expired.pk).update(expires_at=clock() - timedelta(seconds=1))
    session_halt(halted.session_id, by=person, reason="", now=clock())
    for question in (answered, expired, halted):
        refused = answer(api, question)
        assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")
    assert Question.objects.get(pk=answered.pk).answer == "The second."


def test_only_owner_and_approver_may_answer(person, approver):
    question = waiting(person)
    assert answer(client_of(make_user(is_staff=True)), question).status_code == 404
    assert client_of(make_user()).get(f"{QUESTIONS}/{question.public_id}").status_code == 404

    client = client_of(approver)
    assert client.get(f"{QUESTIONS}/{question.public_id}").json()["text"] == "Which of the two?"
    assert AuditEvent.objects.get(kind="session.viewed").actor.startswith(f"user:{approver.pk}:key:")
    assert answer(client, question).status_code == 200


def test_answer_needs_the_decide_scope(person):
    question = waiting(person)
    refused = answer(client_of(person, "read", "write"), question)
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert Question.objects.get().status == QuestionStatus.PENDING


@pytest.mark.parametrize("text", ["", "  ", "x" * 4_001, 5, True, ["x"]])
def test_answer_has_a_length_limit(api, person, text):
    refused = answer(api, waiting(person), text)
    assert (refused.status_code, list(refused.json()["detail"])) == (422, ["answer"])
