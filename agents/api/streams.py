"""What an agent writes, while it writes it: Server-Sent Events for the owner of a run.

Each client gets exactly one `finished`, also one that comes when all is over.
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
from agents.api.base import Acting
from agents.api.fields import Body, CountField, OwnRow
from agents.api.paging import Pages, public_id
from agents.api.schema import described
from agents.api.sse import Listener, event_bytes, event_shown, in_thread, reader
from agents.ask.chats import stream_events
from agents.enums import EventKind, Status
from agents.models import Agent, AgentEvent, AgentSession
from agents.people.activity import events_between, horizon
from agents.process_end import process_ends

LOOK_EVERY_SECONDS: Final = 0.4
REST_SECONDS: Final = 2.0  # between looks at a run that is not being worked on
END: Final = ".end"  # what the id of `finished` ends with
AT_WORK: Final = frozenset({Status.QUEUED, Status.RUNNING})


class Watch(sse.OpenStream):
    """One open stream of a session."""

    def __init__(self, session: AgentSession, *, after: int) -> None:
        super().__init__(session.owner_id)
        self._session, self._after = session, after

    async def events(self) -> AsyncGenerator[bytes, None]:
        yield sse.opening()
        over_at = time.monotonic() + sse.LIFETIME_SECONDS
        quiet_since, standing = time.monotonic(), ("", "")
        while time.monotonic() < over_at and not process_ends.is_set():
            try:
                events = await sync_to_async(self._look)()
            except DatabaseError:
                return  # the client comes again, and goes on after the last piece that it has heard
            said = [self._told(event) for event in events]
            now_stands = (self._session.status, self._session.waiting_on)
            if now_stands != standing and not (events and events[-1]["finished"]):
                standing = now_stands
                said.append(sse.message({"status": standing[0], "waiting_on": standing[1]}, name="status"))
            if said:
                quiet_since = time.monotonic()
                yield b"".join(said)
            elif time.monotonic() - quiet_since >= sse.KEEP_ALIVE_SECONDS:
                quiet_since = time.monotonic()
                yield sse.still_here()
            if events and events[-1]["finished"]:
                return
            await asyncio.sleep(LOOK_EVERY_SECONDS if self._session.status in AT_WORK else REST_SECONDS)

    def _look(self) -> list[dict[str, Any]]:
        try:
            return stream_events(self._session, after=self._after)
        finally:
            close_old_connections()  # a stream holds no connection between two looks

    def _told(self, event: dict[str, Any]) -> bytes:
        self._after = event["id"]
        if not event["finished"]:
            return sse.message({"text": event["text"]}, name="text", number=str(event["id"]))
        ended = {"status": self._session.status, "reason": self._session.terminal_reason}
        return sse.message(ended, name="finished", number=f"{event['id']}{END}")


class StreamQuery(Body):
    after = CountField(
        max_value=sse.LARGEST_ID, default=0, help_text="Only what came after the event of this id; 0: all that is kept."
    )


class Stream(sse.Door):
    """The door of a stream."""

    @described(
        "sessions_stream",
        {(200, "text/event-stream"): OpenApiTypes.STR, 204: None},
        parameters=[StreamQuery, sse.HEARD],
    )
    def get(self, request: Request, id: UUID) -> Response:  # noqa: A002 as the address has it
        """What is being written in the session: `text` events, `status` when it changes, and one `finished` at the end.

        The pieces are kept while the run goes on; afterwards the transcript has the words. A connection lives for five
        minutes: come again with the id of the last event, as browsers do by themselves. Who has heard `finished`, and
        comes again, is answered with 204.
        """
        session = get_object_or_404(AgentSession, public_id=id, owner_id=self.person.pk)
        after = self.query(StreamQuery)["after"]
        if request.headers.get("Last-Event-ID", "").endswith(END):
            return Response(status=204)
        heard = sse.heard_id(request)
        return sse.Admitted(Watch(session, after=after if heard is None else heard))


session_stream = sse.stream_behind(Stream)


# What happens in and around agents, for those who watch: a list to page through, and a stream of what comes.
#
# Both hand events out in the order of their ids, and none that could still be preceded by another. The record is the
# audit, not this: of each agent the newest events are kept.


class AgentEventShown(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Rises from one event to the next.")
    kind = serializers.ChoiceField(choices=EventKind.choices)
    agent = serializers.UUIDField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    text = serializers.CharField(help_text="A sentence for people.")
    data = serializers.DictField()  # type: ignore[assignment]  # the event's, not the serializer's
    created_at = serializers.DateTimeField()

    def to_representation(self, event: Any) -> dict[str, Any]:
        return event_shown(event)


@extend_schema_field(OpenApiTypes.INT64)
class IdFilter(django_filters.Filter):  # type: ignore[misc]  # django-filter ships no types
    field_class = forms.IntegerField


class AgentEventFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    agent = public_id("agent", "The id of an agent.")
    session = public_id("session", "The id of a session.")
    kind = django_filters.MultipleChoiceFilter(choices=EventKind.choices)
    after = IdFilter(
        field_name="id", lookup_expr="gt", min_value=0, max_value=sse.LARGEST_ID, label="Only what came after this id."
    )


class OnwardPages(Pages):
    """The next page begins behind the last event of this one: events that are forgotten meanwhile move nothing."""

    def get_paginated_response(self, data: Any) -> Response:
        answer = super().get_paginated_response(data)
        if answer.data["next"] is not None:
            answer.data["next"] = replace_query_param(remove_query_param(self.url, "page"), "after", data[-1]["id"])
        return answer


class AgentEvents(Acting, viewsets.GenericViewSet[AgentEvent]):
    """What your agents and sessions told, the oldest first. Ask again with `after` to hear what came since."""

    queryset = AgentEvent.objects.none()
    serializer_class = AgentEventShown
    filterset_class = AgentEventFilter
    pagination_class = OnwardPages

    def get_queryset(self) -> QuerySet[AgentEvent]:
        return events_between(0, horizon.wait(), owner_ids=[self.person.pk])

    @described("agent_events_list", AgentEventShown(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(AgentEventShown(rows, many=True).data)


class Happenings(sse.OpenStream):
    """One open stream: what is stored behind the id that the client names, then what comes."""

    def __init__(self, owner_id: int, *, agent: Agent | None, after: int | None) -> None:
        super().__init__(owner_id)
        self._agent_id = agent.pk if agent else None
        self._after = after

    async def events(self) -> AsyncGenerator[bytes, None]:
        over_at = time.monotonic() + sse.LIFETIME_SECONDS
        listener = Listener(self.owner_id, self._agent_id)
        try:
            position = await reader.join(listener)
            after = position if self._after is None else await in_thread(_given_out, self._after, position)
            yield sse.opening(number=str(after))
            while after < position:
                said, after = await in_thread(self._stored, after, position)
                if said:
                    yield said
            while time.monotonic() < over_at and not listener.has_heard_all:
                after, said = await self._next(listener, after)
                if said:
                    yield said
        finally:
            reader.leave(listener)

    def _stored(self, after: int, until: int) -> tuple[bytes, int]:
        """Some of what is stored, ready to be sent, and how far that is."""
        found = events_between(after, until, owner_ids=[self.owner_id])
        if self._agent_id is not None:
            found = found.filter(agent_id=self._agent_id)
        rows = list(found[: sse.READ_AT_ONCE])
        is_all = len(rows) < sse.READ_AT_ONCE
        return b"".join(map(event_bytes, rows)), until if is_all else rows[-1].pk

    async def _next(self, listener: Listener, after: int) -> tuple[int, bytes]:
        """What waits, with the id of the last; or, when nothing has come for a while, a sign of life."""
        waiting = await listener.heard(sse.KEEP_ALIVE_SECONDS)
        if not waiting and not listener.is_cut:
            # Whatever stands before the reader's place was heard, or is not for this client.
            reached = max(after, reader.position)
            return reached, sse.still_here(number=str(reached))
        fresh = [(number, told) for number, told in waiting if number > after]
        return max([after, *(number for number, _ in fresh)]), b"".join(told for _, told in fresh)


def _given_out(after: int, position: int) -> int:
    """Behind that id; or, if no event here ever had it, for the database is an older copy, with what comes."""
    newest = AgentEvent.objects.aggregate(newest=Max("id"))["newest"] or 0
    return after if after <= max(newest, position) else position


class AgentEventsQuery(Body):
    agent = OwnRow(Agent, required=False, help_text="Only of this agent of yours.")
    after = CountField(
        max_value=sse.LARGEST_ID,
        required=False,
        help_text="Begins behind the event of this id; 0: with all that is kept. Without it: with what comes.",
    )


class AgentEventStream(sse.Door):
    """The door of the stream of events."""

    @described(
        "agent_events_stream",
        {(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[AgentEventsQuery, sse.HEARD],
    )
    def get(self, request: Request) -> Response:
        """What your agents and sessions tell, as it happens; each event is the JSON that the list has, under its id.

        A connection lives for five minutes, and a client that does not keep up is cut off: come again with the id of
        the last event, as browsers do by themselves, and nothing is missed that is still kept, and nothing said twice.
        An id that is ahead of all events (the database was restored from an older copy) begins with what comes.
        """
        said = self.query(AgentEventsQuery)
        heard = sse.heard_id(request)
        if heard is None and request.headers.get("Last-Event-ID"):
            raise ParseError("Last-Event-ID is the id of an event, a whole number.")
        after = said.get("after") if heard is None else heard
        return sse.Admitted(Happenings(self.person.pk, agent=said.get("agent"), after=after))


agent_events_stream = sse.stream_behind(AgentEventStream)
