"""Lists of a person with very many rows are read by an index that has them in order."""

import pytest
from django.db.models import Count, Q

from agents.models import AgentSession, Attachment, Memory, Notification, ToolCall
from agents.models.expressions import Likely
from agents.sessions.transcripts import chats_counted, chats_of, conversations
from tests.agents.ask.rows import make_chat
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.mark.sqlite  # PostgreSQL decides by its statistics, and has none of an empty table
@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (lambda: chats_of(1)[:50], "session_chat"),
        (lambda: AgentSession.objects.of_chat(1, "0a1b"), "session_chat"),
        (lambda: Notification.objects.filter(owner=1, read_at__isnull=True).order_by("pk"), "notification_unread"),
        (lambda: Memory.objects.filter(owner=1, deleted_at__isnull=True).order_by("-id"), "memory_owner"),
        (lambda: Attachment.objects.filter(collection=1, detached_at__isnull=True), "attachment_inside"),
    ],
    ids=["chats", "one chat", "unread notifications", "memories", "documents of a collection"],
)
def test_rows_of_a_person_are_read_by_an_index(rows, index):
    assert index in rows().explain()


@pytest.mark.sqlite
def test_active_sessions_of_a_person_are_read_by_status():
    rows = AgentSession.objects.active_of(1).values_list("status").annotate(Count("pk")).order_by("status")
    assert "session_by_status" in rows.explain()


def test_chats_are_counted_up_to_a_number():
    owner = make_user()
    first, second = make_chat(owner, "one"), make_chat(owner, "two")
    make_chat(owner, "one, again", chat=first.public_id)
    make_chat(make_user(), "somebody else's")

    assert [chats_counted(owner.pk, most) for most in (1, 2, 3)] == [1, 2, 2]
    found = conversations(chats_of(owner.pk))
    assert [(chat.id, chat.messages) for chat in found] == [(first.public_id, 2), (second.public_id, 1)]
    assert [chat.first.params["message"] for chat in found] == ["one", "two"]
    assert conversations([]) == []


@pytest.mark.sqlite
def test_few_calls_of_unknown_outcome_are_looked_at_first():
    rows = ToolCall.objects.unknown().filter(Likely(Q(session__owner_id=1)))
    assert "tool_call_unresolved" in rows.explain()


@pytest.mark.sqlite
def test_sessions_in_a_rare_status_are_read_by_status():
    rows = AgentSession.objects.filter(Likely(Q(owner_id=1)), status__in=["failed"]).order_by("-id")
    assert "session_by_status" in rows.explain()
