"""Log lines: one per record, with the id of the request, and with secrets masked."""

import logging

import pytest

from lqops.logs import OneLine
from lqops.web import current_request_id

from .processes import environment, run_python


def formatted(message, *args, exc_info=None):
    record = logging.LogRecord("agents.runner", logging.WARNING, __file__, 1, message, args, exc_info)
    record.created, record.msecs = 1_893_553_445.25, 250
    return OneLine().format(record)


def test_line_has_time_level_logger_and_message():
    assert formatted("session %s failed", 7) == "2030-01-02T03:04:05.250Z WARNING agents.runner [-] session 7 failed"


@pytest.mark.parametrize(
    "breaking", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2K", "\0"]
)
def test_text_cannot_start_a_second_line_or_move_the_cursor(breaking):
    line = formatted("name: %s", f"x{breaking}2030-01-01T00:00:00.000Z ERROR root [-] forged")

    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_traceback_is_part_of_the_line():
    with pytest.raises(ValueError, match="first") as caught:
        raise ValueError("first\nsecond")
    line = formatted("it failed", exc_info=caught._excinfo)

    assert len(line.splitlines()) == 1
    assert "ValueError: first\\nsecond" in line


def test_line_has_the_id_of_its_request():
    token = current_request_id.set("req-7")
    try:
        assert "[req-7]" in formatted("x")
    finally:
        current_request_id.reset(token)


LOG = """
import logging
import django; django.setup()
logging.getLogger("agents.runner").info("asked with Bearer %s", "abcdefghijklmnopqrstuvwxyz0123456789")
logging.getLogger("django.request").error("forged\\n2030-01-01 all is well")
try:
    raise RuntimeError("password=correct-horse-battery")
except RuntimeError:
    logging.getLogger("django.server").exception("it failed")
"""


def test_every_logger_writes_one_masked_line_per_record(tmp_path):
    done = run_python(LOG, env=environment(tmp_path, DJANGO_SETTINGS_MODULE="lqops.settings"))

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["INFO", "agents.runner"],
        ["ERROR", "django.request"],
        ["ERROR", "django.server"],
    ]
    assert "abcdefghijklmnop" not in done.stderr
    assert "correct-horse" not in done.stderr
    assert "RuntimeError" in lines[2]
