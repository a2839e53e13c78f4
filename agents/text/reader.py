"""The process that reads one document: bytes come in, one JSON object goes out.

agents/text/apart.py starts it. It must not import anything that needs settings.
"""

import json
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from agents.exceptions import Invalid
from agents.text.decoding import decoded
from agents.text.kinds import Kind
from agents.text.limits import MAX_MEMORY_BYTES, MAX_SECONDS


def _html(data: bytes) -> str:
    from agents.text.formats import visible_text  # each reader pays for its own libraries only

    return visible_text(decoded(data))


def _pdf(data: bytes) -> str:
    from agents.text.pdf import pdf_text

    return pdf_text(data)


def _docx(data: bytes) -> str:
    from agents.text.archives import check_markup
    from agents.text.word import docx_text

    check_markup(data)
    return docx_text(data)


_READERS: Mapping[str, Callable[[bytes], str]] = MappingProxyType(
    {Kind.HTML: _html, Kind.PDF: _pdf, Kind.DOCX: _docx},
)


def answer(kind: str, data: bytes) -> dict[str, str]:
    try:
        return {"text": _READERS[kind](data)}
    except Invalid as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # noqa: BLE001 whatever a parser raises, the document is what is wrong
        named = type(error).__name__
        return {"refused": f"The document could not be read as {kind.upper()} ({named}). Save it anew, or as text."}


def _bound(kind: str) -> None:
    """Limits that the system holds even when a parser is beyond listening."""
    limits = {
        resource.RLIMIT_CPU: MAX_SECONDS[kind],
        resource.RLIMIT_AS: MAX_MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,  # it has nothing to write to a file
    }
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # a system that does not know this one has the others, and the time limit
            resource.setrlimit(limit, (most, most))


def main() -> None:
    kind = sys.argv[1]
    _bound(kind)
    found = answer(kind, sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(found))
