"""Connections go to the address that was checked, even when the name changes a moment later."""

import socket

import pytest

from agents.net import FetchFailed, Limits, UrlRefused
from tests.agents.net.world import FIRST, OK, SECOND, THIRD, redirect

SITE = "http://site.example.com/"


def test_name_that_changes_after_the_check_keeps_its_address(fetch, world):
    world.serve("site.example.com", OK)
    later = iter([[FIRST], ["127.0.0.1"], ["127.0.0.1"]])

    def rebinding(host):
        return next(later)

    assert fetch(SITE, client={"resolve": rebinding}).content == b"ok"
    assert world.dialled == [(FIRST, 80)]
    with pytest.raises(UrlRefused):
        fetch(SITE, client={"resolve": rebinding})
    assert world.dialled == [(FIRST, 80)]


def test_name_that_changes_between_redirects_is_refused(fetch, world):
    world.serve("site.example.com", redirect("/next"))
    later = iter([[FIRST], ["10.0.0.1"]])

    with pytest.raises(UrlRefused) as refused:
        fetch(SITE, client={"resolve": lambda host: next(later)})

    assert refused.value.reason == "address"
    assert world.dialled == [(FIRST, 80)]


def test_connecting_makes_no_second_lookup(fetch, world, monkeypatch):
    world.serve("site.example.com", OK)
    real = socket.getaddrinfo

    def only_numbers(host, *args, **kwargs):
        assert host == "127.0.0.1"
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", only_numbers)

    assert fetch(SITE).content == b"ok"


def test_next_checked_address_is_tried_after_a_failure(fetch, world):
    world.names["site.example.com"] = [THIRD, SECOND, FIRST]
    for address in (THIRD, SECOND):
        world.serve("site.example.com", OK, address).refuse()
    world.serve("site.example.com", OK)

    assert fetch(SITE).content == b"ok"
    assert world.dialled == [(THIRD, 80), (SECOND, 80), (FIRST, 80)]


def test_unreachable_host_fails(fetch, world):
    world.names["site.example.com"] = [f"93.184.216.{n}" for n in range(1, 9)]
    for address in world.names["site.example.com"]:
        world.serve("site.example.com", OK, address).refuse()

    with pytest.raises(FetchFailed) as failed:
        fetch(SITE)

    assert failed.value.reason == "connect"
    assert len(world.dialled) == 4


def test_literal_address_needs_no_lookup(fetch, world):
    server = world.serve("unused", OK, THIRD, 8080)

    assert fetch(f"http://[{THIRD}]:8080/").content == b"ok"
    assert world.asked == []
    assert b"host: [%s]:8080\r\n" % THIRD.encode() in server.requests[0].lower()


def test_environment_proxies_and_credentials_are_ignored(fetch, world, monkeypatch, tmp_path):
    server = world.serve("site.example.com", OK)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("machine site.example.com login me password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))

    assert fetch(SITE).content == b"ok"
    assert b"authorization" not in server.requests[0].lower()


def test_unanswered_connection_ends_at_the_deadline(fetch, world):
    """The queue of the listener is full, so that the kernel leaves further connections waiting."""
    world.names["site.example.com"] = [FIRST]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        try:
            with pytest.raises(FetchFailed) as failed:
                fetch(SITE, client={"reroute": lambda address, port: place}, limits=Limits(deadline=0.5))
        finally:
            for one in waiting:
                one.close()

    assert failed.value.reason == "deadline"
