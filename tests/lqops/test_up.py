"""`manage.py up` as a newcomer runs it: real processes, a real port, a var folder of its own."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from .processes import ROOT, command, environment, run, run_python

RUNNING = re.compile(r"lqops is running +http://127\.0\.0\.1:(\d+)/")


@pytest.fixture(scope="module")
def var(tmp_path_factory):
    """One installation for the tests below: the later ones find what the first has made."""
    return tmp_path_factory.mktemp("var")


@contextmanager
def running(env, *arguments):
    """Yields the process, its port and everything that it printed until it was ready."""
    process = subprocess.Popen(
        command("up", "--port", "0", *arguments),
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        found = RUNNING.search(printed)
        assert found, printed
        yield process, int(found[1]), printed
    finally:
        process.kill()
        process.communicate()


def ask(port, path, *, method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def sign_in(port, password):
    response, text = ask(port, "/admin/login/")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', text)[1]
    cookie = response.headers["Set-Cookie"].partition(";")[0]
    form = urlencode({"csrfmiddlewaretoken": token, "username": "admin", "password": password, "next": "/admin/"})
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    return ask(port, "/admin/login/?next=/admin/", method="POST", body=form, headers=headers)[0]


def gone(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_first_run_prints_a_password_that_signs_in_and_stops_at_ctrl_c(var):
    with running(environment(var)) as (process, port, printed):
        password = re.search(r"password +(\S+)", printed)[1]
        login = sign_in(port, password)
        page, text = ask(port, "/admin/login/")
        style, _ = ask(port, re.search(r'href="(/static/[^"]+\.css)"', text)[1])
        health, told = ask(port, "/healthz")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)

    assert (login.status, login.headers["Location"]) == (302, "/admin/")
    assert page.status == style.status == health.status == 200
    assert json.loads(told)["ok"] is True
    assert "/admin/password_change/" in printed
    assert process.returncode == 0, rest
    assert "Traceback" not in printed + rest
    assert gone(port)


def test_later_run_keeps_the_user_and_prints_no_password_and_stops_at_sigterm(var):
    with running(environment(var)) as (process, port, printed):
        process.terminate()
        rest, _ = process.communicate(timeout=30)

    assert "exists already" in printed
    assert not re.search(r"password +\S+\n", printed)
    assert process.returncode == 0, rest
    assert "Stopped." in rest
    assert gone(port)


def test_first_admin_has_opted_in(var):
    code = (
        "import django; django.setup()\n"
        "from agents.models import Profile\n"
        "print([(p.user.username, p.user.is_superuser, p.opted_in) for p in Profile.objects.all()])"
    )

    done = run_python(code, env=environment(var, DJANGO_SETTINGS_MODULE="lqops.settings"))

    assert done.stdout.strip() == "[('admin', True, True)]", done.stderr


def test_web_process_ends_when_up_is_killed(var):
    with running(environment(var)) as (process, port, _):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 30
        while not (ended := gone(port)) and time.monotonic() < deadline:
            pass

    assert ended


def test_taken_port_is_named_before_anything_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("up", "--port", port, env=environment(tmp_path))

    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr
    assert not (tmp_path / "lqops.sqlite3").exists()


@pytest.mark.parametrize("port", ["web", "65536", "-1"])
def test_what_is_no_port_is_refused(tmp_path, port):
    done = run("up", f"--port={port}", env=environment(tmp_path))

    assert done.returncode != 0
    assert "is not a port" in done.stderr


def test_unreachable_database_is_named(tmp_path):
    url = f"sqlite:///{tmp_path / 'absent/x.sqlite3'}"

    done = run("up", "--port", "0", env=environment(tmp_path, LQOPS_DATABASE_URL=url))

    assert done.returncode == 1
    assert "LQOPS_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_tells_what_it_found_and_can_be_repeated(var):
    first = run("up", "--check", env=environment(var))
    second = run("up", "--check", env=environment(var))

    for done in (first, second):
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert summary["ok"] is True
        assert summary["audit"]["verified"] is True
        assert summary["pages"]["/admin/login/"] == 200
        assert any(path.startswith("/static/") for path in summary["pages"])
        assert set(summary["brakes"].values()) == {"as it should be"}


def test_check_passes_behind_tls_and_another_name(var):
    done = run("up", "--check", env=environment(var, LQOPS_HTTPS="1", LQOPS_ALLOWED_HOSTS="lqops.example.org"))

    assert done.returncode == 0, done.stdout + done.stderr


# A wheel within the works: the same command in a process whose R6 lets everything pass.
BROKEN_BRAKE = """
import sys
import django; django.setup()
from agents import brakes
brakes.contextual = lambda intent, phase: None
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "up", *sys.argv[1:]])
"""


BROKEN_WEB = """
import sys
import django; django.setup()
from django.conf import settings
settings.ASGI_APPLICATION = "lqops.absent.application"
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "up", *sys.argv[1:]])
"""


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--check"]])
def test_up_does_not_start_with_a_brake_that_lets_pass(var, arguments):
    code = f"import sys; sys.argv[1:] = {arguments!r}\n{BROKEN_BRAKE}"

    done = run_python(code, env=environment(var, DJANGO_SETTINGS_MODULE="lqops.settings"))

    assert done.returncode == 1, done.stdout
    assert "lqops is running" not in done.stdout
    assert "R6" in done.stderr + done.stdout


def test_check_fails_when_the_record_was_changed(tmp_path):
    env = environment(tmp_path, DJANGO_SETTINGS_MODULE="lqops.settings")
    assert run("migrate", env=env).returncode == 0
    tamper = (
        "import django; django.setup()\n"
        "from django.db import connection\n"
        "from audit import recorder, triggers\n"
        "from audit.clock import utc_now\n"
        "from audit.models import AuditEvent\n"
        "recorder.append('system', 'organisation.released', now=utc_now(), details={'halt_id': 1})\n"
        "triggers.remove(connection)\n"
        "AuditEvent.objects.update(actor='user:7')\n"
        "triggers.install(connection)\n"
    )
    changed = run_python(tamper, env=env)
    assert changed.returncode == 0, changed.stderr

    done = run("up", "--check", env=env)

    assert done.returncode == 1
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["ok"] is False
    assert summary["audit"]["verified"] is False


def test_check_fails_when_the_checkpoints_cannot_be_read(var, tmp_path):
    done = run("up", "--check", env=environment(var, LQOPS_CHECKPOINT_FILE=str(tmp_path)))

    assert done.returncode == 1
    audit = json.loads(done.stdout.splitlines()[-1])["audit"]
    assert audit["verified"] is False
    assert "cannot be read" in audit["error"]


def test_web_process_that_cannot_start_ends_up_with_a_plain_error(var):
    code = f"import sys; sys.argv[1:] = ['--port', '0']\n{BROKEN_WEB}"

    done = run_python(code, env=environment(var, DJANGO_SETTINGS_MODULE="lqops.settings"))

    assert done.returncode == 1
    assert "The web process ended with code" in done.stderr
    assert "lqops is running" not in done.stdout
