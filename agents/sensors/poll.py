"""Poll sensors: a URL or a tool, looked at in fixed intervals. What has not changed is not scored again."""

import asyncio
import hashlib
import json
from time import monotonic
from typing import Any, Final

from agents.enums import Outcome
from agents.net import FetchFailed, Limits, SafeResponse, UrlRefused
from agents.net.transport import MEBIBYTE
from agents.sensors.rows import LeasedSensor, safe_text
from agents.sensors.sensing import Failed, Sensing, SensorServices
from agents.sensors.signals import CallFailed

LIMITS: Final = Limits(deadline=15.0, max_bytes=MEBIBYTE)
NOT_MODIFIED: Final = 304
OK: Final = range(200, 300)
TAG_CHARS: Final = 256
MOST_SEEN: Final = 2_000  # items that are no longer listed, and still known
UNCHANGED: Final = object()


class Poll(Sensing):
    def __init__(self, held: LeasedSensor, services: SensorServices) -> None:
        super().__init__(held, services)
        self._calls = 0

    async def run(self) -> None:
        due = monotonic() + self.seconds_until_due()
        while True:
            await asyncio.sleep(due - monotonic())
            with self.working():
                try:
                    payload, digest = await self.look()
                except Failed as error:
                    failed = monotonic()
                    wait = await self.fail(str(error))
                    held, due = wait is not None, failed + (wait or 0)
                else:
                    due = next_due(due, monotonic(), self.interval)
                    held = await self._hand_in_look(payload, digest, due)
            if not held:
                return

    async def look(self) -> tuple[Any, str]:
        """Read the source; return what it shows and a digest of that."""
        return await (self._fetch() if self.spec.source.url else self._call_tool())

    async def sample(self) -> list[Any]:
        return [(await self.look())[0]]

    async def _hand_in_look(self, payload: Any, digest: str, due: float) -> bool:
        if payload is UNCHANGED:
            return await self.hand_in_reading([], unchanged=True, due=due)
        self.cursor |= {"loop": self.loop_pk}
        return await self.hand_in(payload, digest, due)

    async def hand_in(self, payload: Any, digest: str, due: float) -> bool:
        """Hand in what the source shows: as one item, which is not scored again while it stays the same."""
        mark = f"{self.loop_pk}:{digest}"
        return await self.hand_in_reading([payload], mark=mark, occurrence=self.occurrence(), due=due)

    # --- URLs ---

    async def _fetch(self) -> tuple[Any, str]:
        answer = await self.fetch_answer()
        if answer is None:
            return UNCHANGED, ""
        return read_body(answer), hashlib.sha256(answer.content).hexdigest()[:32]

    async def fetch_answer(self) -> SafeResponse | None:
        """Fetch the address; None if it has not changed."""
        asked = await self.request()
        headers = asked.headers | self._conditions()
        try:
            async with self.services.fetches:
                answer = await self.services.client.get(
                    asked.url, headers=headers, secret=asked.secret, stays=asked.stays, limits=LIMITS
                )
        except (UrlRefused, FetchFailed) as error:
            raise Failed(str(error)) from None
        if answer.status == NOT_MODIFIED:
            return None
        if answer.status not in OK:
            raise Failed(f"the server answered with status {answer.status}")
        self._keep_tags(answer)
        return answer

    def _conditions(self) -> dict[str, str]:
        """Return headers that allow a 304; none before this loop and all signals have seen the source."""
        if self.cursor.get("loop") != self.loop_pk or not self.has_last_reading():
            return {}
        tags = {"If-None-Match": self.cursor.get("etag"), "If-Modified-Since": self.cursor.get("modified")}
        return {name: tag for name, tag in tags.items() if tag}

    def _keep_tags(self, answer: SafeResponse) -> None:
        """Keep what allows a 304, unless it repeats a secret: it is stored."""
        for name, header in (("etag", "etag"), ("modified", "last-modified")):
            tag = answer.headers.get(header, "")
            fits = len(tag) <= TAG_CHARS and tag.isascii() and tag.isprintable() and safe_text(tag) == tag
            self.cursor[name] = tag if fits else ""

    # --- Tools ---

    async def _call_tool(self) -> tuple[Any, str]:
        source = self.spec.source
        params = {"skill": source.tool, "arguments": dict(source.params)}
        key = f"poll:{self.held.row.pk}:{self.held.row.fencing}:{self._calls}"
        try:
            result = await self.services.calls.call(self.held, self.loop_pk, key, lambda session: params)
        except CallFailed as error:
            self._calls += 1
            raise Failed(str(error)) from None
        if result.outcome == Outcome.APPROVAL_PENDING:  # the same key again, until somebody has decided
            raise Failed("the call waits for approval")
        self._calls += 1
        if not result.ok:
            raise Failed(result.error or f"the call ended {result.outcome}")
        text = json.dumps(result.data, sort_keys=True, default=str)
        return result.data, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


class ItemPoll(Poll):
    """A poll whose source lists items: each new one is handed in once, by its id."""

    async def sample(self) -> list[Any]:
        return [item for _, item in (await self.look())[0]]

    async def hand_in(self, payload: Any, digest: str, due: float) -> bool:
        """Hand in the items that were not listed before, oldest first. What is there at first is not judged."""
        listed: dict[str, Any] = {item_key(name): item for name, item in payload}
        seen: list[str] = self.cursor.get("seen") or []
        known = set(seen)
        new = [item for key, item in listed.items() if key not in known]
        is_first = "seen" not in self.cursor
        gone = [key for key in seen if key not in listed]
        self.cursor["seen"] = [*gone[-MOST_SEEN:], *listed]
        return await self.hand_in_reading(
            new, to_score=[] if is_first else new, occurrence=self.occurrence(), unchanged=not new, due=due
        )


def item_key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:20]


def next_due(due: float, now: float, interval: float) -> float:
    """Return when to look after a look that was due at `due`: one interval later, at the earliest now."""
    return max(due + interval, now)


def read_body(answer: SafeResponse) -> Any:
    """Return JSON as data and anything else as text. A body that is declared as JSON must be JSON."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.endswith("json"):
        try:
            return answer.json()
        except FetchFailed as error:
            raise Failed(str(error)) from None
    text = answer.text()
    return read_text(text) if not kind else text


def read_text(text: str) -> Any:
    """Return text that is JSON as data."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
