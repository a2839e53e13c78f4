"""Asks and chats: requests in plain language, and conversations with agents.

Common requests are answered at once and without a model. Questions go to the console, as a session. Nothing is changed
by asking: `proposals` hold a token each, and confirming one does what it says.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.access import has_opted_in, has_scope, require_opt_in, require_scope
from agents.api.base import BaseView, SingleView
from agents.api.fields import Body, OwnedRowField, UsdField
from agents.api.paging import PagePagination
from agents.api.schema import describe
from agents.ask.chats import MAX_CHARS, Way, chat_answer
from agents.ask.console import Link, links_of, proposals_for, proposals_of
from agents.ask.entry import ask, send_message
from agents.ask.naming import Answer, Kind
from agents.ask.proposals import confirm, read_token, scope_of_token
from agents.ask.strategies import Strategy
from agents.enums import Status, TerminalReason
from agents.exceptions import LqopsError, NotFound
from agents.models import Agent, AgentSession
from agents.people.keys import Scope as KeyScope
from agents.policy.transitions import TERMINAL
from agents.sessions.transcripts import (
    MOST_COUNTED_CHATS,
    SHOWN_MESSAGES,
    Exchange,
    chats_counted,
    chats_of,
    conversations,
    exchanges,
)

KINDS: Final = [(str(kind), str(kind)) for kind in Kind]
STATUS: Final = {Kind.ANSWER: 200, Kind.SESSION: 202}


class AskBody(Body):
    text = serializers.CharField(max_length=MAX_CHARS, help_text="The request, in plain language.")
    agent = OwnedRowField(
        Agent, required=False, allow_null=True, help_text="Sends it to this agent instead of the console."
    )
    chat = serializers.UUIDField(required=False, allow_null=True, help_text="Continues this chat.")
    model = serializers.BooleanField(
        required=False, default=True, help_text="false: no model is asked, so it costs nothing."
    )


class ProposedActionSerializer(serializers.Serializer[Any]):
    action = serializers.CharField(help_text="The proposed action, such as halt, approve or run.")
    label = serializers.CharField(help_text="The words of a button.")  # type: ignore[assignment]  # a field
    text = serializers.CharField(help_text="The effect of confirming.")
    details = serializers.ListField(child=serializers.CharField(), help_text="Facts to check before confirming.")
    scope = serializers.CharField(help_text="The scope that a key needs to confirm it: write or decide.")
    refused = serializers.CharField(allow_blank=True, help_text="Why you cannot confirm it now; empty if you can.")
    token = serializers.CharField(
        allow_blank=True, help_text="For `POST asks/confirm`, within an hour; empty if it is refused."
    )


class AskSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KINDS)
    text = serializers.CharField(help_text="The answer, for people.")
    data = serializers.DictField(  # type: ignore[assignment]  # a field; the property of that name stays
        help_text="The same for programs; its content depends on the path."
    )
    proposals = serializers.SerializerMethodField(help_text="Actions that you can confirm.")
    session = serializers.UUIDField(
        source="session.public_id", allow_null=True, help_text="The session that works on it."
    )
    strategy = serializers.ChoiceField(
        choices=[str(strategy) for strategy in Strategy], allow_null=True, help_text="null if a fast path answered."
    )
    path = serializers.CharField(allow_blank=True, help_text="The fast path that answered; empty if none did.")

    @extend_schema_field(ProposedActionSerializer(many=True))
    def get_proposals(self, answer: Answer) -> Any:
        """Those of a session are in its chat, once it has answered."""
        wanted = [("", one) for one in answer.wanted] if answer.session is None else []
        return ProposedActionSerializer(proposals_for(wanted, self.context["user"]), many=True).data


class ConfirmBody(Body):
    token = serializers.CharField(max_length=60_000, help_text="The token of a proposal.")


class DoneSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="The effect that confirming had.")
    data = serializers.DictField(help_text="Ids of what it was done to.")  # type: ignore[assignment]  # a field
    session = serializers.UUIDField(
        source="session.public_id", allow_null=True, default=None, help_text="The session that was started."
    )


EXAMPLE = OpenApiExample("What runs?", {"text": "Which sessions are running?"}, request_only=True)


class AskView(SingleView):
    serializer_class = AskSerializer
    changes_nothing = frozenset({"post"})

    @describe(dict.fromkeys((200, 202), AskSerializer), body=AskBody, examples=[EXAMPLE], operation_id="ask")
    def post(self, request: Request) -> Response:
        """200: the answer. 202: a session that works on the answer; its chat holds it, with links and proposals.

        `read` is enough to ask. A model is asked only with `write`, which a session needs, and after the opt-in;
        without them the answer is a search. With an `agent` or a `chat`, a key needs `write`.
        """
        data = self.body(AskBody)
        if data.get("agent") or data.get("chat"):
            require_scope(KeyScope.WRITE, request)
            require_opt_in(request)
        data["model"] = data["model"] and has_scope(KeyScope.WRITE, request) and has_opted_in(request)
        answer = ask(**self.actor, **data)
        return Response(AskSerializer(answer, context={"user": self.user}).data, status=STATUS[answer.kind])


class AskConfirmView(SingleView):
    serializer_class = DoneSerializer
    always_allowed = frozenset({"post"})

    @describe(body=ConfirmBody, operation_id="ask_confirm")
    def post(self, request: Request) -> Response:
        """Do what a proposal says. 409 if what it showed has changed since, if it is too old, or if it was used.

        A key needs the scope of the proposal: `decide` to decide on an approval, else `write`. Halting needs no opt-in.
        """
        token = self.body(ConfirmBody)["token"]
        if not read_token(token, by=self.user)["action"].startswith("halt"):
            require_opt_in(request)
        return Response(DoneSerializer(confirm(token, **self.actor)).data)

    def scope_of_text(self) -> str:
        data = self.request.data if isinstance(self.request.data, Mapping) else {}
        token = data.get("token")
        try:
            return scope_of_token(token, by=self.user) if isinstance(token, str) else ""
        except LqopsError:
            return ""


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


class LinkSerializer(serializers.Serializer[Any]):
    ref = serializers.CharField(help_text="How the answer names the row, such as run:1f2e3d4c5b6a.")
    kind = serializers.CharField()
    name = serializers.CharField()
    id = serializers.SerializerMethodField(help_text="The row's id in this API; null if it has none.")

    def get_id(self, link: Link) -> str | None:
        public_id = getattr(link.row, "public_id", None)
        return str(public_id) if public_id else None


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
    spent_usd = UsdField(source="session.spent_usd")
    cost_total_usd = UsdField(
        source="session.cost_total_usd", help_text="Approved estimates, for clients from before there was `spent_usd`."
    )
    links = serializers.SerializerMethodField(help_text="The rows that an answer of the console is about.")
    proposals = serializers.SerializerMethodField(help_text="Actions that you can confirm.")
    created_at = serializers.DateTimeField(source="session.created_at")
    completed_at = serializers.DateTimeField(source="session.completed_at", allow_null=True)

    @extend_schema_field(LinkSerializer(many=True))
    def get_links(self, exchange: Exchange) -> Any:
        if exchange.is_open or exchange.session.params.get("way") != Way.CONSOLE:
            return []
        return LinkSerializer(links_of(exchange.session, exchange.answer, exchange.session.owner), many=True).data

    @extend_schema_field(ProposedActionSerializer(many=True))
    def get_proposals(self, exchange: Exchange) -> Any:
        found = [] if exchange.is_open else proposals_of(exchange.session, exchange.session.owner)
        return ProposedActionSerializer(found, many=True).data


class ChatDetailSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    left_out = serializers.IntegerField(
        help_text=f"Number of older messages that are left out; the latest {SHOWN_MESSAGES} are included."
    )
    messages = ExchangeSerializer(many=True)


class ChatPagination(PagePagination):
    """Every message is counted to count chats, so fewer of them are counted than other rows."""

    most_counted = MOST_COUNTED_CHATS

    def counted(self, listed: Any, view: Any) -> int:
        return chats_counted(view.user.pk, self.most_counted)


class ChatViewSet(BaseView, viewsets.GenericViewSet[AgentSession]):
    """Your chats, the most recent one first."""

    queryset = AgentSession.objects.none()
    serializer_class = ChatSerializer
    lookup_url_kwarg = "id"
    lookup_value_converter = "uuid"
    pagination_class = ChatPagination
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

        A message that `asks` answers at once is answered here too, with 200 and without a model; for that a key also
        needs `read`. 409 while the last message of the chat is still being answered.
        """
        data = self.body(MessageBody)
        require_scope(KeyScope.READ, request)
        session = send_message(text=data.pop("message"), **self.actor, **data)
        return Response(SaidSerializer(session).data, status=200 if session.status in TERMINAL else 202)
