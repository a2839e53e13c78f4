"""Streams: the text of a session while it is written, and the activity of agents.

Both are Server-Sent Events for the owner. Activity is handed out in the order of its ids, and only when no earlier
event can still appear. It is a live feed of the newest events; the lasting history is the audit log.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import django_filters
from django import forms
from django.db.models import Max, QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, viewsets
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from agents.api import sse
from agents.api.base import BaseView
from agents.api.fields import Body, CountField, OwnedRowField, RedactedDictField
from agents.api.paging import ChoicesFilter, PagePagination, public_id_filter
from agents.api.schema import describe
from agents.ask.chats import stream_events
from agents.enums import EventKind, Status
from agents.models import Agent, AgentEvent, AgentSession
from agents.people.activity import event_sentence, events_between, horizon
from audit.redaction import redact_data

IDLE_POLL_SECONDS: Final = 2.0  # while no worker has the session
READ_LIMIT: Final = 200
MOST_NEW: Final = 10_000  # new events of which the owners are looked up; after more, each stream looks for itself
END: Final = ".end"  # suffix of the id of `finished`
AT_WORK: Final = frozenset({Status.QUEUED, Status.RUNNING})


# --- The text of a session ---


class SessionStream(sse.OpenStream):
    """One open stream of a session. Every client gets exactly one `finished`, also after the session has ended."""

    def __init__(self, session: AgentSession, *, after: int) -> None:
        super().__init__(session.owner_id, after=after)
        self._session = session
        self._sent_state = ("", "")

    def read(self) -> bytes:
        messages = [self._message(event) for event in stream_events(self._session, after=self.after)]
        state = (self._session.status, self._session.waiting_on)
        if state != self._sent_state and not self.is_finished:
            self._sent_state = state
            messages.append(sse.message({"status": state[0], "waiting_on": state[1]}, name="status"))
        return b"".join(messages)

    def pause(self) -> float:
        return super().pause() if self._session.status in AT_WORK else IDLE_POLL_SECONDS

    def _message(self, event: dict[str, Any]) -> bytes:
        self.after = event["id"]
        self.is_finished = event["finished"]
        if not self.is_finished:
            return sse.message({"text": event["text"]}, name="text", number=str(event["id"]))
        end = {"status": self._session.status, "reason": self._session.terminal_reason}
        return sse.message(end, name="finished", number=f"{event['id']}{END}")


class StreamQuery(Body):
    after = CountField(
        max_value=sse.LARGEST_ID, default=0, help_text="Only events after this id; 0: all stored events."
    )


class SessionStreamView(sse.StreamView):
    @describe(
        {(200, "text/event-stream"): OpenApiTypes.STR, 204: None},
        parameters=[StreamQuery, sse.LAST_EVENT_ID],
        operation_id="sessions_stream",
    )
    def get(self, request: Request, id: UUID) -> HttpResponseBase:  # noqa: A002 as in the URL
        """The text of the session while it is written: `text` events, `status` on changes, one `finished` at the end.

        Text events are stored while the run goes on; afterwards the transcript has the text. A connection lasts five
        minutes: reconnect with the id of the last event, as browsers do. A client that reconnects after `finished`
        gets 204.
        """
        session = get_object_or_404(AgentSession, public_id=id, owner_id=self.user.pk)
        after = self.query(StreamQuery)["after"]
        if request.headers.get("Last-Event-ID", "").endswith(END):
            return Response(status=204)
        last = sse.last_event_id(request)
        return sse.stream_response(SessionStream(session, after=after if last is None else last))


# --- The activity of agents ---


class AgentEventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Increases from event to event.")
    kind = serializers.ChoiceField(choices=EventKind.choices)
    agent = serializers.UUIDField(source="agent.public_id", allow_null=True)
    session = serializers.UUIDField(source="session.public_id", allow_null=True)
    text = serializers.SerializerMethodField(help_text="A sentence for people.")
    data = RedactedDictField()  # type: ignore[assignment]  # a field, not the serializer's
    created_at = serializers.DateTimeField()

    def get_text(self, event: Any) -> str:
        return event_sentence(event.kind, redact_data(event.data))


@extend_schema_field(OpenApiTypes.INT64)
class IdFilter(django_filters.Filter):  # type: ignore[misc]  # django-filter ships no types
    field_class = forms.IntegerField


class CursorPagination(PagePagination):
    """The next page starts after the last event of this one, so that deleted events shift nothing."""

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        if response.data["next"] is not None:
            url = remove_query_param(remove_query_param(self.url, "page"), "cursor")
            response.data["next"] = replace_query_param(url, "after", data[-1]["id"])
        return response


class AgentEventViewSet(BaseView, viewsets.GenericViewSet[AgentEvent]):
    """Activity of your agents and sessions, oldest first. Poll with `after` for newer events."""

    queryset = AgentEvent.objects.none()
    serializer_class = AgentEventSerializer
    filters = {
        "agent": public_id_filter("agent"),
        "session": public_id_filter("session"),
        "kind": ChoicesFilter(choices=EventKind.choices),
        "after": IdFilter(
            field_name="id", lookup_expr="gt", min_value=0, max_value=sse.LARGEST_ID, label="Only events after this id."
        ),
    }
    pagination_class = CursorPagination
    resource = "agent_events"

    def get_queryset(self) -> QuerySet[AgentEvent]:
        return events_between(0, horizon.wait(), owner_ids=[self.user.pk])

    @describe(AgentEventSerializer(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(AgentEventSerializer(rows, many=True).data)


class Position(NamedTuple):
    """Up to which id activity can be read, and the newest event of each owner after the id `since`."""

    since: int
    until: int
    newest: Mapping[int, int]

    def is_news_for(self, owner_id: int, *, after: int) -> bool:
        return after < self.since or after < self.newest.get(owner_id, 0)


class SharedPosition:
    """The position that all streams of the process go by; one of them refreshes it for all.

    A new position replaces the old one as a whole, since the event loop reads it while a thread refreshes it.
    """

    def __init__(self) -> None:
        self.now = Position(0, 0, {})
        self._due_at = 0.0
        self._lock = threading.Lock()

    def is_due(self) -> bool:
        """Whether the caller is to refresh it, on behalf of all."""
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + sse.POLL_SECONDS / 2
        return True

    def refresh(self) -> None:
        with self._lock:
            since, until, newest = self.now
            reached = horizon.look()
            moved = reached - until
            if not since or moved < 0 or moved > MOST_NEW:  # less than nothing: a restored database
                self.now = Position(reached, reached, {})
            elif moved:
                rows = AgentEvent.objects.filter(id__gt=until, id__lte=reached).order_by()
                latest = dict(rows.values_list("owner_id").annotate(Max("id")))
                self.now = Position(since, reached, {**newest, **latest})


_position: Final = SharedPosition()


class ActivityStream(sse.OpenStream):
    """One open stream of the activity of a user's agents, or of one of them."""

    def __init__(self, owner_id: int, *, agent: Agent | None, after: int) -> None:
        super().__init__(owner_id, after=after)
        self._agent = agent
        self._refreshes = True
        self._has_more = False

    def may_have_news(self) -> bool:
        self._refreshes = _position.is_due()
        known = _position.now
        if self._refreshes or known.is_news_for(self.owner_id, after=self.after):
            return True
        self._pass_over(known)
        return False

    def _pass_over(self, known: Position) -> None:
        """Go on after what others have done."""
        self.after = max(self.after, known.until)
        self._has_more = False

    def read(self) -> bytes:
        if self._refreshes:
            _position.refresh()
        known = _position.now
        if known.until <= self.after or not known.is_news_for(self.owner_id, after=self.after):
            self._pass_over(known)
            return b""
        events = events_between(self.after, known.until, owner_ids=[self.owner_id])
        if self._agent is not None:
            events = events.filter(agent=self._agent)
        rows = list(events[:READ_LIMIT])
        self.after = rows[-1].pk if len(rows) == READ_LIMIT else known.until
        self._has_more = self.after < known.until
        return b"".join(sse.message(AgentEventSerializer().to_representation(row), number=str(row.pk)) for row in rows)

    def pause(self) -> float:
        return 0 if self._has_more else super().pause()


def _start(after: int | None) -> int:
    """The id to start after. Without one, or with one ahead of all events, the stream starts with new events."""
    until = horizon.look()
    newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
    return until if after is None or after > max(newest, until) else after


class AgentEventsQuery(Body):
    agent = OwnedRowField(Agent, required=False, help_text="Only this agent.")
    after = CountField(
        max_value=sse.LARGEST_ID,
        required=False,
        help_text="Start after this id; 0: with all stored events. Default: only new events.",
    )


class AgentEventStreamView(sse.StreamView):
    @describe(
        {(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[AgentEventsQuery, sse.LAST_EVENT_ID],
        operation_id="agent_events_stream",
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Activity of your agents and sessions as it happens. Each event has the JSON and the id of the list.

        A connection lasts five minutes: reconnect with the id of the last event, as browsers do. No stored event is
        then missed or sent twice. An id ahead of all events (the database was restored from a backup) starts with new
        events.
        """
        data = self.query(AgentEventsQuery)
        last = sse.last_event_id(request)
        if last is None and request.headers.get("Last-Event-ID"):
            raise ParseError("Last-Event-ID must be the id of an event, a whole number.")
        after = data.get("after") if last is None else last
        return sse.stream_response(ActivityStream(self.user.pk, agent=data.get("agent"), after=_start(after)))
