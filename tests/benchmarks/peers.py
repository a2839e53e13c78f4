"""Durable steps of other libraries, for the same rounds as a guarded call; those that are installed (extra `bench`).

Each is a step without content in a run of its own, on the PostgreSQL server of the benchmark. A run has a beginning of
its own, so several steps are taken at once and the time is divided among them.
"""

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import Any, TypedDict

STEPS = 10


class Several(partial[None]):
    """A function that takes several steps."""

    at_once = STEPS


def peers(url: str, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """Return the contenders that are installed, by name."""
    found: dict[str, Callable[[], None]] = {}
    if find_spec("langgraph") and find_spec("langgraph.checkpoint.postgres"):
        found["peer.langgraph"] = Several(_langgraph(url, stack))
    if find_spec("dbos"):
        found["peer.dbos"] = Several(_dbos(url, stack))
    return found


def _langgraph(url: str, stack: ExitStack) -> Callable[[], Any]:
    """A graph of one node that comes back to itself; every state is stored before the next step (`sync`)."""
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        left: int

    saver = stack.enter_context(PostgresSaver.from_conn_string(url))
    saver.setup()
    graph = StateGraph(State)
    graph.add_node("act", lambda state: {"left": state["left"] - 1})
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", lambda state: "act" if state["left"] else END)
    made = graph.compile(checkpointer=saver)

    def run() -> None:
        config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 2 * STEPS}
        made.invoke({"left": STEPS}, config, durability="sync")

    return run


def _dbos(url: str, stack: ExitStack) -> Callable[[], Any]:
    """A workflow of so many steps."""

    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})

    @DBOS.step()
    def act() -> bool:
        return True

    @DBOS.workflow()
    def several() -> None:
        for _ in range(STEPS):
            act()

    DBOS.launch()
    stack.callback(DBOS.destroy)
    return several
