"""The web process as a child: it answers, or it is known to have failed; and it always ends."""

import socket
import threading

import pytest

from agents.management import web
from agents.management.web import WebError, WebProcess, open_socket
from lqops.wsgi import application

from .processes import ROOT


def process(name, host="127.0.0.1"):
    return WebProcess(open_socket(host, 0), f"tests.lqops.applications:{name}", root=ROOT)


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_answers_inside_the_block_and_is_gone_after_it():
    with process("polite") as child:
        child.wait_until_it_answers()

        assert child.get("/") == (200, "well")

    assert not is_open(child.port)


def test_listening_everywhere_is_asked_on_loopback():
    with process("polite", host="0.0.0.0") as child:
        child.wait_until_it_answers()

        assert child.address == f"http://127.0.0.1:{child.port}/"


def test_address_of_version_six_is_bracketed():
    with open_socket("::1", 0) as listening:
        child = WebProcess(listening, "x:y", root=ROOT)

        assert child.address == f"http://[::1]:{child.port}/"


def test_process_that_ends_before_it_answers_is_a_failure():
    with process("absent") as child, pytest.raises(WebError, match="ended with code"):
        child.wait_until_it_answers()


def test_process_that_does_not_answer_in_time_is_a_failure(monkeypatch):
    monkeypatch.setattr(web, "START_SECONDS", 0.3)
    monkeypatch.setattr(web, "STOP_SECONDS", 0.2)
    with process("silent") as child, pytest.raises(WebError, match=r"did not answer within 0\.3 seconds"):
        child.wait_until_it_answers()


def test_process_that_ends_by_itself_is_a_failure():
    with process("dying") as child:
        with pytest.raises(ConnectionError):
            child.get("/")
        with pytest.raises(WebError, match="ended by itself, with code 7"):
            child.wait()


def test_process_that_does_not_stop_when_asked_is_killed(monkeypatch):
    monkeypatch.setattr(web, "STOP_SECONDS", 0.2)
    with process("silent_after_health") as child:
        child.wait_until_it_answers()
        hanging = socket.create_connection(("127.0.0.1", child.port))
        hanging.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
        child.get("/healthz")

    hanging.close()
    assert child._process.returncode == -9


def test_answer_that_is_no_http_is_an_error_of_the_connection():
    with open_socket("127.0.0.1", 0) as listening:
        child = WebProcess(listening, "x:y", root=ROOT)

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


def test_wsgi_servers_find_an_application():
    assert callable(application)
