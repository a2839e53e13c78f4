"""`make chaos`: an installation under load and faults for some minutes; nothing is lost, doubled or overspent.

The seed decides load and faults, and is printed; which process is hit at which moment is up to the machine.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import django

from tests.chaos.faults import Faults
from tests.chaos.installation import Installation
from tests.chaos.verdict import floors, verdict
from tests.flows.model_server import ModelServer

REST_SECONDS = 600  # a worker that was killed while it tried a model that is away leaves the next try five minutes off
LATE = timedelta(seconds=30)


def main():
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--broker", choices=["redis", "database"], default="redis")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.minutes:g} minutes, broker {options.broker}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="lqops-chaos-"))
    folder.chmod(0o755)
    with ModelServer() as model:
        installation = Installation(folder, model.environment, broker=options.broker)
        try:
            return chaos(installation, model, options)
        finally:
            installation.stop()
            print(f"logs: {folder}", flush=True)


def chaos(installation, model, options):
    os.environ.update(installation.environment)
    installation.start()
    django.setup()
    from tests.chaos.load import Load, answer  # they need the settings of the installation

    model.answer = answer
    source = random.Random(options.seed)
    load = Load(installation, random.Random(source.random()))
    faults = Faults(installation, model, random.Random(source.random()))
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())  # ended early, it is judged all the same
    loading = threading.Thread(
        target=keep, args=(load.act, over, random.Random(source.random()), (0.05, 0.6)), daemon=True
    )
    loading.start()
    began = time.monotonic()
    end = began + 60 * options.minutes
    while time.monotonic() < end and not over.wait(source.uniform(1, 6)):
        faults.act()
        installation.ensure()
        if not loading.is_alive():
            raise RuntimeError("the load has ended early; what it raised is above")
        print(f"{end - time.monotonic():6.0f} s left: {dict(faults.done)}", flush=True)
    minutes = (time.monotonic() - began) / 60
    over.set()
    loading.join()
    installation.ensure()
    model.status = 200
    return judged(load, faults, minutes)


def keep(act, over, source, pause):
    while not over.wait(source.uniform(*pause)):
        act()


def judged(load, faults, minutes):
    """Let everything come to rest, print the figures and the verdict, and return 1 if anything is wrong."""
    from tests.invariants import problems

    began = time.monotonic()
    left = load.rest(REST_SECONDS)
    found = problems(late=LATE)
    figures = {
        **load.figures(),
        "faults": dict(faults.done),
        "kills": sum(number for name, number in faults.done.items() if name.startswith("kill")),
        "rest_seconds": round(time.monotonic() - began),
        "overspent": sum(one.startswith("overspent") for one in found),
        "left": [f"{one.mode} {one.public_id} {one.status} {one.waiting_on}" for one in left],
        "problems": found,
    }
    wrong = verdict(figures, minutes)
    figures |= {"floors": {name: f"{figures[name]} of at least {least}" for name, least in floors(minutes).items()}}
    print(json.dumps(figures, indent=2))
    for one in wrong:
        print(f"FAILED: {one}")
    if not wrong:
        print("Passed: nothing was lost, doubled or overspent, and enough happened for that to say something.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
