"""Streams: the text of a session while it is written, and the activity of agents.

Both are Server-Sent Events for the owner. Activity is handed out in the order of its ids, and only when no earlier
event can still appear. It is a live feed of the newest events; the lasting history is the audit log.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final
from uuid import UUID

import django_filters
from asgiref.sync import sync_to_async
from django import forms
from django.db import DatabaseError, close_old_connections
from django.db.models import Max, QuerySet
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
from agents.api.fields import Body, CountField, OwnedRowField
from agents.api.paging import FilterSet, PagePagination, public_id_filter
from agents.api.schema import describe
from agents.api.sse import Listener, event_facts, event_message, in_thread, reader
from agents.ask.chats import stream_events
from agents.enums import EventKind, Status
from agents.models import Agent, AgentEvent, AgentSession
from agents.people.activity import events_between, horizon
from agents.process_end import stop_requested

POLL_SECONDS: Final = 0.4
IDLE_POLL_SECONDS: Final = 2.0  # while no worker has the session
END: Final = ".end"  # suffix of the id of `finished`
AT_WORK: Final = frozenset({Status.QUEUED, Status.RUNNING})


# --- The text of a session ---


class SessionStream(sse.OpenStream):
    """One open stream of a session. Every client gets exactly one `finished`, also after the session has ended."""

    def __init__(self, session: AgentSession, *, after: int) -> None:
        super().__init__(session.owner_id)
        self._session = session
        self._after = after

    async def events(self) -> AsyncGenerator[bytes, None]:
        yield sse.opening()
        deadline = time.monotonic() + sse.LIFETIME_SECONDS
        last_sent_at = time.monotonic()
        sent_state = ("", "")
        while time.monotonic() < deadline and not stop_requested.is_set():
            try:
                events = await sync_to_async(self._read)()
            except DatabaseError:
                return  # the client reconnects and continues after the last event it received
            finished = bool(events and events[-1]["finished"])
            messages = [self._message(event) for event in events]
            state = (self._session.status, self._session.waiting_on)
            if state != sent_state and not finished:
                sent_state = state
                messages.append(sse.message({"status": state[0], "waiting_on": state[1]}, name="status"))
            if messages:
                last_sent_at = time.monotonic()
                yield b"".join(messages)
            elif time.monotonic() - last_sent_at >= sse.KEEP_ALIVE_SECONDS:
                last_sent_at = time.monotonic()
                yield sse.keep_alive()
            if finished:
                return
            await asyncio.sleep(POLL_SECONDS if self._session.status in AT_WORK else IDLE_POLL_SECONDS)

    def _read(self) -> list[dict[str, Any]]:
        try:
            return stream_events(self._session, after=self._after)
        finally:
            close_old_connections()  # a stream holds no connection between two reads

    def _message(self, event: dict[str, Any]) -> bytes:
        self._after = event["id"]
        if not event["finished"]:
            return sse.message({"text": event["text"]}, name="text", number=str(event["id"]))
        end = {"status": self._session.status, "reason": self._session.terminal_reason}
        return sse.message(end, name="finished", number=f"{event['id']}{END}")


class StreamQuery(Body):
    after = CountField(
        max_value=sse.LARGEST_ID, default=0, help_text="Only events after this id; 0: all stored events."
    )


class SessionStreamView(sse.StreamView):
    @describe(
        "sessions_stream",
        {(200, "text/event-stream"): OpenApiTypes.STR, 204: None},
        parameters=[StreamQuery, sse.LAST_EVENT_ID],
    )
    def get(self, request: Request, id: UUID) -> Response:  # noqa: A002 as in the URL
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
        return sse.StreamResponse(SessionStream(session, after=after if last is None else last))


session_stream = sse.stream_view(SessionStreamView)


# --- The activity of agents ---


class AgentEventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Increases from event to event.")
    kind = serializers.ChoiceField(choices=EventKind.choices)
    agent = serializers.UUIDField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    text = serializers.CharField(help_text="A sentence for people.")
    data = serializers.DictField()  # type: ignore[assignment]  # a field, not the serializer's
    created_at = serializers.DateTimeField()

    def to_representation(self, event: Any) -> dict[str, Any]:
        return event_facts(event)


@extend_schema_field(OpenApiTypes.INT64)
class IdFilter(django_filters.Filter):  # type: ignore[misc]  # django-filter ships no types
    field_class = forms.IntegerField


class AgentEventFilter(FilterSet):
    agent = public_id_filter("agent")
    session = public_id_filter("session")
    kind = django_filters.MultipleChoiceFilter(choices=EventKind.choices)
    after = IdFilter(
        field_name="id", lookup_expr="gt", min_value=0, max_value=sse.LARGEST_ID, label="Only events after this id."
    )


class CursorPagination(PagePagination):
    """The next page starts after the last event of this one, so that deleted events shift nothing."""

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        if response.data["next"] is not None:
            response.data["next"] = replace_query_param(remove_query_param(self.url, "page"), "after", data[-1]["id"])
        return response


class AgentEventViewSet(BaseView, viewsets.GenericViewSet[AgentEvent]):
    """Activity of your agents and sessions, oldest first. Poll with `after` for newer events."""

    queryset = AgentEvent.objects.none()
    serializer_class = AgentEventSerializer
    filterset_class = AgentEventFilter
    pagination_class = CursorPagination

    def get_queryset(self) -> QuerySet[AgentEvent]:
        return events_between(0, horizon.wait(), owner_ids=[self.user.pk])

    @describe("agent_events_list", AgentEventSerializer(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(AgentEventSerializer(rows, many=True).data)


class ActivityStream(sse.OpenStream):
    """One open stream: stored events after the id that the client names, then new ones."""

    def __init__(self, owner_id: int, *, agent: Agent | None, after: int | None) -> None:
        super().__init__(owner_id)
        self._agent_id = agent.pk if agent else None
        self._after = after

    async def events(self) -> AsyncGenerator[bytes, None]:
        deadline = time.monotonic() + sse.LIFETIME_SECONDS
        listener = Listener(self.owner_id, self._agent_id)
        try:
            position = await reader.join(listener)
            after = position if self._after is None else await in_thread(_start, self._after, position)
            yield sse.opening(number=str(after))
            while after < position:
                messages, after = await in_thread(self._stored, after, position)
                if messages:
                    yield messages
            while time.monotonic() < deadline and not listener.is_finished:
                after, messages = await self._next(listener, after)
                if messages:
                    yield messages
        finally:
            reader.leave(listener)

    def _stored(self, after: int, until: int) -> tuple[bytes, int]:
        """The next stored events as messages, and the id up to which they are complete."""
        events = events_between(after, until, owner_ids=[self.owner_id])
        if self._agent_id is not None:
            events = events.filter(agent_id=self._agent_id)
        rows = list(events[: sse.READ_LIMIT])
        is_all = len(rows) < sse.READ_LIMIT
        return b"".join(map(event_message, rows)), until if is_all else rows[-1].pk

    async def _next(self, listener: Listener, after: int) -> tuple[int, bytes]:
        """New messages with the id of the last one; or, after a quiet time, a keep-alive."""
        received = await listener.receive(sse.KEEP_ALIVE_SECONDS)
        if not received and not listener.is_cut:
            # Everything before the reader's position was sent, or is not for this client.
            reached = max(after, reader.position)
            return reached, sse.keep_alive(number=str(reached))
        fresh = [(number, message) for number, message in received if number > after]
        return max([after, *(number for number, _ in fresh)]), b"".join(message for _, message in fresh)


def _start(after: int, position: int) -> int:
    """The id to start after. An id ahead of all events, after a restored backup, starts with new events."""
    newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
    return after if after <= max(newest, position) else position


class AgentEventsQuery(Body):
    agent = OwnedRowField(Agent, required=False, help_text="Only this agent.")
    after = CountField(
        max_value=sse.LARGEST_ID,
        required=False,
        help_text="Start after this id; 0: with all stored events. Default: only new events.",
    )


class AgentEventStreamView(sse.StreamView):
    @describe(
        "agent_events_stream",
        {(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[AgentEventsQuery, sse.LAST_EVENT_ID],
    )
    def get(self, request: Request) -> Response:
        """Activity of your agents and sessions as it happens. Each event has the JSON and the id of the list.

        A connection lasts five minutes, and a client that reads too slowly is disconnected: reconnect with the id of
        the last event, as browsers do. No stored event is then missed or sent twice. An id ahead of all events (the
        database was restored from a backup) starts with new events.
        """
        data = self.query(AgentEventsQuery)
        last = sse.last_event_id(request)
        if last is None and request.headers.get("Last-Event-ID"):
            raise ParseError("Last-Event-ID must be the id of an event, a whole number.")
        after = data.get("after") if last is None else last
        return sse.StreamResponse(ActivityStream(self.user.pk, agent=data.get("agent"), after=after))


agent_events_stream = sse.stream_view(AgentEventStreamView)
