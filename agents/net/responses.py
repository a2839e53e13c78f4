"""What a fetch hands back: the answer as plain data. It holds no connection."""

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any

from httpx import Headers

from agents.net.errors import FetchFailed

CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
# Encodings of text on the web. Python knows others that take quadratic time, or run escapes.
TEXT_CODECS = ("ascii", "utf-8", "utf-16", "iso8859", "cp125", "cp932", "shift_jis", "euc_", "gb", "big5", "koi8")


@dataclass(frozen=True)
class SafeResponse:
    status: int
    headers: Headers
    content: bytes
    url: str
    redirects: tuple[str, ...] = ()  # the addresses before `url`, in order

    def text(self) -> str:
        return self.content.decode(_codec(self.headers.get("content-type", "")), errors="replace")

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise FetchFailed("json") from None


def _codec(content_type: str) -> str:
    found = CHARSET.search(content_type)
    try:
        name = codecs.lookup(found[1]).name if found else "utf-8"
    except LookupError:
        return "utf-8"
    return name if name.startswith(TEXT_CODECS) else "utf-8"
