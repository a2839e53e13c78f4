"""Asks: requests in words. Common ones are answered at once and without a model; the rest becomes a session, or a draft
of a trigger or an agent, which stays switched off until its owner switches it on.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.access import demand_opt_in, demand_scope, demand_scope_in_chat
from agents.api.base import Acting, ApiView
from agents.api.fields import Body, OwnRow, UsdField
from agents.api.schema import described
from agents.ask.answers import Answer, Kind
from agents.ask.chats import MAX_CHARS, chat_answer
from agents.ask.entry import ask, ask_within, route, say
from agents.ask.fast_paths import Scope, scope_of
from agents.ask.strategies import Strategy
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
    text = serializers.CharField(max_length=MAX_CHARS, help_text="What you want, in your own words.")
    agent = OwnRow(Agent, required=False, allow_null=True, help_text="Who is to work on it, if it becomes a session.")
    chat = serializers.UUIDField(required=False, allow_null=True, help_text="Goes on with this chat.")


class AskShown(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KINDS)
    text = serializers.CharField(help_text="The answer, for people.")
    data = serializers.DictField(  # type: ignore[assignment]  # a field; the property of that name stays
        help_text="The same for programs; what it holds depends on the path."
    )
    session = serializers.UUIDField(source="session.public_id", allow_null=True, help_text="The session at work on it.")
    strategy = serializers.ChoiceField(
        choices=[str(strategy) for strategy in Strategy], allow_null=True, help_text="null when a fast path answered."
    )
    path = serializers.CharField(allow_blank=True, help_text="The fast path that answered; empty when none did.")


class RouteShown(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=KINDS, help_text="What the answer would be.")
    text = serializers.CharField(help_text="What would be done, for people.")
    path = serializers.CharField(allow_blank=True, help_text="The fast path that would answer; empty when none would.")
    strategy = serializers.ChoiceField(
        choices=[str(strategy) for strategy in Strategy], allow_null=True, help_text="null when a fast path answers."
    )
    lever = serializers.BooleanField(help_text="Whether something would be changed, drafted or started.")
    scope = serializers.CharField(help_text="What a key needs for it: read, write or decide; in a chat, write besides.")
    missing = serializers.ListField(child=serializers.CharField(), help_text="What the request leaves out.")
    refused = serializers.CharField(allow_blank=True, help_text="Why it would be refused; empty when it would not.")


EXAMPLE = OpenApiExample("What runs?", {"text": "Which sessions are running?"}, request_only=True)


class Asks(ApiView):
    serializer_class = AskShown

    @described("ask", {200: AskShown, 201: AskShown, 202: AskShown}, body=AskBody, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """200 with the answer; 202 with the session that works on one; 201 with a draft that is not in use yet.

        A key needs the scope of what the words ask for: `read` for what only looks, `decide` for what decides on an
        approval, `write` for all else. In a chat, where the answer is kept, it needs `write` besides.
        """
        said = self.body(AskBody)
        if said.get("chat"):
            demand_scope_in_chat(said["text"], request)
        answer = self._answered(said) or ask(by=self.person, now=self.now, key_id=self.key_id, **said)
        return Response(AskShown(answer).data, status=STATUS[answer.kind])

    def scope_of_words(self) -> str:
        """Empty where the answer is kept, in a chat, and where there are no words."""
        said = self.request.data if isinstance(self.request.data, Mapping) else {}
        text = said.get("text")
        return scope_of(text, self.person) if isinstance(text, str) and not said.get("chat") else ""

    def _answered(self, said: dict[str, Any]) -> Answer | None:
        """What a look or a decision answers. What turns out to be more needs what all else needs."""
        scope = self.scope_of_words()
        if scope not in _NARROW:
            return None
        answer = ask_within(_NARROW[scope], text=said["text"], by=self.person, now=self.now, key_id=self.key_id)
        if answer is None:
            demand_scope(KeyScope.WRITE, self.request)
            demand_opt_in(self.request)
        return answer


class AskDryRun(ApiView):
    serializer_class = RouteShown
    changes_nothing = frozenset({"post"})

    @described("ask_dry_run", RouteShown, body=AskBody, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """Says what this text would do. Nothing is done, stored or recorded, and no model is asked."""
        return Response(RouteShown(route(by=self.person, now=self.now, **self.body(AskBody))).data)


# Chats: messages to agents and what they answered. Each message is a session, with its own cap, record and receipt.


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
