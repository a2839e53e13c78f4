"""Guarded calls of two processes at once against those of one, and late calls of a run against its first.

`python -m tests.benchmarks.guard_scale [--rounds 9]` on the database of LQOPS_DATABASE_URL, as tests.benchmarks.guard.
"""

import argparse
from collections.abc import Callable, Iterator

from tests.benchmarks.guard import made, running

# isort: split
from django.contrib.auth.models import User
from django.db import connection

from agents.conf import clock
from agents.enums import Level, ToolIntent
from agents.guard import guarded_tool_call
from agents.guard.intents import override
from agents.guard.tools import Tool
from agents.models import AgentSession
from agents.types import Capability
from audit.recorder import append
from tests.benchmarks.crew import Crew
from tests.benchmarks.paired import measure, record, report

SECONDS = 1.0
STEPS = 5
LATE = {"guard.call_50": 50, "guard.call_1600": 1_600}
TOOLS = {
    "guard.local": Tool(lambda context, params: {"done": True}, Capability("act", level=Level.SAFE), undoable=True),
    "guard.remote": Tool(lambda context, params: {"done": True}, Capability("act", level=Level.SAFE), remote=True),
}


def begun(owner: User) -> AgentSession:
    """A run whose chain is open, as that of every run is before its first call."""
    session = running(owner)
    append(session.chain, "autonomous_session.started", now=clock())
    return session


def act(session: AgentSession, tool: Tool) -> None:
    with override({ToolIntent.RUN_SKILL: tool}):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, {"step": "one of many"}).ok


def together(owner: User, rounds: int) -> None:
    """Two processes, each with a run of its own, by one."""
    for name, tool in TOOLS.items():

        def prepare(number: int, tool: Tool = tool) -> Callable[[], None]:
            session = begun(owner)
            return lambda: act(session, tool)

        with Crew(2, prepare) as crew:
            rates = [(crew.rate(1, SECONDS), crew.rate(2, SECONDS)) for _ in range(rounds)]
        record(
            f"{name}.2_processes", [two for _, two in rates], unit="calls/s", database=connection.vendor,
            ratios=[two / one for one, two in rates], reference="one process",
        )  # fmt: skip


def growth(owner: User, rounds: int) -> None:
    """The 50th and the 1,600th call of a run by the first."""

    def first() -> None:
        act(next(new), TOOLS["guard.remote"])

    def later(calls: Iterator[AgentSession]) -> Callable[[], None]:
        return lambda: act(next(calls), TOOLS["guard.remote"])

    new = iter([begun(owner) for _ in range((rounds + 1) * STEPS)])
    contenders = {"guard.call_1": first}
    for name, number in LATE.items():
        # Few sessions for the longest: some calls more make no difference there.
        sessions = [begun(owner) for _ in range(1 if number > 100 else rounds + 1)]
        for session in sessions:
            for _ in range(number - 1):
                act(session, TOOLS["guard.remote"])
        each = (rounds + 1) * STEPS // len(sessions)
        contenders[name] = later(iter([session for session in sessions for _ in range(each)]))
    rows = measure(contenders, rounds=rounds, steps=STEPS, warm=STEPS)
    report(rows, references={name: (name, "guard.call_1") for name in LATE}, database=connection.vendor)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    made()
    owner, _ = User.objects.get_or_create(username="benchmark")
    together(owner, max(rounds // 3, 2))
    growth(owner, rounds)


if __name__ == "__main__":
    main()
