"""Children that are forked: they end with their parent, and share nothing that only one process may use."""

import json
import os
import signal
import socket
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from agents.management.supervisor import open_socket
from tests.flows.processes import Program, children_of, is_alive, name_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")

SOON = 5  # seconds, for what is done at once

BEGIN = """
import json, os, signal, sys, time
from django.db import connection
from agents.management import supervisor
from agents.management.supervisor import *

def tell(**found):
    print(json.dumps(found), flush=True)
"""
TWO_CHILDREN = """
connection.ensure_connection()
listening = open_socket("127.0.0.1", 0)
web = Web(listening, "tests.lqops.applications:polite")
part = Child("part", ["shell", "-v0", "-c", "import time; time.sleep(600)"])
stop_on_signals()
try:
    with Supervisor([web, part], say=print) as children:
        web.wait_until_it_answers()
        tell(web=web.pid, part=part.pid, port=web.port)
        children.watch()
except Stopped:
    tell(stopped=True)
"""


@pytest.fixture(autouse=True)
def _test_database(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        yield


def program(code, *arguments):
    """A process of its own, without threads, that runs these lines; it prints JSON."""
    return closing(Program(BEGIN + code, *arguments))


def answer_of(code, *arguments):
    with program(code, *arguments) as process:
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return json.loads(printed)


@contextmanager
def two_children(code=TWO_CHILDREN):
    with program(code) as process:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        found = json.loads(line)
        until(lambda: is_waiting(process.pid))  # a stop in the middle of what coverage notes would have to wait for it
        yield process, found["web"], found["part"], found["port"]


@pytest.fixture
def two():
    with two_children() as started:
        yield started


def open_sockets(pid):
    links = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.add(str(file.readlink()))
    return {link for link in links if link.startswith("socket:")}


def is_waiting(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_children_have_names_and_are_forked(two):
    process, web, part, _ = two
    until(lambda: (name_of(web), name_of(part)) == ("lqops-web", "lqops-part"), SOON)
    assert sorted(children_of(process.pid)) == sorted([web, part])  # no server that would fork for them
    assert Path(f"/proc/{part}/cmdline").read_bytes() == Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_children_end_with_a_killed_parent_and_the_port_is_free(two):
    process, web, part, port = two
    process.kill()
    process.wait()

    until(lambda: is_free(port), SOON)
    open_socket("127.0.0.1", port).close()
    until(lambda: not is_alive(web) and not is_alive(part), SOON)


def test_only_the_parent_and_the_web_process_hold_the_socket(two):
    process, web, part, _ = two
    [listening] = open_sockets(process.pid)
    assert listening in open_sockets(web)
    until(lambda: not open_sockets(part), SOON)  # it closes first what it was forked with


def test_killed_child_is_restarted_and_holds_no_other_lifeline(two):
    process, web, part, port = two
    os.kill(web, signal.SIGKILL)
    restarted = set()
    until(lambda: restarted.update(set(children_of(process.pid)) - {web, part}) or restarted)
    [again] = restarted
    until(lambda: name_of(again) == "lqops-web" and not is_free(port))
    process.kill()
    process.wait()

    until(lambda: not is_alive(again) and not is_alive(part), SOON)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_everything(two, number):
    process, web, part, _ = two
    process.send_signal(number)
    printed, errors = process.communicate(timeout=60)

    assert (process.returncode, json.loads(printed), errors) == (0, {"stopped": True}, "")
    assert not is_alive(web)
    assert not is_alive(part)


STOPPED_IN_A_DESTRUCTOR = """
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

sys.unraisablehook = lambda _: None
part = Child("part", ["shell", "-v0", "-c", "import time; time.sleep(600)"])
stop_on_signals()
try:
    with Supervisor([part], say=print) as children:
        last = Last()
        del last
        children.watch()
except Stopped:
    tell(stopped=True)
"""


def test_signal_while_an_object_is_destroyed_stops_everything():
    assert answer_of(STOPPED_IN_A_DESTRUCTOR) == {"stopped": True}


def test_stopped_child_is_killed():
    with two_children("from django.conf import settings\nsettings.LQOPS_STOP_SECONDS = 1\n" + TWO_CHILDREN) as started:
        process, _, part, _ = started
        os.kill(part, signal.SIGSTOP)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert not is_alive(part)
    assert time.monotonic() - began < 20


CONNECTION = """
with connection.cursor() as cursor:
    cursor.execute("SELECT 1")
opened = connection.connection
code = '''
import json
from django.db import connection, connections
kept = connection.settings_dict["CONN_MAX_AGE"]
print(json.dumps({"open": connection.connection is not None, "kept": kept}), flush=True)
'''
child = Child("part", ["shell", "-v0", "-c", code], connection_seconds=60)
child.start()
child._process.join()
"""


def test_child_has_no_connection_of_its_parent():
    assert answer_of(CONNECTION) == {"open": False, "kept": 60}


RANDOM = """
import random, secrets, uuid
def draw():
    return [random.random(), secrets.token_hex(8), str(uuid.uuid4())]
random.seed(7)
first = run_apart(draw)
random.seed(7)
tell(same=[a == b for a, b in zip(first, draw())])
"""


def test_forked_process_draws_its_own_random_numbers():
    assert answer_of(RANDOM) == {"same": [False, False, False]}


# --- One function in a process of its own ---

APART = """
from django.core.management import CommandError

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__("odd")

def fail():
    raise KeyError("absent")

def odd():
    raise Odd(1, 2)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

try:
    tell(result=run_apart({"pid": os.getpid, "fail": fail, "odd": odd, "die": die}[sys.argv[1]]), here=os.getpid())
except Exception as error:
    tell(error=repr(error), notes="".join(getattr(error, "__notes__", [])))
"""


def test_function_runs_in_another_process():
    found = answer_of(APART, "pid")
    assert found["result"] != found["here"]


def test_its_error_is_raised_with_its_traceback():
    found = answer_of(APART, "fail")
    assert found["error"] == "KeyError('absent')"
    assert "in fail" in found["notes"]


def test_error_that_cannot_be_copied_keeps_its_text():
    assert answer_of(APART, "odd")["error"] == "ChildError('Odd: odd')"


def test_killed_process_is_an_error():
    assert "ended with code -9" in answer_of(APART, "die")["error"]


STOPPED = """
stop_on_signals()
def wait():
    tell(pid=os.getpid())
    time.sleep(600)
try:
    run_apart(wait)
except Stopped:
    tell(stopped=True)
"""


STOPPED_WHILE_FORKING = """
stop_on_signals()
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    run_apart(lambda: time.sleep(600))
except Stopped:
    tell(stopped=True)
"""


def test_stop_in_the_middle_of_its_start_is_not_lost():
    with program(STOPPED_WHILE_FORKING) as process:
        printed, errors = process.communicate(timeout=60)

    assert (json.loads(printed), errors) == ({"stopped": True}, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_process_that_waits_for_it(number):
    with program(STOPPED) as process:
        pid = json.loads(process.stdout.readline())["pid"]
        process.send_signal(number)
        printed, errors = process.communicate(timeout=60)

    until(lambda: not is_alive(pid), SOON)
    assert errors == ""
    assert (printed != "") == (number == signal.SIGTERM)
