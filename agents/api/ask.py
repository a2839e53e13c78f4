"""Asks and chats: requests in plain language, and conversations with agents.

Common requests are answered at once and without a model. Others become a session, or a draft of a trigger or an agent
that stays disabled until its owner enables it.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.access import require_chat_scope, require_opt_in, require_scope
from agents.api.base import BaseView, SingleView
from agents.api.fields import Body, OwnedRowField, UsdField
from agents.api.schema import describe
from agents.ask.chats import MAX_CHARS, chat_answer
from agents.ask.entry import ask, ask_within, route, send_message
from agents.ask.fast_paths import Scope, scope_of
from agents.ask.language import Strategy
from agents.ask.naming import Answer, Kind
from agents.enums import Status, TerminalReason
from agents.exceptions import NotFound
from agents.models import Agent, AgentSession
from agents.people.keys import Scope as KeyScope
from agents.policy.transitions import TERMINAL
from agents.sessions.transcripts import SHOWN_MESSAGES, chats_of, conversations, exchanges

KINDS: Final = [(str(kind), str(kind)) for kind in Kind]
_NARROW: Final[dict[str, Scope]] = {"read": "read", "decide": "decide"}
STATUS: Final = {Kind.ANSWER: 200, Kind.DRAFT: 201, Kind.SESSION: 202}


class AskBody(Body):
    text = serializers.CharField(max_length=MAX_CHARS, help_text="The request, in plain language.")
    agent = OwnedRowField(
        Agent, required=False, allow_null=True, help_text="The agent that works on it, if it becomes a session."
    )
    chat = serializers.UUIDField(required=False, allow_null=True, help_text="Continues this chat.")


class AskSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KINDS)
    text = serializers.CharField(help_text="The answer, for people.")
    data = serializers.DictField(  # type: ignore[assignment]  # a field; the property of that name stays
        help_text="The same for programs; its content depends on the path."
    )
    session = serializers.UUIDField(
        source="session.public_id", allow_null=True, help_text="The session that works on it."
    )
    strategy = serializers.ChoiceField(
        choices=[str(strategy) for strategy in Strategy], allow_null=True, help_text="null if a fast path answered."
    )
    path = serializers.CharField(allow_blank=True, help_text="The fast path that answered; empty if none did.")


class RouteSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KINDS, help_text="Kind of the answer.")
    text = serializers.CharField(help_text="The effect, in words.")
    path = serializers.CharField(allow_blank=True, help_text="The fast path that would answer; empty if none would.")
    strategy = serializers.ChoiceField(
        choices=[str(strategy) for strategy in Strategy], allow_null=True, help_text="null if a fast path answers."
    )
    lever = serializers.BooleanField(help_text="Whether it would change, draft or start something.")
    scope = serializers.CharField(help_text="The scope that a key needs: read, write or decide; in a chat, also write.")
    missing = serializers.ListField(child=serializers.CharField(), help_text="Parts that the request lacks.")
    refused = serializers.CharField(allow_blank=True, help_text="Why it would be refused; empty if it would not.")


EXAMPLE = OpenApiExample("What runs?", {"text": "Which sessions are running?"}, request_only=True)


class AskView(SingleView):
    serializer_class = AskSerializer

    @describe(dict.fromkeys((200, 201, 202), AskSerializer), body=AskBody, examples=[EXAMPLE], operation_id="ask")
    def post(self, request: Request) -> Response:
        """200: the answer. 201: a draft, not enabled yet. 202: a session that works on the answer.

        A key needs the scope of the request: `read` to read, `decide` to decide on an approval, `write` for everything
        else. In a chat, where the answer is stored, it also needs `write`.
        """
        data = self.body(AskBody)
        if data.get("chat"):
            require_chat_scope(data["text"], request)
        answer = self._fast_answer(data) or ask(**self.actor, **data)
        return Response(AskSerializer(answer).data, status=STATUS[answer.kind])

    def scope_of_text(self) -> str:
        """Empty in a chat, where the answer is stored, and without text."""
        data = self.request.data if isinstance(self.request.data, Mapping) else {}
        text = data.get("text")
        return scope_of(text, self.user) if isinstance(text, str) and not data.get("chat") else ""

    def _fast_answer(self, data: dict[str, Any]) -> Answer | None:
        """Answer a request that only reads or decides. Anything else needs the scope and opt-in of a write."""
        scope = self.scope_of_text()
        if scope not in _NARROW:
            return None
        answer = ask_within(_NARROW[scope], text=data["text"], **self.actor)
        if answer is None:
            require_scope(KeyScope.WRITE, self.request)
            require_opt_in(self.request)
        return answer


class AskDryRunView(SingleView):
    serializer_class = RouteSerializer
    changes_nothing = frozenset({"post"})

    @describe(body=AskBody, examples=[EXAMPLE], operation_id="ask_dry_run")
    def post(self, request: Request) -> Response:
        """Returns the effect that this text would have. Nothing is done, stored or audited, and no model is called."""
        return Response(RouteSerializer(route(**self.actor, **self.body(AskBody))).data)


# --- Chats: each message is a session, with its own cap, audit log and receipt ---


HELLO = OpenApiExample("Ask", {"message": "Which of my leases end this year?"}, request_only=True)


class MessageBody(Body):
    message = serializers.CharField(max_length=MAX_CHARS, help_text="The message to the agent.")
    agent = OwnedRowField(
        Agent,
        required=False,
        allow_null=True,
        help_text="The agent that answers; null: the same as before in the chat.",
    )
    chat = serializers.UUIDField(
        required=False, allow_null=True, help_text="Continues this chat; null: starts a new one."
    )
    max_cost_usd = UsdField(
        required=False, allow_null=True, help_text="Cap for this answer; null: the installation's default."
    )


class SaidSerializer(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="public_id", help_text="The session that works on the answer.")
    chat = serializers.UUIDField(source="params.chat")
    path = serializers.CharField(
        source="params.path", default="", help_text="The fast path that answered; empty if none did."
    )
    answer = serializers.SerializerMethodField(help_text="The answer; empty while a model works on it.")

    def get_answer(self, session: AgentSession) -> str:
        return chat_answer(session)


class ChatSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    agent = serializers.UUIDField(source="last.agent.public_id", allow_null=True)
    opening = serializers.CharField(source="first.params.message", help_text="The first message.")
    messages = serializers.IntegerField(help_text="Number of messages.")
    status = serializers.ChoiceField(
        source="last.status", choices=Status.choices, help_text="Status of the last message."
    )
    created_at = serializers.DateTimeField(source="first.created_at")
    last_at = serializers.DateTimeField(source="last.created_at", help_text="When the last message was sent.")


class ExchangeSerializer(serializers.Serializer[Any]):
    session = serializers.UUIDField(source="session.public_id")
    agent = serializers.UUIDField(source="session.agent.public_id", allow_null=True)
    message = serializers.CharField()
    answer = serializers.CharField(allow_blank=True, help_text="Empty until there is one.")
    calls = serializers.ListField(child=serializers.CharField(), help_text="The skills that the agent called.")
    question = serializers.UUIDField(
        source="question.public_id", allow_null=True, help_text="The question that the agent is waiting on."
    )
    status = serializers.ChoiceField(source="session.status", choices=Status.choices)
    terminal_reason = serializers.ChoiceField(
        source="session.terminal_reason", choices=TerminalReason.choices, allow_null=True
    )
    cost_total_usd = UsdField(source="session.cost_total_usd")
    created_at = serializers.DateTimeField(source="session.created_at")
    completed_at = serializers.DateTimeField(source="session.completed_at", allow_null=True)


class ChatDetailSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    left_out = serializers.IntegerField(
        help_text=f"Number of older messages that are left out; the latest {SHOWN_MESSAGES} are included."
    )
    messages = ExchangeSerializer(many=True)


class ChatViewSet(BaseView, viewsets.GenericViewSet[AgentSession]):
    """Your chats, the most recent one first."""

    queryset = AgentSession.objects.none()
    serializer_class = ChatSerializer
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    starts = frozenset({"create"})

    @describe(ChatSerializer(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(chats_of(self.user.pk)))
        return self.get_paginated_response(ChatSerializer(conversations(rows or []), many=True).data)

    @describe(ChatDetailSerializer)
    def retrieve(self, request: Request, id: UUID) -> Response:  # noqa: A002 as in the URL
        """One chat with its messages, in order."""
        found, left_out = exchanges(self.user.pk, id)
        if not found:
            raise NotFound(f"There is no chat {id}.")
        return Response(ChatDetailSerializer({"id": id, "left_out": left_out, "messages": found}).data)

    @describe({200: SaidSerializer, 202: SaidSerializer}, body=MessageBody, examples=[HELLO], operation_id="chats_say")
    def create(self, request: Request) -> Response:
        """Send a message to an agent. A session works on the answer: follow its stream, or read the chat again.

        A message that `asks` answers at once is answered here too, with 200 and without a model. Beside `write`, a key
        needs `read` for messages that read and `decide` for messages that decide on an approval. 409 while the last
        message of the chat is still being answered.
        """
        data = self.body(MessageBody)
        require_chat_scope(data["message"], request)
        session = send_message(text=data.pop("message"), **self.actor, **data)
        return Response(SaidSerializer(session).data, status=200 if session.status in TERMINAL else 202)
