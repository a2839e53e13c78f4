"""`manage.py up` on a new installation: real processes, a real port and a var folder of its own."""

import http.client
import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing, contextmanager
from importlib.util import find_spec
from urllib.parse import urlencode

import pytest
from django.db import connection

from tests.flows.processes import children_of, is_alive

from .processes import ROOT, command, environment, run

SHAPE = {"ok", "error", "database", "brakes", "walk", "audit", "pages"}
QUICK = {"LQOPS_WORKERS": "1", "LQOPS_SQLITE_SYNCHRONOUS": "NORMAL"}
RUNNING = re.compile(r"lqops is running +http://127\.0\.0\.1:(\d+)/")


@pytest.fixture(scope="module", params=["migrated", pytest.param("empty", marks=pytest.mark.long)])
def var(tmp_path_factory, django_db_setup, django_db_blocker, request):
    """One installation for the tests below: later tests use what the first one created."""
    var = tmp_path_factory.mktemp("var")
    if request.param == "migrated":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(var / "lqops.sqlite3")])
    return var


@contextmanager
def running(env, *arguments):
    """The process, its port and everything that it printed until it was ready."""
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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def sign_in(port, password):
    response, text = ask(port, "/login/")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', text)[1]
    cookie = response.headers["Set-Cookie"].partition(";")[0]
    form = urlencode({"csrfmiddlewaretoken": token, "login": "admin", "password": password, "next": "/admin/"})
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    return ask(port, "/login/", method="POST", body=form, headers=headers)[0]


def open_stream(port, *, cookies):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    session = re.search(r"(sessionid=\w+)", " ".join(cookies))[1]
    connection.request("GET", "/api/v1/events/stream", headers={"Cookie": session})
    response = connection.getresponse()
    assert (response.status, response.readline()) == (200, b"retry: 1000\n")
    return connection


def test_first_run_prints_a_password_that_signs_in_and_stops_at_ctrl_c(var):
    with running(environment(var, **QUICK)) as (process, port, printed):
        password = re.search(r"password +(\S+)", printed)[1]
        login = sign_in(port, password)
        page, text = ask(port, "/login/")
        style, _ = ask(port, re.search(r'href="(/static/[^"]+\.css)"', text)[1])
        health, health_text = ask(port, "/healthz")
        parts = children_of(process.pid)
        address = (var / "address").read_text()
        listening = open_stream(port, cookies=login.headers.get_all("Set-Cookie"))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        listening.close()

    assert (login.status, login.headers["Location"]) == (302, "/admin/")
    assert page.status == style.status == health.status == 200
    assert json.loads(health_text)["ok"] is True
    assert "/admin/password_change/" in printed
    assert address == f"http://127.0.0.1:{port}"
    assert not (var / "address").exists()
    assert process.returncode == 0, rest
    assert "Traceback" not in printed + rest
    assert "ERROR" not in rest  # also the open stream has ended by itself
    assert len(parts) >= 3  # web, workers, ticker
    assert not any(is_alive(pid) for pid in parts)


def test_later_check_behind_tls_reports_and_creates_no_user(var):
    done = run(
        "up",
        "--check",
        env=environment(var, LQOPS_HTTPS="1", LQOPS_ALLOWED_HOSTS="lqops.example.org", **QUICK),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "password" not in done.stdout
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["ok"], summary["error"], summary.keys()) == (True, "", SHAPE)
    assert summary["audit"]["verified"] is True
    assert summary["pages"]["/login/"] == 200
    assert any(path.startswith("/static/") for path in summary["pages"])
    assert set(summary["brakes"].values()) == {"as it should be"}


def test_there_is_one_admin_who_has_opted_in(var):
    with closing(sqlite3.connect(var / "lqops.sqlite3")) as database:
        joined = "auth_user JOIN agents_profile ON auth_user.id = user_id"
        found = database.execute(f"SELECT username, is_superuser, opted_in FROM {joined}").fetchall()

    assert found == [("admin", 1, 1)]


AWAY = "The database cannot be used" if find_spec("psycopg") else "install its driver"
UNFIT = {
    "setting": ({"LQOPS_WORKERS": "many"}, "LQOPS_WORKERS"),
    "database": ({"LQOPS_DATABASE_URL": "postgres://x@127.0.0.1:1/n"}, AWAY),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", UNFIT)
def test_check_that_cannot_start_prints_its_json(what, tmp_path):
    values, words = UNFIT[what]
    done = run("up", "--check", env=environment(tmp_path, **values))

    assert done.returncode == 1
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["ok"], summary.keys()) == (False, SHAPE)
    assert (summary["walk"]["ok"], summary["audit"]["verified"]) == (False, False)
    assert words in summary["error"]
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_other_errors_go_only_to_stderr(tmp_path):
    done = run("up", env=environment(tmp_path, LQOPS_WORKERS="many"))

    assert (done.returncode, done.stdout) == (1, "")
    assert "LQOPS_WORKERS" in done.stderr
