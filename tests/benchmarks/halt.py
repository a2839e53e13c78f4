"""How long an operator's halt takes while a call is in flight, against a bare UPDATE and COMMIT in the same run.

`python -m tests.benchmarks.halt [--rounds 60]`, on the database of LQOPS_DATABASE_URL (it must be migrated; the rows
that the benchmark makes stay there). Prints a table and one JSON line; leaves with 1 when the bar of 20 x is missed.

`--in-flight N` measures something else: N runs of all modes are halted while a model on loopback is answering them, one
word a second. It prints how long after the commit of the halt the model sent its last byte and found the connection
closed, and how long after it the run had ended; leaves with 1 when the model was not left within 1 s (p95) and 3 s
(all), or a run did not end as halted. No worker may run on the database meanwhile: it would take the runs.

`--all-work N` halts and releases all work N times while four threads create runs, 28 a second together, and one of them
holds the `system` chain for a second in every three (not on SQLite, where a writer holds up every other). It prints how
long the halts took until they answered; leaves with 1 when that was more than 100 ms (p95).
"""

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from contextlib import suppress

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lqops.settings")

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.db import connection, transaction  # noqa: E402

from agents.conf import clock  # noqa: E402
from agents.enums import Phase, Status, ToolIntent  # noqa: E402
from agents.exceptions import SessionHalted  # noqa: E402
from agents.guard import guarded_tool_call  # noqa: E402
from agents.models import AgentSession, ModelPrice, Profile  # noqa: E402
from agents.providers.scripted import ScriptedProvider, Step  # noqa: E402
from agents.sessions.halts import halt_all_work, release_all_work, session_halt  # noqa: E402
from agents.sessions.lifecycle import session_create  # noqa: E402
from agents.types import Usage  # noqa: E402
from audit import recorder  # noqa: E402
from audit.models import SYSTEM_CHAIN  # noqa: E402
from tests.flows.halting import halts, meets_bars, report, serving_slowly  # noqa: E402
from tests.serving import serving  # noqa: E402

BAR = 20.0
ALL_WORK_BAR = 0.1  # seconds
CREATORS = 4
RATE = 28.0  # runs a second
MODEL = "benchmark"


def one_round(owner: User) -> tuple[float, float]:
    """Seconds of a bare update, and of a halt, while a call of the session is out."""
    session = AgentSession.objects.create(owner=owner, status=Status.RUNNING, current_phase=Phase.TURN, max_cost_usd=1)
    asked, go_on = threading.Event(), threading.Event()

    def think() -> None:
        asked.set()
        go_on.wait(30)

    def call() -> None:
        params = {"model": MODEL, "prompt": "?", "max_tokens": 1}
        with suppress(SessionHalted):  # the halt may end it before its reply comes in
            guarded_tool_call(session, ToolIntent.RUN_SKILL, params)
        connection.close()

    with serving(MODEL, ScriptedProvider([Step("ok", usage=Usage(0, 0), before_reply=think)])):
        thread = threading.Thread(target=call)
        thread.start()
        asked.wait(30)
        started = time.perf_counter()
        AgentSession.objects.filter(pk=session.pk).update(idle_halt_minutes=5)
        updated = time.perf_counter()
        session_halt(session.pk, by=owner, reason="benchmark", now=clock())
        halted = time.perf_counter()
        go_on.set()
        thread.join()
    return updated - started, halted - updated


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--in-flight", type=int, default=0, metavar="N")
    parser.add_argument("--all-work", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    if given.all_work:
        return all_work(given.all_work)
    return in_flight(given.in_flight, given.seed) if given.in_flight else compared_with_update(given.rounds)


def all_work(rounds: int) -> int:
    over = threading.Event()
    threads = [threading.Thread(target=create_runs, args=(number, over)) for number in range(CREATORS)]
    threads += [threading.Thread(target=stall_writers, args=(over,))] if connection.vendor == "postgresql" else []
    for thread in threads:
        thread.start()
    seconds = []
    try:
        for _ in range(rounds):
            time.sleep(0.3)
            started = time.perf_counter()
            halt_all_work(by=None, reason="benchmark", now=clock())
            seconds.append(time.perf_counter() - started)
            release_all_work(by=None, now=clock())
    finally:
        over.set()
        for thread in threads:
            thread.join()
    seconds.sort()
    found = {"p50": statistics.median(seconds), "p95": seconds[int(0.95 * (rounds - 1))], "max": seconds[-1]}
    milliseconds = {name: round(value * 1e3, 1) for name, value in found.items()}
    print(f"{connection.vendor}: halt of all work answers in {milliseconds} ms ({rounds} halts)")
    print(json.dumps({"benchmark": "halt_all_work", "database": connection.vendor, **milliseconds}))
    return 0 if found["p95"] <= ALL_WORK_BAR else 1


def create_runs(number: int, over: threading.Event) -> None:
    """Create runs as webhooks do, each opening a chain of the audit log."""
    owner, _ = User.objects.get_or_create(username=f"benchmark-{number}")
    Profile.objects.update_or_create(user=owner, defaults={"opted_in": True})
    while not over.wait(CREATORS / RATE):
        with suppress(SessionHalted), transaction.atomic():
            session = session_create(owner=owner, now=clock())
            recorder.append(session.chain, "autonomous_session.started", now=clock())
    connection.close()


def stall_writers(over: threading.Event) -> None:
    while not over.wait(2):
        with transaction.atomic():
            recorder.append(SYSTEM_CHAIN, "model.accepted", now=clock(), details={"model": MODEL})
            time.sleep(1)
    connection.close()


def in_flight(count: int, seed: int) -> int:
    with serving_slowly() as model:
        done = halts(model, count, seed)
    print(report(done, database=connection.vendor, seed=seed))
    all_halted = all(one.status == Status.HALTED and not one.unnoticed for one in done)
    return 0 if all_halted and meets_bars(done) else 1


def compared_with_update(rounds: int) -> int:
    owner, _ = User.objects.get_or_create(username="benchmark")
    ModelPrice.objects.get_or_create(model=MODEL, defaults={"input_usd": 0, "output_usd": 0})
    pairs = [one_round(owner) for _ in range(rounds)]
    updates, halts = (sorted(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(halts) / statistics.median(updates)
    p95 = halts[int(0.95 * (rounds - 1))] / statistics.median(updates)
    print(f"{connection.vendor}: bare UPDATE+COMMIT {statistics.median(updates) * 1e3:.2f} ms (median of {rounds})")
    median = statistics.median(halts) * 1e3
    print(f"{connection.vendor}: halt while a call is out {median:.2f} ms = {ratio:.1f} x; p95 {p95:.1f} x")
    print(
        json.dumps({"benchmark": "halt", "database": connection.vendor, "ratio": round(ratio, 2), "p95": round(p95, 2)})
    )
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
