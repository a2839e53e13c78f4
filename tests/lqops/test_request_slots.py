"""A web process works on a limited number of requests at once, so its database connections are bounded."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from django.db import DatabaseError, close_old_connections, connection, connections, transaction
from django.http import HttpResponse
from django.test import AsyncRequestFactory

from agents.api import sse
from agents.models import AgentSession, Collection
from lqops import web as web_process
from lqops.web import LimitedHandler
from tests.factories import make_session, make_user
from tests.flows import processes
from tests.lqops.listening import key_of, let_in

REQUESTS = 40


class Work:
    """Stands in for everything inside the handler: each request works until the gate opens."""

    def __init__(self):
        self.gate = threading.Event()
        self.counting = threading.Lock()
        self.at_work = self.most = 0
        self.threads = set()

    def __call__(self, _request):
        with self.counting:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            self.threads.add(threading.get_ident())
        assert self.gate.wait(60)
        with self.counting:
            self.at_work -= 1
        return HttpResponse("done")


@pytest.fixture
def handler(settings):
    settings.LQOPS_WEB_CONNECTIONS = 3
    return LimitedHandler()


@pytest.fixture
def work(handler, monkeypatch):
    work = Work()
    monkeypatch.setattr(handler, "get_response", work)
    yield work
    work.gate.set()


async def until(condition):
    await asyncio.to_thread(processes.until, condition)


def test_requests_wait_for_a_slot_and_halts_and_probes_have_their_own(handler, work):
    async def scenario():
        make = AsyncRequestFactory()

        def ask(path):
            return asyncio.create_task(handler.get_response_async(make.get(path)))

        usual = [ask("/api/v1/me") for _ in range(10)]
        await until(lambda: work.at_work == 3)
        urgent = [ask(path) for path in ("/api/v1/halt", "/healthz")]
        await until(lambda: work.at_work == 5)
        work.gate.set()
        answers = await asyncio.gather(*usual, *urgent)
        assert [answer.status_code for answer in answers] == [200] * 12
        assert work.most == 5

    asyncio.run(scenario())


def test_request_that_waits_too_long_is_told_to_come_back(handler, work, monkeypatch):
    async def scenario():
        monkeypatch.setattr(web_process, "SLOT_SECONDS", 0.01)
        make = AsyncRequestFactory()
        first = [asyncio.create_task(handler.get_response_async(make.get("/"))) for _ in range(3)]
        await until(lambda: work.at_work == 3)
        for path, kind in (("/api/v1/me", "application/json"), ("/admin/", "text/html; charset=utf-8")):
            refused = await handler.get_response_async(make.get(path))
            assert (refused.status_code, refused["Retry-After"], refused["Content-Type"]) == (503, "5", kind)
        work.gate.set()
        await asyncio.gather(*first)
        assert (await handler.get_response_async(make.get("/"))).status_code == 200

    asyncio.run(scenario())


def test_next_request_has_the_thread_of_the_last_until_it_has_rested_for_long(handler, work, monkeypatch):
    work.gate.set()

    async def scenario():
        make = AsyncRequestFactory()
        for _ in range(3):
            await handler.get_response_async(make.get("/"))
        assert len(work.threads) == 1
        [thread] = (one for one in threading.enumerate() if one.ident in work.threads)
        monkeypatch.setattr(web_process, "KEPT_SECONDS", 0.01)
        await handler.get_response_async(make.get("/"))
        await until(lambda: not thread.is_alive())
        assert (await handler.get_response_async(make.get("/"))).status_code == 200

    asyncio.run(scenario())


def test_request_of_a_client_that_has_left_is_done_in_its_slot(handler, work):
    async def scenario():
        make = AsyncRequestFactory()
        left = asyncio.create_task(handler.get_response_async(make.get("/")))
        await until(lambda: work.at_work == 1)
        left.cancel()
        others = [asyncio.create_task(handler.get_response_async(make.get("/"))) for _ in range(3)]
        await until(lambda: work.at_work == 3)
        assert not left.done()  # its body is not closed, and the server does not end
        work.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert [answer.status_code for answer in await asyncio.gather(*others)] == [200] * 3
        assert work.most == 3

    asyncio.run(scenario())


def in_a_thread(work):
    """As in that of a request: with connections of its own, which it may keep."""

    def whole():
        try:
            return work()
        finally:
            for database in connections.all(initialized_only=True):
                database.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(whole).result(60)


def asks():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()


@pytest.mark.django_db(transaction=True)
def test_connection_in_the_middle_of_a_transaction_is_not_kept():
    def work():
        asks()
        opened = connection.connection
        transaction.atomic().__enter__()
        web_process._keep_connections()
        assert asks() == (1,)
        return connection.in_atomic_block or connection.connection is opened

    assert not in_a_thread(work)


@pytest.mark.django_db(transaction=True)
def test_connection_that_is_kept_is_the_next_one():
    def work():
        asks()
        opened = connection.connection
        web_process._keep_connections()
        close_old_connections()
        web_process._try_connections()
        return connection.connection is opened

    assert in_a_thread(work)


@pytest.mark.django_db(transaction=True)
def test_what_a_client_has_asked_for_that_left_at_once_is_done(http):
    body = json.dumps({"name": "From a client in a hurry"})
    lines = [
        "POST /api/v1/collections HTTP/1.1",
        f"Host: {http.base_url.host}",
        f"Authorization: Bearer {key_of(make_user(is_superuser=True))}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection((http.base_url.host, http.base_url.port)) as client:
        client.sendall("\r\n".join([*lines, "", body]).encode())
    processes.until(Collection.objects.exists)


ON_POSTGRESQL = pytest.mark.skipif(connection.vendor != "postgresql", reason="the connection is to a server")


@pytest.fixture
def lines(monkeypatch):
    """Passes on what is said between connections of threads and the server, until it falls silent."""
    params = {"host": "127.0.0.1", "port": 5432} | connection.get_connection_params()
    listening = socket.create_server(("127.0.0.1", 0))
    silent, ends = threading.Event(), []

    def pass_on(here, there):
        with suppress(OSError):
            while data := here.recv(65_536):
                if not silent.is_set():
                    there.sendall(data)

    def serve():
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection((params["host"], params["port"]))
                ends.extend([here, there])
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=pass_on, args=(one, other), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", listening.getsockname()[1])
    yield silent
    for end in [listening, *ends]:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@pytest.mark.postgres
@ON_POSTGRESQL
@pytest.mark.django_db(transaction=True)
def test_kept_connection_of_a_server_that_falls_silent_is_closed_in_time(lines, monkeypatch):
    monkeypatch.setattr(web_process, "ANSWER_SECONDS", 0.5)

    def work():
        asks()
        web_process._keep_connections()
        web_process._try_connections()
        assert connection.connection is not None
        lines.set()
        began = time.monotonic()
        web_process._try_connections()
        return connection.connection is None, time.monotonic() - began < 30

    assert in_a_thread(work) == (True, True)


@pytest.mark.postgres
@ON_POSTGRESQL
@pytest.mark.django_db(transaction=True)
def test_connection_in_a_transaction_that_django_does_not_know_is_closed():
    def work():
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
        web_process._keep_connections()
        web_process._try_connections()
        return connection.connection is None

    assert in_a_thread(work)


@pytest.mark.postgres
@ON_POSTGRESQL
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("swallowed", ["SELECT nothing_of_that_name", "SELECT 1"])
def test_connection_is_made_anew_whatever_the_last_request_has_done(swallowed):
    def work():
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute(swallowed)
        web_process._keep_connections()
        opened = connection.connection
        pids.append(opened.info.backend_pid)
        kept.set()
        assert closed.wait(60)
        web_process._try_connections()
        assert asks() == (1,)
        return connection.connection is not opened

    pids, kept, closed = [], threading.Event(), threading.Event()

    def end():
        assert kept.wait(60)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", pids)
        connection.close()
        closed.set()

    ending = threading.Thread(target=end)
    ending.start()
    assert in_a_thread(work)
    ending.join()


@pytest.mark.postgres
@pytest.mark.skipif(connection.vendor != "postgresql", reason="the server counts its connections")
@pytest.mark.django_db(transaction=True)
def test_connections_of_a_process_under_load_and_streams_are_bounded(http, settings):
    owner = make_user(is_superuser=True)
    session = make_session(owner=owner)
    headers = {"Authorization": f"Bearer {key_of(owner)}"}

    def connections():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return cursor.fetchone()[0]

    def ask(_):
        return httpx.get(http.base_url.join("/api/v1/sessions"), headers=headers, timeout=60).status_code

    seen = []
    address = f"/api/v1/sessions/{session.public_id}/stream"
    with let_in(http, address, headers=headers), ThreadPoolExecutor(REQUESTS) as pool:
        answers = [pool.submit(ask, number) for number in range(REQUESTS)]
        while not all(answer.done() for answer in answers):
            seen.append(connections())
        assert {answer.result() for answer in answers} == {200}
    AgentSession.objects.all().delete()

    stand_in = 1
    most = settings.LQOPS_WEB_CONNECTIONS + 2 * web_process.RESERVED_SLOTS + sse.READERS + stand_in
    assert 2 <= max(seen) <= most < REQUESTS


@pytest.fixture
def asked(http):
    """Asks the web process as its user, over a connection that stays."""
    headers = {"Authorization": f"Bearer {key_of(make_user(is_superuser=True))}"}
    return lambda: http.get("/api/v1/me", headers=headers).status_code


def connections_of_others():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in cursor.fetchall()}


@pytest.mark.postgres
@pytest.mark.skipif(connection.vendor != "postgresql", reason="the server names its connections")
@pytest.mark.django_db(transaction=True)
def test_requests_share_a_connection_and_one_that_the_server_has_closed_is_made_anew(asked):
    assert asked() == 200
    kept = connections_of_others()
    assert [asked() for _ in range(5)] == [200] * 5
    kept &= connections_of_others()
    assert kept
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s) pid", [list(kept)])
    assert [asked() for _ in range(5)] == [200] * 5
    assert not connections_of_others() & kept
