"""Chats, transcripts and questions of agents, as rows."""

from datetime import timedelta

from agents.conf import clock
from agents.enums import Status, WaitingOn
from agents.models import Message, Question, StreamPart
from tests.factories import NOW, make_session, make_user

OVER = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}


def make_chat(owner=None, message="Which of my leases end this year?", *, chat=None, answer="", **fields):
    """One message of a chat; completed unless another status is given."""
    session = make_session(owner=owner or make_user(), mode="chat", **(OVER | fields))
    session.params = {"message": message, "way": "answer", "chat": str(chat or session.public_id)}
    session.save()
    if answer:
        make_entry(session, "user", message)
        make_entry(session, "assistant", answer, stop="end_turn")
    return session


def open_chat(owner=None, message="Which of my leases end this year?", *, status=Status.RUNNING, **fields):
    """One message that is being answered."""
    return make_chat(owner, message, status=status, terminal_reason=None, completed_at=None, **fields)


def make_entry(session, role, content="", **fields):
    seq = Message.objects.filter(session=session).count() + 1
    return Message.objects.create(session=session, seq=seq, role=role, content=content, created_at=NOW, **fields)


def make_part(session, text):
    return StreamPart.objects.create(session=session, text=text, created_at=clock())


def make_question(session=None, **fields):
    """A pending question, and a run that waits for it."""
    session = session or open_chat(status=Status.WAITING, waiting_on=WaitingOn.INPUT)
    given = {"call_key": "step:call_1_1", "text": "Which of the two?", "asked_at": clock()}
    return Question.objects.create(**{"session": session, "expires_at": clock() + timedelta(days=1), **given, **fields})


CALL = {"id": "call_1_1", "name": "now", "arguments": '{"zone": "UTC"}', "native": False}


def make_transcript(session):
    """Instructions, a message, a reply that was cut off, the request to go on, a call with its result, the end."""
    make_entry(session, "system", "You are careful.")
    make_entry(session, "user", "What time is it?")
    make_entry(session, "assistant", "Let me s", stop="max_tokens")
    make_entry(session, "user", "Write on.", reason="max_tokens_recovery")
    make_entry(session, "assistant", "ee.", stop="tool_use", calls=[CALL])
    make_entry(session, "tool", "09:26", call_id="call_1_1")
    return make_entry(session, "assistant", "Half past nine.", stop="end_turn")
