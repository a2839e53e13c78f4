"""Processes that do the same step as often as they can, at the same time, each with a connection of its own."""

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from agents.process_end import end_with_parent

_FORK = multiprocessing.get_context("fork")
Step = Callable[[], object]


class Crew:
    """`with Crew(32, prepare) as crew:`; `prepare(number)` returns the step of a member, in its process."""

    def __init__(self, size: int, prepare: Callable[[int], Step]) -> None:
        connections.close_all()  # no two processes may use one
        self._lines = []
        self._members = []
        for number in range(size):
            line, theirs = _FORK.Pipe()
            member = _FORK.Process(target=_work, args=(os.getpid(), number, prepare, theirs), daemon=True)
            member.start()
            theirs.close()
            self._lines.append(line)
            self._members.append(member)

    def __enter__(self) -> "Crew":
        for line in self._lines:
            assert line.recv() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        for line, member in zip(self._lines, self._members, strict=True):
            line.send(None)
            member.join()

    def rate(self, members: int, seconds: float) -> float:
        """Return the steps per second of so many members together."""
        begins = time.monotonic() + 0.05
        for line in self._lines[:members]:
            line.send((begins, seconds))
        return sum(line.recv() for line in self._lines[:members])


def _work(parent: int, number: int, prepare: Callable[[int], Step], line: Any) -> None:
    end_with_parent(parent)
    step = prepare(number)
    step()
    line.send("ready")
    while order := line.recv():
        begins, seconds = order
        time.sleep(max(0.0, begins - time.monotonic()))
        line.send(_rate(step, seconds))
    connections.close_all()


def _rate(step: Step, seconds: float) -> float:
    began, done = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        step()
        done += 1
    return done / (time.monotonic() - began)
