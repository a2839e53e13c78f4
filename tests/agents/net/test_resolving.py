"""DNS lookups: every address counts, time is limited, and nothing is cached."""

import socket
import threading
import time

import pytest

from agents.net import UrlRefused, check_url, urls
from tests.agents.net.hostile import PUBLIC, PUBLIC_V6


def reason_of(resolve=None, **options):
    with pytest.raises(UrlRefused) as refused:
        check_url("http://example.com/", resolve=resolve, **options)
    return refused.value.reason


def raising(error):
    def resolve(host):
        raise error

    return resolve


def test_system_resolver_is_the_default(monkeypatch):
    def getaddrinfo(host, port, **options):
        assert (host, port, options) == ("example.com", None, {"type": socket.SOCK_STREAM})
        found = [(PUBLIC_V6, 0, 0, 0), (PUBLIC, 0), (PUBLIC, 0)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", sockaddr) for sockaddr in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    assert check_url("http://example.com/").addresses == (PUBLIC_V6, PUBLIC)


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), TimeoutError(), UnicodeError("label too long")])
def test_name_without_an_address_is_refused(error):
    assert reason_of(raising(error)) == "no_address"
    assert reason_of(lambda host: []) == "no_address"


def test_error_of_the_resolver_is_raised():
    with pytest.raises(ZeroDivisionError):
        check_url("http://example.com/", resolve=raising(ZeroDivisionError()))


def test_hanging_lookup_is_abandoned():
    go_on = threading.Event()
    began = time.monotonic()

    assert reason_of(lambda host: go_on.wait(60) and [PUBLIC], lookup_seconds=0.2) == "lookup_timeout"
    assert time.monotonic() - began < 30
    go_on.set()


def test_number_of_hanging_lookups_is_bounded(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(urls, "_LOOKUPS", threading.BoundedSemaphore(1))

    assert reason_of(lambda host: go_on.wait(60) and [PUBLIC], lookup_seconds=0.1) == "lookup_timeout"
    assert reason_of(lambda host: [PUBLIC], lookup_seconds=0.1) == "lookup_timeout"
    go_on.set()
    assert check_url("http://example.com/", resolve=lambda host: [PUBLIC]).addresses == (PUBLIC,)


def test_every_check_looks_the_name_up_again():
    later = iter([[PUBLIC], ["127.0.0.1"]])

    assert check_url("http://example.com/", resolve=lambda host: next(later)).addresses == (PUBLIC,)
    assert reason_of(lambda host: next(later)) == "address"
