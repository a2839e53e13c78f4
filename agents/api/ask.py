"""Asks: requests in words. Common ones are answered at once and without a model; the rest becomes a session, or a draft
of a trigger or an agent, which stays switched off until its owner switches it on.
"""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import Body, OwnRow
from agents.api.permissions import demand_opt_in, demand_scope, demand_scope_in_chat
from agents.api.schema import described
from agents.ask.chats import MAX_CHARS
from agents.ask.entry import ask, ask_within, route
from agents.ask.fast_paths import Scope, scope_of
from agents.ask.language import Strategy
from agents.ask.naming import Answer, Kind
from agents.models import Agent
from agents.people.keys import Scope as KeyScope

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
