"""The web process as a child process: it answers or fails, and it always ends."""

import socket
import threading

import pytest

from agents.management import supervisor
from agents.management.supervisor import ChildError, Supervisor, Web, open_socket
from tests.flows.processes import is_alive, until


class Serving:
    """A web process inside a block, under the supervisor that `up` uses."""

    def __init__(self, name, host="127.0.0.1"):
        self._listening = open_socket(host, 0)
        self.web = Web(self._listening, f"tests.lqops.applications:{name}")
        self.said = []
        self.children = Supervisor([self.web], say=self.said.append)

    def __enter__(self):
        self.children.__enter__()
        return self

    def __exit__(self, *_):
        self.children.__exit__(None, None, None)
        self._listening.close()


def test_process_listening_everywhere_answers_on_loopback_inside_the_block_and_ends_after_it():
    with Serving("polite", host="0.0.0.0") as serving:
        serving.web.wait_until_it_answers()

        assert serving.web.address == f"http://127.0.0.1:{serving.web.port}/"
        assert serving.web.get("/") == (200, "well")
        pid = serving.web.pid

    assert not is_alive(pid)


def test_ipv6_address_is_bracketed():
    with open_socket("::1", 0) as listening:
        child = Web(listening, "x:y")

        assert child.address == f"http://[::1]:{child.port}/"


def test_process_that_ends_before_it_answers_fails():
    with Serving("absent") as serving, pytest.raises(ChildError, match="ended with code"):
        serving.web.wait_until_it_answers()


def test_process_that_does_not_answer_in_time_fails(monkeypatch, settings):
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.3)
    settings.LQOPS_STOP_SECONDS = 0.2
    with Serving("silent") as serving, pytest.raises(ChildError, match=r"did not answer within 0\.3 seconds"):
        serving.web.wait_until_it_answers()


def test_ended_process_is_restarted_on_the_same_port():
    with Serving("dying") as serving:
        first = serving.web.pid
        with pytest.raises(OSError):  # noqa: PT011 however the connection breaks
            serving.web.get("/")
        until(lambda: serving.web.exit_code() == 7)
        serving.children.check()
        assert "web: ended with code 7" in serving.said[0]
        until(lambda: serving.children.check() or serving.web.pid not in {None, first})

    assert serving.said[-1] == "web: started"


def test_process_that_does_not_stop_is_killed(settings):
    settings.LQOPS_STOP_SECONDS = 0.2
    with Serving("silent_after_health") as serving:
        serving.web.wait_until_it_answers()
        hanging = socket.create_connection(("127.0.0.1", serving.web.port))
        hanging.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        serving.web.get("/healthz")
        process = serving.web._process

    hanging.close()
    assert process.exitcode == -9


def test_invalid_http_response_is_a_connection_error():
    with open_socket("127.0.0.1", 0) as listening:
        child = Web(listening, "x:y")

        def babble():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"SSH-2.0\r\n\r\n")

        talker = threading.Thread(target=babble)
        talker.start()
        with pytest.raises(ConnectionError):
            child.get("/")
        talker.join()
