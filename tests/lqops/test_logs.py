"""One log record is one line, with the id of its request, and without what must not be seen."""

import logging

import pytest

from lqops.logs import OneLine
from lqops.middleware import current_request_id


def formatted(message, *args, exc_info=None):
    record = logging.LogRecord("agents.runner", logging.WARNING, __file__, 1, message, args, exc_info)
    record.created, record.msecs = 1_893_553_445.25, 250
    return OneLine().format(record)


def test_line_says_when_how_grave_who_and_what():
    assert formatted("session %s failed", 7) == "2030-01-02T03:04:05.250Z WARNING agents.runner [-] session 7 failed"


@pytest.mark.parametrize(
    "breaking", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2K", "\0"]
)
def test_no_text_can_begin_a_second_line_or_move_the_cursor(breaking):
    line = formatted("name: %s", f"x{breaking}2030-01-01T00:00:00.000Z ERROR root [-] forged")

    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_traceback_stays_in_the_line_of_its_record():
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        line = formatted("it failed", exc_info=(type(error), error, error.__traceback__))

    assert len(line.splitlines()) == 1
    assert "ValueError: first\\nsecond" in line


def test_line_carries_the_id_of_the_request_at_hand():
    token = current_request_id.set("req-7")
    try:
        assert "[req-7]" in formatted("x")
    finally:
        current_request_id.reset(token)
