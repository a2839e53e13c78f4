"""Public addresses, and the allow-lists of operators."""

from ipaddress import ip_address

import pytest
from django.core.exceptions import ImproperlyConfigured

from agents.net import AsyncSafeClient, SafeClient, UrlRefused, check_url
from agents.net.transport import Deadline
from agents.net.urls import NOT_PUBLIC_V4, NOT_PUBLIC_V6, is_public, read_address
from tests.agents.net.hostile import INSIDE, INSIDE_V6, PUBLIC
from tests.table import every_row


@every_row("text", [*INSIDE, *INSIDE_V6])
def test_special_addresses_are_not_public(text):
    assert not is_public(ip_address(text))


@every_row("network", [*NOT_PUBLIC_V4, *NOT_PUBLIC_V6])
def test_special_networks_are_not_public_to_their_edges(network):
    assert not is_public(network[0])
    assert not is_public(network[-1])


@every_row(
    "text",
    ["1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
     "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
     "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
     "2000::", "2001:200::", "2001:db7::1", "2001:db9::1", "2003::1", "2606:4700::1111", "3ff0::1"],
)  # fmt: skip
def test_neighbours_of_special_networks_are_public(text):
    assert is_public(ip_address(text))


@every_row("text", ["", "1.2.3", "01.2.3.4", "1.2.3.4 ", "fe80::1%eth0", "example.com", "１.2.3.4"])  # noqa: RUF001
def test_only_plain_addresses_are_parsed(text):
    assert read_address(text) is None


def verdict(url, answers=(PUBLIC,), *, hosts=(), networks=()):
    try:
        check_url(url, resolve=lambda host: list(answers), allow_hosts=hosts, allow_networks=networks)
    except UrlRefused as refused:
        return refused.reason
    return "allowed"


@every_row(
    ("url", "answers"),
    [
        ("http://wiki/", ["10.0.0.5"]),
        ("http://WIKI:8080/", ["127.0.0.1"]),
        ("http://a.intra.example.com/", [PUBLIC, "192.168.0.1"]),
        ("http://x.y.corp/", ["fd00::1"]),
        ("http://localhost/", ["::1"]),
        ("http://127.0.0.1:8000/", []),
        ("http://[::1]:8000/", []),
    ],
)
def test_allowed_host_may_be_private(url, answers):
    hosts = ["Wiki", "*.intra.example.com", "*.corp", "localhost", "127.0.0.1", "::1"]

    assert verdict(url, answers, hosts=hosts) == "allowed"
    assert verdict(url, answers) in {"host_local", "address"}


@pytest.mark.parametrize("place", ["127.0.0.1:8765", "[::1]:8765", "wiki:8765"])
def test_one_port_of_a_host_can_be_allowed(place):
    answers = ["10.0.0.1"] if "wiki" in place else []

    assert verdict(f"http://{place}/x", answers, hosts=[place]) == "allowed"
    for other in (place.replace("8765", "8766"), place.removesuffix(":8765")):
        assert verdict(f"http://{other}/x", answers, hosts=[place]) in {"host_local", "address"}


@every_row(
    ("url", "answers", "outcome"),
    [
        ("http://app.example.com/", ["10.1.2.3"], "allowed"),
        ("http://app.example.com/", [PUBLIC, "10.1.2.3"], "allowed"),
        ("http://app.example.com/", [PUBLIC], "allowed"),
        ("http://10.1.255.255/", [], "allowed"),
        ("http://[fd12::1]/", [], "allowed"),
        ("http://10.2.0.0/", [], "address"),
        ("http://app.example.com/", ["10.1.2.3", "10.2.0.1"], "address"),
        ("http://[::ffff:10.1.2.3]/", [], "address"),
        ("http://167838211/", [], "host_form"),
        ("http://wiki/", ["10.1.2.3"], "host_local"),
    ],
)
def test_allowed_network_admits_only_its_addresses(url, answers, outcome):
    assert verdict(url, answers, networks=["10.1.0.0/16", "fd12::/16"]) == outcome


@every_row(
    ("url", "reason"),
    [
        ("ftp://wiki/", "scheme"),
        ("http://u:p@wiki/", "credentials"),
        ("http://wiki/a b", "characters"),
        ("http://wiki./", "host_form"),
        (f"http://wiki/{'a' * 9000}", "too_long"),
        ("http://wiki:6379/", "port"),
        ("http://deep.wiki/", "host_form"),
        ("http://corp/", "host_local"),
        ("http://xcorp/", "host_local"),
    ],
)
def test_other_rules_apply_to_allowed_hosts(url, reason):
    found = verdict(url, ["fe80::1%eth0"] if "deep" in url else ["10.0.0.1"], hosts=["wiki", "*.corp"])

    assert found == ("address" if "deep" in url else reason)


def test_allow_lists_are_those_of_the_settings_unless_they_are_given(settings):
    settings.LQOPS_NET_ALLOW_HOSTS = ["wiki"]
    settings.LQOPS_NET_ALLOW_NETWORKS = ["10.0.0.0/8"]
    for url in ("http://wiki/", "http://10.1.2.3/"):
        assert check_url(url, resolve=lambda host: ["127.0.0.1"])
        for client in (
            SafeClient(allow_hosts=[], allow_networks=[]),
            AsyncSafeClient(allow_hosts=[], allow_networks=[]),
        ):
            with pytest.raises(UrlRefused):
                client.check(url, Deadline(5))


def test_unreadable_address_is_refused_for_an_allowed_host():
    assert verdict("http://wiki/", ["fe80::1%eth0"], hosts=["wiki"]) == "address"


@pytest.mark.parametrize("entry", ["*", "*.", "", ".", "*.*", "a.*", "*example.com"])
def test_entry_that_allows_everything_is_an_error(settings, entry):
    settings.LQOPS_NET_ALLOW_HOSTS = ["wiki", entry]

    with pytest.raises(ImproperlyConfigured, match="LQOPS_NET_ALLOW_HOSTS"):
        check_url("http://example.com/", resolve=lambda host: [PUBLIC])


@every_row("entry", ["10.0.0.1/8", "10.0.0.0/33", "wiki", ""])
def test_invalid_network_is_an_error(entry):
    with pytest.raises(ImproperlyConfigured, match="LQOPS_NET_ALLOW_NETWORKS"):
        verdict("http://1.1.1.1/", networks=[entry])
