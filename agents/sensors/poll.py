"""Poll: an address or a tool, looked at by a fixed pace. What has not changed is not fetched, or not judged, again."""

import asyncio
import hashlib
import json
from time import monotonic
from typing import Any, Final

from agents.enums import Outcome
from agents.net import FetchFailed, Limits, SafeResponse, UrlRefused
from agents.net.transport import MEBIBYTE
from agents.sensors.rows import Held
from agents.sensors.sensing import Desk, Failed, Sensing
from agents.sensors.signals import Unable, next_due

LIMITS: Final = Limits(deadline=15.0, max_bytes=MEBIBYTE)
NOT_MODIFIED: Final = 304
OK: Final = range(200, 300)
TAG_CHARS: Final = 256


class Poll(Sensing):
    def __init__(self, held: Held, desk: Desk) -> None:
        super().__init__(held, desk)
        self._calls = 0

    async def run(self) -> None:
        interval = self.interval * self.desk.second
        due = monotonic() + self.seconds_until_due()
        while True:
            await asyncio.sleep(due - monotonic())
            with self.at_it():
                try:
                    payload, mark = await (self._fetched() if self.spec.source.url else self._called())
                except Failed as error:
                    failed = monotonic()
                    wait = await self.fail(str(error))
                    mine, due = wait is not None, failed + (wait or 0)
                else:
                    due = next_due(due, monotonic(), interval)
                    mine = await self._told(payload, mark, due)
            if not mine:
                return

    async def _told(self, payload: Any, mark: str, due: float) -> bool:
        """`mark` tells readings apart: the signals are asked about a reading that is not like the last."""
        if payload is _SAME:
            return await self.tell([], same=True, due=due)
        self.cursor |= {"loop": self.loop_pk}
        return await self.tell([payload], mark=f"{self.loop_pk}:{mark}", happening=self.happening(), due=due)

    # --- An address ---

    async def _fetched(self) -> tuple[Any, str]:
        try:
            async with self.desk.fetches:
                answer = await self.desk.client.get(
                    str(self.spec.source.url), headers=self._conditions(), limits=LIMITS
                )
        except (UrlRefused, FetchFailed) as error:
            raise Failed(str(error)) from None
        if answer.status == NOT_MODIFIED:
            return _SAME, ""
        if answer.status not in OK:
            raise Failed(f"the server answered with status {answer.status}")
        self._keep_tags(answer)
        return read_body(answer), hashlib.sha256(answer.content).hexdigest()[:32]

    def _conditions(self) -> dict[str, str]:
        """What lets a source say that nothing is new; not to be said before this loop has seen what there is."""
        if self.cursor.get("loop") != self.loop_pk or not self.judging.knows_all():
            return {}
        tags = {"If-None-Match": self.cursor.get("etag"), "If-Modified-Since": self.cursor.get("modified")}
        return {name: tag for name, tag in tags.items() if tag}

    def _keep_tags(self, answer: SafeResponse) -> None:
        for name, header in (("etag", "etag"), ("modified", "last-modified")):
            tag = answer.headers.get(header, "")
            fit = len(tag) <= TAG_CHARS and tag.isascii() and tag.isprintable()
            self.cursor[name] = tag if fit else ""

    # --- A tool ---

    async def _called(self) -> tuple[Any, str]:
        key = f"poll:{self.held.pk}:{self.held.fencing}:{self._calls}"
        try:
            result = await self.desk.asking.poll(self.held, self.loop_pk, key)
        except Unable as error:
            self._calls += 1
            raise Failed(str(error)) from None
        if result.outcome == Outcome.APPROVAL_PENDING:  # the same call is asked for again until somebody has decided
            raise Failed("a person has to allow the call first")
        self._calls += 1
        seen = json.dumps(result.data, sort_keys=True, default=str)
        return result.data, hashlib.sha256(seen.encode("utf-8", "replace")).hexdigest()[:32]


_SAME: Final = object()


def read_body(answer: SafeResponse) -> Any:
    """JSON as data, anything else as text. A source that says JSON must send it."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.endswith("json"):
        try:
            return answer.json()
        except FetchFailed as error:
            raise Failed(str(error)) from None
    text = answer.text()
    return read_text(text) if not kind else text


def read_text(text: str) -> Any:
    """A text that is JSON, as data."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
