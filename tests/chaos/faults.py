"""The faults: kills, pauses and restarts of every process, a model that is away, a full disk, a stepped clock."""

import signal
import time
from collections import Counter

from tests.chaos import fake_clock
from tests.chaos.installation import below, send
from tests.flows.processes import name_of


class Faults:
    """One fault at a time. Each ends by itself; `Installation.ensure` mends what is left."""

    def __init__(self, installation, model, random):
        self._all, self._model, self._random = installation, model, random
        self.done = Counter()

    def act(self):
        acts = {
            self.kill_worker: 8,
            self.pause_worker: 3,
            self.kill_ticker: 2,
            self.kill_web: 1,
            self.kill_supervisor: 1,
            self.kill_postgres: 1.5,
            self.pause_postgres: 1,
            self.kill_redis: 1.5,
            self.pause_redis: 1,
            self.lose_model: 2,
            self.fill_disk: 0.7 if self._all.disk.is_small else 0,
            self.step_clock: 0.7,
        }
        [act] = self._random.choices(list(acts), list(acts.values()))
        act()
        self.done[act.__name__] += 1

    def _processes(self, *names):
        """Those below the supervisors with one of the names."""
        found = [pid for one in self._all.supervisors for pid in below(one.process.pid)[1:]]
        return [pid for pid in found if name_of(pid) in names]

    def _kill(self, name):
        found = self._processes(name)
        if found:
            send([self._random.choice(found)], signal.SIGKILL)

    def kill_worker(self):
        self._kill("lqops-workers")

    def kill_ticker(self):
        self._kill("lqops-ticker")

    def kill_web(self):
        self._kill("lqops-web")

    def kill_supervisor(self):
        supervisor = self._random.choice(self._all.supervisors)
        supervisor.kill()
        time.sleep(self._random.uniform(0, 2))
        supervisor.start()

    def _pause(self, pids, seconds):
        send(pids, signal.SIGSTOP)
        time.sleep(seconds)
        send(pids, signal.SIGCONT)

    def pause_worker(self):
        found = self._processes("lqops-workers", "lqops-ticker")
        if found:
            self._pause([self._random.choice(found)], self._random.uniform(1, 9))  # a lease is 5 seconds

    def _restart(self, server):
        server.kill()
        time.sleep(self._random.uniform(0, 4))
        server.ensure()

    def kill_postgres(self):
        self._restart(self._all.postgres)

    def pause_postgres(self):
        self._pause(self._all.postgres.pids(), self._random.uniform(0.5, 4))

    def kill_redis(self):
        """Whatever was queued in it is gone."""
        self._restart(self._all.redis)

    def pause_redis(self):
        self._pause(self._all.redis.pids(), self._random.uniform(0.5, 4))

    def lose_model(self):
        self._model.status = 503
        time.sleep(self._random.uniform(0.5, 6))
        self._model.status = 200

    def fill_disk(self):
        self._all.disk.fill()
        time.sleep(self._random.uniform(1, 4))
        self._all.disk.empty()
        self._all.postgres.ensure()
        self._all.redis.ensure()

    def step_clock(self):
        """Forward by up to an hour, or back by some seconds, as when a machine was asleep or is corrected."""
        fake_clock.step(self._random.choice([60, 600, 3_600, -2, -10]))
