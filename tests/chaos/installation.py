"""A whole installation on loopback, made to be broken: PostgreSQL, Redis, a web process, two supervisors of workers.

PostgreSQL will not run as root: then it runs as the user `postgres`. As root the data lie on a small file system in
memory, so that the disk can be filled; else that fault is left out.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

from tests.flows.processes import ROOT, children_of, is_alive

DISK = "2g"
START_SECONDS = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition, what, seconds=START_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {seconds} seconds: no")
        time.sleep(0.1)


def below(pid):
    """A process and everything that it has started."""
    return [pid, *(one for child in children_of(pid) for one in below(child))]


def send(pids, number):
    sent = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            sent += 1
    return sent


class Disk:
    """The folder of the installation; of limited size where this user may mount one."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(mode=0o755)
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs", str(folder)]
        self.is_small = os.geteuid() == 0 and subprocess.run(mounting, capture_output=True, check=False).returncode == 0

    def fill(self):
        with suppress(OSError), (self.folder / "ballast").open("wb") as out:
            while True:
                out.write(bytes(1 << 20))
                out.flush()

    def empty(self):
        (self.folder / "ballast").unlink(missing_ok=True)

    def remove(self):
        if self.is_small:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Server:
    """PostgreSQL or Redis: one process that can be killed, paused and started again."""

    def __init__(self, name, command, port, log):
        self.name, self.port = name, port
        self._command, self._log = command, log
        self.process = None

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: answers(self.port) or self.process.poll() is not None, f"{self.name} starts")

    def pids(self):
        return below(self.process.pid)

    def kill(self):
        """The whole server at once, as when the power fails."""
        pids = self.pids()
        send(pids, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in pids), f"{self.name} ends")

    def ensure(self):
        """Start it if it is not running; again, while the disk is only just free."""
        for _ in range(30):
            if self.process.poll() is None and answers(self.port):
                return
            if self.process.poll() is None:
                time.sleep(1)
            else:
                self.start()
        raise TimeoutError(f"{self.name} does not start; see {self._log}")


def postgres(folder):
    """A new cluster of its own."""
    [binaries] = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:] or [Path(shutil.which("initdb")).parent]
    data, port = folder / "postgres", free_port()
    prefix = []
    if os.geteuid() == 0:
        prefix = ["runuser", "-u", "postgres", "--"]
        data.mkdir()
        shutil.chown(data, "postgres")
    trusting = ["-D", str(data), "-U", "lqops", "--auth=trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*prefix, str(binaries / "initdb"), *trusting], check=True, capture_output=True)
    options = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "max_wal_size": "96MB",
        "min_wal_size": "32MB",
    }
    given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    command = [*prefix, str(binaries / "postgres"), "-D", str(data), "-p", str(port), *given]
    return Server("PostgreSQL", command, port, folder.parent / "postgres.log")


def redis(folder):
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    return Server("Redis", command, port, folder.parent / "redis.log")


class Supervisor:
    """`manage.py up` or `manage.py work`, restarted by us when it is killed, as a service manager would."""

    def __init__(self, arguments, environment, log):
        self._arguments, self._environment, self._log = arguments, environment, log
        self.process = None

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", *self._arguments],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def workers(self):
        """Everything below it."""
        return below(self.process.pid)[1:]

    def kill(self):
        """It alone. What it leaves behind works on for a moment; then it is ended, as a service manager does."""
        left = self.workers()
        send([self.process.pid], signal.SIGKILL)
        self.process.wait()
        time.sleep(1)
        send(left, signal.SIGKILL)

    def ensure(self):
        if self.process.poll() is not None:
            self.start()

    def stop(self):
        left = below(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            send(left, signal.SIGKILL)
            self.process.wait()


class Installation:
    """All of it. `environment` is what its processes, and this one, go by."""

    def __init__(self, folder, model, *, broker):
        self.folder = folder
        self.disk = Disk(folder / "disk")
        self.postgres = postgres(self.disk.folder)
        self.redis = redis(self.disk.folder)
        self.port = free_port()
        self.environment = {
            **os.environ,
            **model,
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            "LQOPS_VAR_DIR": str(self.disk.folder / "var"),
            "LQOPS_DATABASE_URL": f"postgresql://lqops@127.0.0.1:{self.postgres.port}/postgres",
            "LQOPS_REDIS_URL": f"redis://127.0.0.1:{self.redis.port}/0" if broker == "redis" else "",
            "LQOPS_SKILL_MODULES": "tests.chaos.skills",
            "LQOPS_CHAOS_EFFECTS": str(folder / "effects"),
            "LQOPS_CHAOS_CLOCK": str(folder / "clock"),
            "LQOPS_NET_ALLOW_NETWORKS": "127.0.0.0/8",
            "LQOPS_LEASE_SECONDS": "5",
            "LQOPS_HEARTBEAT_SECONDS": "1",
            "LQOPS_TICK_SECONDS": "0.5",
            "LQOPS_STALL_SECONDS": "10",
            "LQOPS_WORKERS": "2",
            "LQOPS_MAX_RUNNING_PER_USER": "20",
            "LQOPS_MAX_RECOVERIES": "50",  # here a kill is the weather, and not the run's own fault
            "LQOPS_INSTALLATION_DAY_CAP_USD": "1000",
        }
        self.supervisors = [
            Supervisor(["up", "--port", str(self.port)], self.environment, folder / "up.log"),
            Supervisor(["work"], self.environment, folder / "work.log"),
        ]

    def start(self):
        self.postgres.start()
        self.redis.start()
        up, work = self.supervisors
        up.start()
        wait_until(self.is_healthy, "the web process starts")
        work.start()

    def is_healthy(self):
        """`up` holds its port from the first moment on; it answers when the migrations are done."""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as reply:
            return reply.status == HTTPStatus.OK
        return False

    def ensure(self):
        """Everything is there again, and going."""
        self.disk.empty()
        for server in (self.postgres, self.redis):
            send(server.pids(), signal.SIGCONT)
            server.ensure()
        for supervisor in self.supervisors:
            supervisor.ensure()
            send(below(supervisor.process.pid), signal.SIGCONT)

    def stop(self):
        for supervisor in self.supervisors:
            if supervisor.process is not None:
                supervisor.stop()
        for server in (self.postgres, self.redis):
            if server.process is not None and server.process.poll() is None:
                server.kill()
        self.disk.remove()
