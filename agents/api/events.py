"""Events: sent in by integrations, judged by the rules of the person's own triggers, and kept with what came of them.

What an event says is data: it chooses a trigger by rules that people wrote, and nothing else.
"""

from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_view
from rest_framework import exceptions, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown, WordField, ref
from agents.api.filtering import public_id
from agents.api.schema import described
from agents.enums import EventOutcome, EventSeverity
from agents.models import InboundEvent
from agents.triggers.events import TITLE_CHARS, WORD_CHARS, EventAnswer, EventIn, event_receive

REFUSED_FROM = 400


class EventShown(Shown):
    trigger = ref("trigger")
    session = ref("session")

    class Meta:
        model = InboundEvent
        fields = [
            "id", "source", "event_type", "category", "severity", "title", "outcome", "trigger", "session",
            "received_at",
        ]  # fmt: skip


class EventDetail(EventShown):
    class Meta(EventShown.Meta):
        fields = [*EventShown.Meta.fields, "data"]


class EventBody(Body):
    source = serializers.CharField(  # type: ignore[assignment]  # the column of that name, no place to read from
        max_length=WORD_CHARS, required=False, allow_blank=True
    )
    event_type = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    category = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    severity = WordField(choices=EventSeverity.choices, required=False)
    title = serializers.CharField(max_length=TITLE_CHARS, required=False, allow_blank=True)
    data = serializers.DictField(required=False)  # type: ignore[assignment]  # the event's, not the serializer's
    target_agent = serializers.CharField(
        max_length=WORD_CHARS,
        required=False,
        allow_blank=True,
        help_text="The name or the id of an agent of yours: the event goes to it, even if none of its rules fits.",
    )


class EventAnswerShown(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="spawned, no_match, or would_spawn for a dry run.")
    message = serializers.CharField()
    event = serializers.UUIDField(source="event_id", allow_null=True)
    session = serializers.UUIDField(source="session_id", allow_null=True)
    trigger = serializers.UUIDField(source="trigger_id", allow_null=True)
    score = serializers.IntegerField(allow_null=True, help_text="How well the rule of the trigger fits.")


class EventRefused(exceptions.APIException):
    """The trigger that the event is for does not fire now; the answer says why and, if known, when to ask again."""

    def __init__(self, answer: EventAnswer) -> None:
        self.status_code, self.default_code, self.wait = answer.status, answer.code, answer.retry_after
        super().__init__(answer.message)


class EventFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    outcome = django_filters.ChoiceFilter(choices=EventOutcome.choices)
    trigger = public_id("trigger", "The id of a trigger.")


EXAMPLE = OpenApiExample(
    "An alarm",
    {"source": "monitor", "event_type": "contract.uploaded", "severity": "warning", "title": "New draft of the lease"},
    request_only=True,
)


@extend_schema_view(
    list=extend_schema(operation_id="events_list"), retrieve=extend_schema(operation_id="events_retrieve")
)
class Events(OwnedViewSet[InboundEvent]):
    """Events that came in for you, newest first, with what came of each."""

    queryset = InboundEvent.objects.all()
    filterset_class = EventFilter
    joins = ("trigger", "session")
    throttle_kind = "events"
    changes_nothing = frozenset({"dry_run"})
    starts = frozenset({"create"})

    def get_serializer_class(self) -> type[EventShown]:
        return EventShown if self.action == "list" else EventDetail

    @described("events_send", EventAnswerShown, body=EventBody, examples=[EXAMPLE])
    def create(self, request: Request) -> Response:
        """Spawns a session of the trigger whose rule fits best. That none fits is remembered, and is no error."""
        return self._answered(event_receive(owner=self.person, event=self._event(), now=self.now))

    @described("events_dry_run", EventAnswerShown, body=EventBody, filters=False)
    @action(detail=False, methods=["post"], url_path="dry-run", pagination_class=None)
    def dry_run(self, request: Request) -> Response:
        """Says which trigger it would be. Nothing is spawned, stored or recorded."""
        return self._answered(event_receive(owner=self.person, event=self._event(), now=self.now, dry_run=True))

    def _event(self) -> EventIn:
        return EventIn(**self.body(EventBody))

    def _answered(self, answer: EventAnswer) -> Response:
        if answer.status >= REFUSED_FROM:
            raise EventRefused(answer)
        return Response(EventAnswerShown(answer).data, status=answer.status)
