"""How long until every one of n open streams has the message of its user.

`python -m tests.benchmarks.streams [--streams 60 1000] [--rounds 3]` on the database of LQOPS_DATABASE_URL, with a web
process of its own. A user has as many streams as one may have; a message is written for each user, one after another,
and the time is taken from the last of them. One stream is the reference.
"""

import argparse
import asyncio
import resource
import time

from tests.benchmarks.guard import made

# isort: split
from django.db import connection

from agents.api.sse import MAX_OPEN, MAX_OPEN_PER_USER
from agents.management.supervisor import Supervisor, Web, open_socket
from agents.models import Agent
from tests.benchmarks.paired import record
from tests.factories import make_agent, make_user
from tests.lqops.listening import key_of
from tests.lqops.test_many_streams import Listener, all_of, emit

PATIENCE = 120


async def rounds_of(streams: int, address: str, users: list[tuple[Agent, str]], rounds: int) -> list[float]:
    """Return the seconds of each round."""
    used = users[: -(-streams // MAX_OPEN_PER_USER)]
    keys = [key for _, key in used for _ in range(MAX_OPEN_PER_USER)]
    listeners = [Listener(address, key) for key in keys[:streams]]
    await all_of(listener.open() for listener in listeners)
    taken = []
    for _ in range(rounds):
        await asyncio.to_thread(emit, [agent for agent, _ in used])
        written = time.perf_counter()
        await all_of((listener.next_event() for listener in listeners), side_by_side=streams)
        taken.append(time.perf_counter() - written)
    await all_of(listener.close() for listener in listeners)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="+", default=[60, 1_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    made()
    sizes = [1, *(min(streams, MAX_OPEN) for streams in given.streams)]
    agents = [make_agent(owner=make_user()) for _ in range(-(-max(sizes) // MAX_OPEN_PER_USER))]
    users = [(agent, key_of(agent.owner)) for agent in agents]
    one = 0.0
    for streams in sizes:
        with open_socket("127.0.0.1", 0) as listening:
            web = Web(listening)
            with Supervisor([web], say=print):
                web.wait_until_it_answers()
                work = rounds_of(streams, web.address, users, given.rounds)
                taken = asyncio.run(asyncio.wait_for(work, PATIENCE))
        one = one or sorted(taken)[len(taken) // 2]
        record(
            f"streams.{streams}", [1_000 * seconds for seconds in taken], unit="ms", database=connection.vendor,
            ratios=[seconds / one for seconds in taken] if streams > 1 else (),
            reference="one stream" if streams > 1 else "",
        )  # fmt: skip


if __name__ == "__main__":
    main()
