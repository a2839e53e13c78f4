"""Text on its way to whoever watches: redacted pieces, kept until the run is over. The transcript is the record."""

import time
from types import TracebackType
from typing import Any, Final, Self

from agents.conf import clock
from agents.models import AgentSession, StreamPart
from agents.policy.transitions import TERMINAL

EVERY_SECONDS: Final = 0.2
MOST_CHARS: Final = 2_000
MOST_PARTS: Final = 500


class Stream:
    """Collects pieces and writes them down a few times a second."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._held: list[str] = []
        self._wrote_at = 0.0
        self._gap = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def hear(self, chunk: Any) -> None:
        """A piece of a reply. What a later reply, or another attempt at this one, says begins a new paragraph."""
        if chunk.text:
            self._held.append(f"{self._gap}{chunk.text}")
            self._gap = ""
        enough = sum(map(len, self._held)) >= MOST_CHARS or time.monotonic() - self._wrote_at >= EVERY_SECONDS
        if chunk.finished or enough:
            self._write()
        if chunk.finished:
            self._gap = "\n\n"

    def _write(self) -> None:
        text, self._held = "".join(self._held), []
        self._wrote_at = time.monotonic()
        if text:
            StreamPart.objects.create(session=self._session, text=text, created_at=clock())


def stream_events(session: AgentSession, *, after: int = 0) -> list[dict[str, Any]]:
    """What came in since then. Of a run that is over, the last event, and only that, is `finished`.

    How the run stands is read first, and left on the session: when it is over by then, all its pieces are there.
    """
    session.refresh_from_db(fields=["status", "waiting_on", "terminal_reason"])
    parts = StreamPart.objects.filter(session=session, pk__gt=after).order_by("pk")[:MOST_PARTS]
    events: list[dict[str, Any]] = [{"id": part.pk, "text": part.text, "finished": False} for part in parts]
    if session.status in TERMINAL and len(events) < MOST_PARTS:
        last = events[-1]["id"] if events else after
        events.append({"id": last, "text": "", "finished": True})
    return events
