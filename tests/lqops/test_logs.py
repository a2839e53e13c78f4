"""Log lines: one per record, with the id of the request, and with secrets masked."""

import json
import logging

import pytest

from agents.tracing import working_on
from lqops.logs import JsonLine, OneLine
from lqops.web import current_request_id

from .processes import environment, run_python


def formatted(message, *args, exc_info=None, formatter=OneLine, **extra):
    record = logging.LogRecord("agents.runner", logging.WARNING, __file__, 1, message, args, exc_info)
    record.created, record.msecs = 1_893_553_445.25, 250
    vars(record).update(extra)
    return formatter().format(record)


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


def test_line_has_the_ids_of_its_run_and_call():
    with working_on("chat", run="run-1", call="call-2", attributes={}):
        assert " [run:run-1 call:call-2] x" in formatted("x")
        assert json.loads(formatted("x", formatter=JsonLine)).items() >= {("run_id", "run-1"), ("call_id", "call-2")}
    assert " [-] x" in formatted("x")
    assert " [run:run-3] x" in formatted("x", run_id="run-3")


def test_json_line_has_all_fields_and_is_one_line():
    with pytest.raises(ValueError, match="first") as caught:
        raise ValueError("first\nsecond")
    line = formatted("na\nme %s", 7, exc_info=caught._excinfo, formatter=JsonLine)

    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert "ValueError: first\nsecond" in found.pop("exception")
    assert found == {
        "time": "2030-01-02T03:04:05.250Z",
        "level": "WARNING",
        "logger": "agents.runner",
        "message": "na\nme 7",
    }


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


# Without the apps, which take most of the time of a start, and of which none sets up logs by the format.
LOG_ALONE = LOG.replace(
    "import django; django.setup()",
    "from django.conf import settings; from django.utils.log import configure_logging\n"
    "configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)",
)


def test_json_lines_are_masked_too(tmp_path):
    env = environment(tmp_path, DJANGO_SETTINGS_MODULE="lqops.settings", LQOPS_LOG_FORMAT="json")
    done = run_python(LOG_ALONE, env=env)

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == ["agents.runner", "django.request", "django.server"]
    assert "abcdefghijklmnop" not in done.stderr
    assert "correct-horse" not in done.stderr
    assert "RuntimeError" in lines[2]["exception"]
