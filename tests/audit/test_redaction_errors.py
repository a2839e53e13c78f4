"""Exceptions and log records are written without credentials."""

import io
import logging
import random
import sys

import pytest

from audit.redaction import RedactingFilter, redact_exception, redact_traceback
from audit.redaction.redactor import EXCEPTIONS, MESSAGE_LENGTH
from tests.audit.test_redaction_corpus import VENDORS, made

TOKENS = [made(VENDORS["github-pat"], random.Random(seed)) for seed in range(6)]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class OddTraceback(Exception):
    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("no cause")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def chained() -> BaseException:
    try:
        try:
            raise KeyError(TOKENS[0])
        except KeyError as inner:
            raise ValueError(TOKENS[1]) from inner
    except ValueError:
        try:
            raise RuntimeError(TOKENS[2])
        except RuntimeError as outer:
            outer.add_note(f"seen {TOKENS[3]}")
            return ExceptionGroup(f"group {TOKENS[4]}", [outer, OSError(TOKENS[5])])


def test_covers_cause_context_notes_and_members() -> None:
    text = redact_exception(chained())
    assert not any(token in text for token in TOKENS)
    for part in (
        "ExceptionGroup: group",
        "member RuntimeError:",
        "note: seen",
        "member OSError:",
        "ValueError:",
        "caused by KeyError:",
    ):
        assert part in text


def test_covers_the_same_in_a_traceback() -> None:
    text = redact_traceback(raised(chained()))
    assert not any(token in text for token in TOKENS)
    assert "Traceback" in text
    assert "ExceptionGroup" in text


def test_never_raises() -> None:
    assert redact_exception(Unprintable()) == "Unprintable: <unprintable>"
    assert "Unprintable" in redact_traceback(raised(Unprintable()))


def test_falls_back_to_the_messages_when_a_traceback_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> list[str]:
        raise RuntimeError("no")

    monkeypatch.setattr("audit.redaction.redactor.traceback.format_exception", fail)
    assert redact_traceback(ValueError("x")) == "ValueError: x"


def test_is_bounded() -> None:
    error: BaseException = ValueError("end")
    for number in range(200):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    assert len(redact_exception(error).splitlines()) == EXCEPTIONS
    assert len(redact_exception(ValueError("word " * 100_000))) == MESSAGE_LENGTH
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert redact_exception(first) == "ValueError: a\ncaused by ValueError: b"


def test_cut_does_not_expose_a_credential() -> None:
    text = redact_exception(ValueError("x" * (MESSAGE_LENGTH - 30) + " " + TOKENS[0]))
    assert TOKENS[0][:8] not in text


def test_notes_of_any_type_are_left_out() -> None:
    error = ValueError("x")
    error.__notes__ = "no list"  # type: ignore[assignment]
    assert redact_exception(error) == "ValueError: x"


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.addFilter(RedactingFilter())
    logger = logging.Logger("test")  # noqa: LOG001 - a logger of its own, outside the tree
    logger.addHandler(handler)
    return logger, written


def test_redacts_message_and_arguments(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("calling with %s and password=%s", TOKENS[0], "hunter" + "2x")
    logger.info("map %(a)s", {"a": TOKENS[1]})
    logger.info(f"plain {TOKENS[2]}")  # noqa: G004
    assert "hunter" not in written.getvalue()
    assert not any(token in written.getvalue() for token in TOKENS)
    assert len(written.getvalue().splitlines()) == 3


def test_arguments_cannot_forge_a_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("user %s", "bob\nERROR forged\r\x1b[2K\x00\x85\u2028end")
    assert written.getvalue() == "INFO user bob\\nERROR forged\\r\\x1b[2K\\x00\\x85\\u2028end\n"


def test_wrong_arguments_are_still_written(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("one %s two %s", *TOKENS[:1])
    assert "one %s two %s" in written.getvalue()
    assert TOKENS[0] not in written.getvalue()


def test_redacts_exception_and_stack(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    try:
        raise ValueError(f"bad\nERROR forged {TOKENS[0]}")
    except ValueError:
        logger.exception("failed", stack_info=True)
    text = written.getvalue()
    assert TOKENS[0] not in text
    assert "ValueError: bad" in text
    assert "\nERROR forged" not in text
    assert "Stack (most recent call last)" in text


def test_rewrites_every_part_of_a_record() -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", None, (None, None, None))
    record.exc_text = None
    record.account = f"see {TOKENS[0]}\nforged"
    record.password = "plain"
    record.details = {"token": "plain", "n": [TOKENS[1]]}
    record.number = 5
    assert RedactingFilter().filter(record)
    assert record.exc_info is None
    assert TOKENS[0] not in record.account
    assert "\n" not in record.account
    assert "plain" not in f"{record.password} {record.details}"
    assert TOKENS[1] not in str(record.details)
    assert record.number == 5


def test_redacts_a_formatted_exception_and_is_idempotent() -> None:
    record = logging.makeLogRecord({"msg": "m %s", "args": (TOKENS[0],), "exc_text": f"Error: {TOKENS[1]}"})
    RedactingFilter().filter(record)
    first = dict(vars(record))
    RedactingFilter().filter(record)
    assert dict(vars(record)) == first
    assert TOKENS[0] not in record.getMessage()
    assert TOKENS[1] not in str(record.exc_text)


def test_current_exception_is_redacted(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    try:
        raise OSError(TOKENS[3])
    except OSError:
        logger.warning("x", exc_info=sys.exc_info())
    assert TOKENS[3] not in written.getvalue()
