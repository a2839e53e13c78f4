"""What processes that fire triggers do: `python -m tests.flows.spawners <function> <arguments as JSON>`."""

import json
import sys
from datetime import datetime

import django

django.setup()

from agents.services.firing import Fired, schedules_fire, watches_fire  # noqa: E402
from tests.flows.processes import Worker  # noqa: E402


class Spawner(Worker):
    module = "tests.flows.spawners"


def say(word):
    print(word, flush=True)


def start_together():
    say("ready")
    sys.stdin.readline()


def fire_schedules(now):
    """Sweeps, as a ticker does, until nothing is due any more; prints how many sessions it spawned."""
    moment, spawned = datetime.fromisoformat(now), 0
    start_together()
    while found := schedules_fire(now=moment, limit=20):
        spawned += found
    say(json.dumps(spawned))


def tell_watches(attachment_pks, now):
    """Tells of each attachment; prints how many sessions that spawned."""
    moment = datetime.fromisoformat(now)
    start_together()
    answers = [answer for pk in attachment_pks for answer in watches_fire(pk, now=moment)]
    say(json.dumps(sum(isinstance(answer, Fired) and answer.first for answer in answers)))


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
