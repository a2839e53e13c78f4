"""A clock that chaos steps for its own processes, and for no other. Redis keeps that of the machine.

lqops reads the time in two places, and that of the database in a third; here they add an offset, which stands in a
file. Time that passes is not touched: pauses and timeouts last as long as ever.
"""

import os
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from django.db import connection

import agents.conf
import audit
from agents import database_clock

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


def _ask_stepped(ask):
    return ask() + timedelta(seconds=_offset() if connection.vendor == "postgresql" else 0)


def install():
    """Step the clock of the whole installation. Hosts whose clocks differ from the database's claim nothing."""
    agents.conf.datetime = audit.datetime = SteppedDatetime
    database_clock._ask = partial(_ask_stepped, database_clock._ask)


def step(seconds):
    file = Path(os.environ[FILE])
    new = file.with_suffix(".new")
    new.write_text(str(_offset() + seconds))
    new.replace(file)  # a process that reads it meanwhile finds the old or the new one
