"""Hosts that a secret is bound to, and which destinations they cover."""

import pytest

from agents.policy.destinations import MOST_CHARS, BadHost, Destination, host_checked, is_bound
from tests.table import every_row

SHOP = Destination("shop.example.org", 443)


@every_row(
    ("host", "destination", "covers"),
    [
        ("shop.example.org", SHOP, True),
        ("shop.example.org", Destination("shop.example.org", 8443), True),
        ("shop.example.org", Destination("shop.example.org", 80, encrypted=False), False),
        ("shop.example.org", Destination("example.org", 443), False),
        ("shop.example.org", Destination("eshop.example.org", 443), False),
        ("shop.example.org", Destination("shop.example.org.evil.org", 443), False),
        ("shop.example.org", Destination("a.shop.example.org", 443), False),
        ("shop.example.org:8443", Destination("shop.example.org", 8443), True),
        ("shop.example.org:8443", SHOP, False),
        ("shop.example.org:8443", Destination("shop.example.org"), False),
        ("*.example.org", SHOP, True),
        ("*.example.org", Destination("a.b.example.org", 443), True),
        ("*.example.org", Destination("example.org", 443), False),
        ("*.example.org", Destination("evilexample.org", 443), False),
        ("*.example.org", Destination("*.example.org"), True),
        ("*.example.org", Destination("*.shop.example.org"), True),
        ("shop.example.org", Destination("*.example.org"), False),
        ("*.shop.example.org", Destination("*.example.org"), False),
        ("http://10.1.2.3:8080", Destination("10.1.2.3", 8080, encrypted=False), True),
        ("http://10.1.2.3:8080", Destination("10.1.2.3", 8080), True),
        ("http://10.1.2.3", Destination("10.1.2.4", 80, encrypted=False), False),
        ("[2001:db8:0::1]:443", Destination("2001:db8::1", 443), True),
        ("[2001:db8::1]", Destination("2001:db8::2", 443), False),
        ("*.org", SHOP, False),
        ("no host", SHOP, False),
    ],
)
def test_host_covers_what_it_names_and_nothing_else(host, destination, covers):
    assert is_bound([host], destination) is covers
    assert is_bound(["other.example.com", host], destination) is covers
    assert not is_bound([], destination)


@every_row(
    ("given", "kept"),
    [
        (" Shop.Example.ORG/ ", "shop.example.org"),
        ("HTTP://10.1.2.3:8080/", "http://10.1.2.3:8080"),
        ("*.example.org", "*.example.org"),
        ("localhost:8171", "localhost:8171"),
        ("[::1]", "[::1]"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_hosts_are_kept_in_one_form(given, kept):
    assert host_checked(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        "", "*", "*.", "*.org", "a.*.org", "*shop.example.org", "https://shop.example.org", "shop.example.org/path",
        "me@shop.example.org", "shop.example.org:0", "shop.example.org:65536", "shop.example.org:x", "bücher.example",
        "a b", "shop..example.org", "10.1.2", "10.1.2.300", "[1:2]", "a" * (MOST_CHARS + 1),
        "shop.example.org\nevil.org",
    ],
)  # fmt: skip
def test_what_names_no_host_is_refused(given):
    with pytest.raises(BadHost, match=r"is not a host such as shop\.example\.org"):
        host_checked(given)


def test_destinations_are_shown_and_recorded_without_what_labels_cannot_hold():
    assert str(Destination("2001:db8::1", 443, encrypted=False)) == "http://[2001:db8::1]:443"
    assert str(SHOP) == "shop.example.org:443"
    assert Destination("*.example.org").recorded == ".example.org"
    assert Destination("a" * 100 + ".example.org" * 10).recorded == ("a" * 100 + ".example.org" * 10)[-128:]
