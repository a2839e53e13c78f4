"""Watch: a file or a folder. What has changed is found by looking, at the start of every slice and after every hint.

The cursor holds what was there, by content, so nothing that changed while nobody looked is missed, and nothing is told
twice. A reading is the list of the latest changes, the newest first.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from agents.conf import clock, sensor_roots
from agents.sensors.scan import MOST_TOLD, NotLookedAt, Snapshot, changes, present, scan, told
from agents.sensors.sensing import Failed, Sensing
from audit.rows import canonical

QUIET_SECONDS: Final = 0.5  # after a change, before a look; `interval` makes it longer
LONGEST_UNQUIET: Final = 5.0  # a folder that is never quiet is looked at all the same
MISSING_SECONDS: Final = 10.0
NAME_CHARS: Final = 200


class Watch(Sensing):
    pause: ClassVar[float] = 5.0

    async def run(self) -> None:
        hint = asyncio.Event()
        wait: float | None = self.seconds_until_due() if self.failures else 0.0
        try:
            while wait is not None:
                await self._until_hint(hint, wait)
                hint.clear()
                wait = await self._look(hint)
        finally:
            self.desk.hints.leave(hint)

    async def _look(self, hint: asyncio.Event) -> float | None:
        """Seconds until the next look, unless there is a hint; below 0: only at a hint. None when it is all over."""
        try:
            found = await self._scanned()
        except Failed as error:
            return await self.fail(str(error))
        self.desk.hints.listen(hint, found.folders or (() if found.missing else [self._folder()]))
        news = changes(self.cursor, found)
        first = "files" not in self.cursor
        moved = found.missing != self.cursor.get("missing", False) or self.cursor.get("loop") != self.loop_pk
        if (news or first or moved) and not await self._tell(found, news, first=first):
            return None
        return MISSING_SECONDS * self.desk.second if found.missing else -1.0

    async def _tell(self, found: Snapshot, news: list[dict[str, Any]], *, first: bool) -> bool:
        at = clock().isoformat(timespec="seconds")
        shown = told(present(found) if first else news)
        fresh = [{**one, "name": one["name"][-NAME_CHARS:], "at": at, **_text(found, one)} for one in shown]
        recent = [*fresh, *self.cursor.get("recent", [])][:MOST_TOLD]
        happening = self.happening(canonical([[one["name"], one["kind"], self._stamp(found, one)] for one in news]))
        self.cursor = {
            "files": {name: list(known) for name, known in found.files.items()},
            "recent": [{key: value for key, value in one.items() if key != "text"} for one in recent],
            "loop": self.loop_pk,
            "missing": found.missing,
            **({"whole": found.whole} if found.whole else {}),
        }
        problem = "there is nothing at the path now" if found.missing else ""
        judged = [] if first else [{key: value for key, value in one.items() if key != "at"} for one in fresh[::-1]]
        return await self.tell([recent], judged=judged, happening=happening, problem=problem)

    def _stamp(self, found: Snapshot, one: Mapping[str, Any]) -> str:
        """What tells a change from one like it at another time: the file as it is, or as it was before it went."""
        known = found.files.get(one["name"]) or (self.cursor.get("files") or {}).get(one["name"])
        return str(known[1]) if known else found.whole

    def all_there_is(self) -> tuple[Any, ...]:
        return (self.cursor.get("recent", []),)

    async def _scanned(self) -> Snapshot:
        path, before = str(self.spec.source.path), self.cursor.get("files") or {}
        look = partial(scan, path, sensor_roots(), before)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.desk.files, look)
        except NotLookedAt as error:
            raise Failed(f"{path}: {error}") from None

    def _folder(self) -> str:
        """The folder that a single file is in, as the system names it."""
        path = Path(str(self.spec.source.path))
        return str((path if path.is_absolute() else sensor_roots()[0] / path).parent)

    async def _until_hint(self, hint: asyncio.Event, wait: float) -> None:
        """Waits for a hint, or for as long as said; after a hint, until the folder is quiet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait >= 0 else None):
                await hint.wait()
        if not hint.is_set():
            return
        quiet = float(self.spec.interval or QUIET_SECONDS) * self.desk.second
        latest = monotonic() + max(LONGEST_UNQUIET * self.desk.second, quiet)
        while hint.is_set() and monotonic() < latest:
            hint.clear()
            await asyncio.sleep(quiet)


def _text(found: Snapshot, one: Mapping[str, Any]) -> dict[str, str]:
    """The content of a single small file of text, as part of its change."""
    return {"text": found.text} if found.text is not None and one["kind"] != "deleted" else {}
