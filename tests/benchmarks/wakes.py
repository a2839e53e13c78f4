"""How late sleeping runs wake, and what a tick costs beside ten and a hundred thousand of them.

`python -m tests.benchmarks.wakes [--rounds 9] [--wakes 20]` on the database of LQOPS_DATABASE_URL, which should have no
sleeping runs; those of the benchmark stay there.

A wake is measured from its time to the start of the turn, with the ticker and the workers of `manage.py work`. A tick
is done in this process: `quiet` while nobody writes anything, `all` with every duty due.
"""

import argparse
from collections.abc import Mapping
from datetime import timedelta

from tests.benchmarks.guard import made

# isort: split
from django.db import connection, models

from agents.conf import clock
from agents.models import Agent, AgentSession
from agents.ticker import Ticker
from tests.benchmarks.cluster import working
from tests.benchmarks.paired import measure, record
from tests.flows.processes import until
from tests.flows.test_many_sleepers import DAY, TEXT, asleep

SLEEPERS = (10, 10_000, 100_000)
HOURS = 7_200.0  # every duty is due again


def multiply(model: type[models.Model], number: int, changed: Mapping[str, str]) -> None:
    """Copy the newest row of a table so many times; `changed` are columns in SQL, in which k.n is the number."""
    lite = connection.vendor == "sqlite"
    series = f"WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < {number})"
    columns = {field.column: f"one.{field.column}" for field in model._meta.concrete_fields if not field.primary_key}
    columns |= {"public_id": "lower(hex(randomblob(16)))" if lite else "gen_random_uuid()", **changed}
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) {series} SELECT {', '.join(columns.values())} "
            f"FROM {table} one, k WHERE one.id = (SELECT max(id) FROM {table})"
        )


def sleep_until_tomorrow(number: int) -> None:
    """Have so many loop runs sleep, each of an agent of its own."""
    missing = number - AgentSession.objects.filter(next_wake_at__gt=clock()).count() - 1
    (first,) = asleep(1, clock() + DAY, since=clock())
    if missing > 0:
        agent = first.agent_id
        multiply(Agent, missing, {"name": "'copy-' || one.id || '-' || k.n"})
        multiply(AgentSession, missing, {"agent_id": f"{agent} + k.n"})
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # it does so by itself, in time; nothing of lqops does so on SQLite
            cursor.execute("ANALYZE")


def tick(apart: float, rounds: int) -> list[float]:
    """Return the seconds of ticks, for which so many seconds seem to lie between two of them."""
    time = [0.0]
    ticker = Ticker(monotonic=lambda: time[0])

    def step() -> None:
        time[0] += apart
        found = ticker.tick(clock())
        assert found is not None
        assert -1 not in found.values(), found

    try:
        return [row["tick"] for row in measure({"tick": step}, rounds=rounds, steps=3, warm=3)]
    finally:
        ticker.leave()


def ticks(rounds: int) -> None:
    least: dict[str, float] = {}
    for number in SLEEPERS:
        sleep_until_tomorrow(number)
        for name, apart in {"quiet": 0.001, "all": HOURS}.items():
            taken = tick(apart, rounds)
            least.setdefault(name, min(taken))
            record(
                f"tick.{name}.{number}", [1_000 * one for one in taken], unit="ms", database=connection.vendor,
                ratios=[one / least[name] for one in taken] if number != SLEEPERS[0] else (),
                reference=f"{SLEEPERS[0]} sleeping runs" if number != SLEEPERS[0] else "",
            )  # fmt: skip


def wakes(number: int) -> None:
    """Wake runs one after another. Each of them ends at once, for its day is over."""
    text = TEXT.replace("enabled: true", "enabled: true, renew: daily")
    with working():
        (first,) = asleep(1, clock(), text=text, since=clock() - DAY)
        until(lambda: AgentSession.objects.filter(pk=first.pk, started_at__isnull=False).exists())  # they are at work
        begins = clock() + timedelta(seconds=2)
        times = [begins + timedelta(seconds=0.37 * count) for count in range(number)]
        sessions = [asleep(1, at, text=text, since=clock() - DAY)[0] for at in times]
        rows = AgentSession.objects.filter(pk__in=[session.pk for session in sessions])
        until(lambda: not rows.filter(started_at__isnull=True).exists())
        started = rows.order_by("pk").values_list("started_at", flat=True)
        late = [1_000 * (at - due).total_seconds() for at, due in zip(started, times, strict=True)]
    record("wake.latency", late, unit="ms", database=connection.vendor)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--wakes", type=int, default=20)
    given = parser.parse_args()
    made()
    ticks(given.rounds)
    wakes(given.wakes)


if __name__ == "__main__":
    main()
