"""What an agent writes, while it writes it: Server-Sent Events for the owner of a run.

Each client gets exactly one `finished`, also one that comes when all is over.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import sse
from agents.api.fields import Body, CountField
from agents.api.schema import described
from agents.ask.chats import stream_events
from agents.enums import Status
from agents.models import AgentSession
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
                said.append(sse.event({"status": standing[0], "waiting_on": standing[1]}, name="status"))
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
            return sse.event({"text": event["text"]}, name="text", number=str(event["id"]))
        ended = {"status": self._session.status, "reason": self._session.terminal_reason}
        return sse.event(ended, name="finished", number=f"{event['id']}{END}")


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


stream = sse.stream_behind(Stream)
