"""A clock that chaos steps for its own processes, and for no other. PostgreSQL and Redis keep that of the machine.

lqops reads the time in two places; here they add an offset, which stands in a file. Time that passes is not touched:
pauses and timeouts last as long as ever.
"""

import os
from datetime import datetime, timedelta
from pathlib import Path

import agents.conf
import audit

FILE = "LQOPS_CHAOS_CLOCK"


class SteppedDatetime(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(seconds=_offset())


def _offset():
    try:
        return int(Path(os.environ[FILE]).read_text())
    except FileNotFoundError:
        return 0


def install():
    agents.conf.datetime = audit.datetime = SteppedDatetime


def step(seconds):
    file = Path(os.environ[FILE])
    new = file.with_suffix(".new")
    new.write_text(str(_offset() + seconds))
    new.replace(file)  # a process that reads it meanwhile finds the old or the new one
