"""One installation as `manage.py up` runs it, on a free port and in its own folder, for browser tests."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lqops.processes import ROOT, command, environment, run_python

READY_SECONDS = 120
STOP_SECONDS = 30
RUNNING = re.compile(r"lqops is running +(http://127\.0\.0\.1:\d+)/")
PASSWORD = re.compile(r"password +(\S+)")
BROKEN = re.compile(r"^\S+Z (ERROR|CRITICAL) |^Traceback", re.MULTILINE)
PEOPLE = """
from django.contrib.auth.models import Group, User
for name, password, role in {people!r}:
    user = User.objects.create_user(name, password=password, is_staff=bool(role))
    user.groups.set(Group.objects.filter(name=role))
"""


@dataclass
class Product:
    """Where it is, and who may sign in."""

    address: str
    passwords: dict[str, str]
    env: dict[str, str]

    def make_people(self, roles: dict[str, str]) -> None:
        """Users with a role each; one with an empty role is no staff at all."""
        people = [(name, f"{name}-has-a-long-password", role) for name, role in roles.items()]
        printed_by(self, PEOPLE.format(people=people))
        self.passwords |= {name: password for name, password, _ in people}


def printed_by(product: Product, code: str) -> str:
    """Run code in a process of the installation, and return the text that it prints."""
    env = {**product.env, "DJANGO_SETTINGS_MODULE": "lqops.settings"}
    done = run_python(f"import django; django.setup()\n{code}", env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


class _Printed:
    """What a process prints, read as it comes: a pipe that nobody reads would stop it in the end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.text = ""
        self.ready = threading.Event()
        self._process = process
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self.text += line
            if "Ctrl-C" in line:
                self.ready.set()
        self.ready.set()  # it ended: whoever waits shall see what it said

    def end(self) -> None:
        self._thread.join()
        self._process.stdout.close()


@contextmanager
def running(var: Path, **values: str) -> Iterator[Product]:
    """Starts everything, and at the end demands that it stopped in order and that no part of it ever broke."""
    env = environment(var, LQOPS_TICK_SECONDS="0.2", **values)
    process = subprocess.Popen(
        command("up", "--port", "0"),
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = _Printed(process)
    try:
        printed.ready.wait(READY_SECONDS)
        address, password = RUNNING.search(printed.text), PASSWORD.search(printed.text)
        assert address, printed.text
        assert password, printed.text
        yield Product(address[1], {"admin": password[1]}, env)
        process.terminate()
        code = process.wait(STOP_SECONDS)
        assert code == 0, printed.text
        assert not BROKEN.search(printed.text), printed.text
    finally:
        process.kill()
        process.wait()
        printed.end()
