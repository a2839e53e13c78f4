"""Redacted texts of exceptions: the message with its causes, and the traceback.

Owns the bounds: so many exceptions, so many characters. Never raises, even if an exception cannot be printed. Text is
redacted before it is cut, so that a cut cannot bare half a credential.
"""

import traceback
from collections.abc import Iterator

from audit.redaction.redactor import redact

EXCEPTIONS = 32
MESSAGE_LENGTH = 4_000
TRACEBACK_LENGTH = 64_000
# Read before redaction; far beyond what is kept, so that its own cut never shows.
_READ_LENGTH = 200_000


def _printed(value: object) -> str:
    try:
        return str(value)[:_READ_LENGTH]
    except Exception:  # noqa: BLE001 - an exception that cannot be printed must not hide the one being reported
        return "<unprintable>"


def _one(error: BaseException) -> str:
    lines = [f"{type(error).__name__}: {_printed(error)}"]
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list):
        lines += (f"note: {_printed(note)}" for note in notes[:EXCEPTIONS])
    return redact("\n".join(lines))[:MESSAGE_LENGTH]


def _related(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:EXCEPTIONS]:
            yield "member", member
    if error.__cause__ is not None:
        yield "caused by", error.__cause__
    elif error.__context__ is not None:
        yield "while handling", error.__context__


def redact_exception(error: BaseException) -> str:
    """`Type: message` of the exception, then of its members, causes and contexts, one under the other."""
    texts: list[str] = []
    seen: set[int] = set()
    pending = [("", error)]
    while pending and len(texts) < EXCEPTIONS:
        relation, current = pending.pop(0)
        if id(current) not in seen:
            seen.add(id(current))
            texts.append(f"{relation} {_one(current)}".lstrip())
            pending += _related(current)
    return "\n".join(texts)


def redact_traceback(error: BaseException) -> str:
    """The traceback with its chain, redacted; if it cannot be printed, the messages alone."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - see _printed
        return redact_exception(error)
    # The last lines name the error: a long traceback is cut at its beginning.
    return redact(text[-_READ_LENGTH:])[-TRACEBACK_LENGTH:]
