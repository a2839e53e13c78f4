"""Turns the bytes of a document into text and marks, whatever its kind (agents.text.formats.kinds).

The same bytes always give the same text. Whatever the bytes are, the result is a text within its limits or `Invalid`,
which says what to do. Line ends are made alike here, once, so that every stored offset is an offset into the stored
text. All kinds but plain text and Markdown are read in a subprocess; that part must not import anything that needs
settings.
"""

import json
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.exceptions import Invalid
from agents.text.formats.decoding import decode
from agents.text.formats.kinds import Kind, kind_of
from agents.text.formats.limits import (
    MAX_BYTES,
    MAX_CHARS,
    MAX_MEMORY_BYTES,
    MAX_READERS,
    MAX_SECONDS,
    MAX_WAIT_SECONDS,
)
from agents.text.formats.readers import read_parts
from agents.text.marks import Mark, join_parts, normalise_text, too_long

_READ_HERE = {Kind.TEXT, Kind.MARKDOWN}


@dataclass(frozen=True)
class Extracted:
    text: str
    media_type: str
    marks: list[Mark] = field(default_factory=list)


def extract(data: bytes, *, name: str = "", media_type: str = "") -> Extracted:
    if not data:
        raise Invalid("It is empty: 0 bytes. Choose a file with content.")
    if len(data) > MAX_BYTES:
        raise Invalid(f"It is longer than {MAX_BYTES:,} bytes, the most that is read. Split it.")
    kind = kind_of(data, name=name, media_type=media_type)
    text, marks = (decode(data), []) if kind in _READ_HERE else read_in_subprocess(data, kind)
    text = normalise_text(text)
    if len(text) > MAX_CHARS:
        raise Invalid(too_long())
    if not text.strip():
        raise Invalid("It holds no text. Choose a file with content.")
    return Extracted(text, kind.media_type, marks)


# --- The subprocess ---
#
# The parsers were written for documents, not for attacks: some bytes make them loop, recurse or grow without end, and
# no check beforehand finds them all. A process can be ended; a thread cannot. It gets the bytes and nothing else: no
# settings, no secrets of the environment. Few run at once, so that memory stays bounded.


_ROOT = Path(__file__).resolve().parents[2]
# The readers need no database, and importing Django's layer for it takes longer than most documents do.
_START = "from agents.text.no_database import stand_in; stand_in(); from agents.text.extraction import main; main()"
_slots = threading.BoundedSemaphore(MAX_READERS)


def read_in_subprocess(data: bytes, kind: Kind) -> tuple[str, list[Mark]]:
    if not _slots.acquire(timeout=MAX_WAIT_SECONDS):
        raise Invalid(f"Other documents have been read for {MAX_WAIT_SECONDS} seconds. Add this one again later.")
    try:
        return _run_reader(data, kind)
    finally:
        _slots.release()


def _run_reader(data: bytes, kind: Kind) -> tuple[str, list[Mark]]:
    seconds = MAX_SECONDS[kind]
    search_path = os.pathsep.join([str(_ROOT), *(place for place in sys.path if place)])
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter and module; the bytes go in as input
            [sys.executable, "-P", "-B", "-c", _START, kind],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": search_path, "PATH": os.defpath},
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"Reading it as {kind.label} took longer than {seconds} seconds. Split it, or save it as text."
        ) from None
    if done.returncode != 0:
        raise Invalid(_unreadable(kind))
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    return str(answer["text"]), [(int(start), str(label)) for start, label in answer["marks"]]


def _unreadable(kind: Kind) -> str:
    return (
        f"It could not be read as {kind.label}: it is damaged, or needs more time or memory than it is given. "
        "Save it again, or as text."
    )


def answer(kind: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object that the subprocess writes."""
    try:
        text, marks = join_parts(read_parts(Kind(kind), data))
    except Invalid as refusal:
        return {"refused": str(refusal)}
    except (MemoryError, RecursionError):
        return {"refused": _unreadable(Kind(kind))}
    except Exception as error:  # noqa: BLE001 whatever a parser raises, the document is at fault
        name = type(error).__name__
        label = Kind(kind).label
        return {"refused": f"It could not be read as {label}: it is damaged ({name}). Save it again, or as text."}
    return {"text": text, "marks": marks}


def _limit_process(kind: str) -> None:
    """Set limits that the operating system enforces, whatever a parser does."""
    limits = {
        resource.RLIMIT_CPU: MAX_SECONDS[kind],
        resource.RLIMIT_AS: MAX_MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,  # it writes no file
    }
    for limit, most in limits.items():
        with suppress(ValueError, OSError):  # a system without this limit has the others, and the timeout
            resource.setrlimit(limit, (most, most))


def main() -> None:
    """Run in the subprocess: read bytes from standard input, write one JSON object."""
    kind = sys.argv[1]
    _limit_process(kind)
    found = answer(kind, sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(found))
