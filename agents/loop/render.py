"""What a turn is shown: the alerts on top, then the hot state. Data in marked blocks, which instruct in nothing. Pure.

A field is `name: value`, with `(stale: 45s ago)` behind it when it is older than its time to live. Both blocks together
stay within a quarter of the model's context window: values are cut, with a mark, and alerts that find no room wait for
a later turn.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agents.policy.context_window import CHARS_PER_TOKEN
from agents.text.blocks import render_block

SHARE: Final = 4  # the blocks may be this part of the window
UNKNOWN_WINDOW_CHARS: Final = 32_000  # where no window is set
LEAST_CHARS: Final = 600  # what the marks of two blocks and a few words need
ALERT_CHARS: Final = 1_000
MARK: Final = "…[cut]"
NOT_LOADED: Final = "(not yet loaded)"
MINUTE, HOUR = 60, 3_600
_FRAME: Final = 200  # more than the marks around a block


class Field(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def age_seconds(self) -> int | None: ...
    @property
    def stale(self) -> bool: ...


class Alert(Protocol):
    @property
    def pk(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def source_name(self) -> str: ...


@dataclass(frozen=True)
class View:
    """What is sent, and which of the alerts it holds."""

    text: str
    alerts: tuple[int, ...]


def render(fields: Sequence[Field], alerts: Sequence[Alert], *, window: int, nonce: str) -> View:
    """`window` is the context window in tokens; 0 is one of unknown size."""
    room = room_in(window)
    told, shown = _alerts(alerts, room // 2 - _FRAME)
    blocks = [render_block("alerts", told, nonce=nonce)] if shown else []
    if fields:
        left = room - sum(map(len, blocks)) - _FRAME
        blocks.append(render_block("hot_state", hot_lines(fields, most=left), nonce=nonce))
    return View("\n".join(blocks), shown)


def room_in(window: int) -> int:
    """The characters that both blocks together may take."""
    return max(window * CHARS_PER_TOKEN // SHARE, LEAST_CHARS) if window else UNKNOWN_WINDOW_CHARS


def ago(seconds: int) -> str:
    """Truncated: 125 seconds are 2m."""
    if seconds < MINUTE:
        return f"{seconds}s"
    return f"{seconds // MINUTE}m" if seconds < HOUR else f"{seconds // HOUR}h"


def hot_lines(fields: Sequence[Field], *, most: int) -> str:
    """One line for each field, of at most so many characters together."""
    values = [NOT_LOADED if one.age_seconds is None else shown(one.value) for one in fields]
    suffixes = [
        f" (stale: {ago(one.age_seconds)} ago)" if one.stale and one.age_seconds is not None else "" for one in fields
    ]
    around = sum(len(one.name) + len(suffix) + 3 for one, suffix in zip(fields, suffixes, strict=True))
    limit = _level([len(value) for value in values], most - around)
    lines = zip(fields, values, suffixes, strict=True)
    return cut("\n".join(f"{one.name}: {cut(value, limit)}{suffix}" for one, value, suffix in lines), most)


def shown(value: Any) -> str:
    """As JSON on one line: no text can pass for the next field."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - len(MARK)]}{MARK}" if most > len(MARK) else MARK[: max(most, 0)]


def _level(lengths: Sequence[int], room: int) -> int:
    """The length to which values are cut so that they fit; short ones leave their room to the long ones."""
    left = sorted(lengths)
    while left:
        share = room // len(left)
        if left[0] > share:
            return max(share, len(MARK))
        room -= left.pop(0)
    return max(lengths, default=0)


def _alerts(alerts: Sequence[Alert], most: int) -> tuple[str, tuple[int, ...]]:
    """Lines for the oldest that fit; the first one always does."""
    lines: list[str] = []
    pks: list[int] = []
    for alert in alerts:
        source = f" ({alert.source_name})" if alert.source_name else ""
        line = cut(f"! {alert.name}{source}: {shown(cut(alert.text, ALERT_CHARS))}", most)
        if lines and sum(map(len, lines)) + len(lines) + len(line) > most:
            break
        lines.append(line)
        pks.append(alert.pk)
    return "\n".join(lines), tuple(pks)
