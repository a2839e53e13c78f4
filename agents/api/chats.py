"""Chats: messages to agents and what they answered. Each message is a session, with its own cap, record and receipt."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import Acting
from agents.api.fields import Body, OwnRow, UsdField
from agents.api.permissions import demand_scope_in_chat
from agents.api.schema import described
from agents.ask.chats import MAX_CHARS, chat_answer
from agents.ask.entry import say
from agents.enums import Status, TerminalReason
from agents.exceptions import NotFound
from agents.models import Agent, AgentSession
from agents.policy.transitions import TERMINAL
from agents.sessions.transcripts import SHOWN_MESSAGES, chats_of, conversations, exchanges

HELLO = OpenApiExample("Ask", {"message": "Which of my leases end this year?"}, request_only=True)


class MessageBody(Body):
    message = serializers.CharField(max_length=MAX_CHARS, help_text="What you say to the agent.")
    agent = OwnRow(Agent, required=False, allow_null=True, help_text="Who is to answer; null: as before in the chat.")
    chat = serializers.UUIDField(required=False, allow_null=True, help_text="Goes on with this chat; null: a new one.")
    max_cost_usd = UsdField(
        required=False, allow_null=True, help_text="What this answer may cost; null: the installation's default."
    )


class SaidShown(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="public_id", help_text="The session that works on an answer.")
    chat = serializers.UUIDField(source="params.chat")
    path = serializers.CharField(
        source="params.path", default="", help_text="The fast path that answered at once; empty when none did."
    )
    answer = serializers.SerializerMethodField(help_text="What it answered; empty while a model works on an answer.")

    def get_answer(self, session: AgentSession) -> str:
        return chat_answer(session)


class ChatShown(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    agent = serializers.UUIDField(source="last.agent.public_id", allow_null=True)
    opening = serializers.CharField(source="first.params.message", help_text="The first message.")
    messages = serializers.IntegerField(help_text="How many messages there are.")
    status = serializers.ChoiceField(source="last.status", choices=Status.choices, help_text="Of the last message.")
    created_at = serializers.DateTimeField(source="first.created_at")
    last_at = serializers.DateTimeField(source="last.created_at", help_text="When the last message came.")


class ExchangeShown(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="session.public_id")
    agent = serializers.UUIDField(source="session.agent.public_id", allow_null=True)
    message = serializers.CharField()
    answer = serializers.CharField(allow_blank=True, help_text="Empty while there is none, or if there is none.")
    calls = serializers.ListField(child=serializers.CharField(), help_text="The skills that the agent asked for.")
    question = serializers.UUIDField(
        source="question.public_id", allow_null=True, help_text="What the agent asks before it goes on."
    )
    status = serializers.ChoiceField(source="session.status", choices=Status.choices)
    terminal_reason = serializers.ChoiceField(
        source="session.terminal_reason", choices=TerminalReason.choices, allow_null=True
    )
    cost_total_usd = UsdField(source="session.cost_total_usd")
    created_at = serializers.DateTimeField(source="session.created_at")
    completed_at = serializers.DateTimeField(source="session.completed_at", allow_null=True)


class ChatDetail(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    left_out = serializers.IntegerField(help_text=f"Older messages; the latest {SHOWN_MESSAGES} are shown.")
    messages = ExchangeShown(many=True)


class Chats(Acting, viewsets.GenericViewSet[AgentSession]):
    """Your conversations, the one that was last spoken in first."""

    queryset = AgentSession.objects.none()
    serializer_class = ChatShown
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    starts = frozenset({"create"})

    @described("chats_list", ChatShown(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(chats_of(self.person.pk)))
        return self.get_paginated_response(ChatShown(conversations(rows or []), many=True).data)

    @described("chats_retrieve", ChatDetail)
    def retrieve(self, request: Request, id: UUID) -> Response:  # noqa: A002 as the address has it
        """What was said in one of them, in order."""
        found, left_out = exchanges(self.person.pk, id)
        if not found:
            raise NotFound(f"There is no chat {id}.")
        return Response(ChatDetail({"id": id, "left_out": left_out, "messages": found}).data)

    @described("chats_say", {200: SaidShown, 202: SaidShown}, body=MessageBody, examples=[HELLO])
    def create(self, request: Request) -> Response:
        """Says something to an agent. A session works on the answer: watch its stream, or ask for the chat again.

        What `asks` answers at once is answered here, too: 200, and no model is asked. Beside `write`, a key needs
        `read` for what only looks, and `decide` for what decides on an approval. 409 while the last message of the chat
        is still being answered.
        """
        said = self.body(MessageBody)
        demand_scope_in_chat(said["message"], request)
        session = say(text=said.pop("message"), by=self.person, now=self.now, key_id=self.key_id, **said)
        at_once = session.status in TERMINAL
        return Response(SaidShown(session).data, status=status.HTTP_200_OK if at_once else status.HTTP_202_ACCEPTED)
