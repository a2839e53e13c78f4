"""URLs that check_url refuses and allows, and their normal form."""

import pytest

from agents.net import CheckedUrl, UrlRefused, check_url
from agents.net.urls import REFUSALS
from tests.agents.net.hostile import PUBLIC, PUBLIC_V6, hostile_urls, ordinary_urls
from tests.table import every_row

HOSTILE = hostile_urls()
ORDINARY = ordinary_urls()


def to_public(host):
    return [PUBLIC, PUBLIC_V6]


def reason_of(url, **options):
    try:
        checked = check_url(url, **{"resolve": to_public, **options})
    except UrlRefused as refused:
        return refused.reason
    pytest.fail(f"{url!r} was let through to {checked.addresses}")


def test_tables_are_large():
    assert len(HOSTILE) > 1000
    assert len(ORDINARY) >= 60


def test_every_hostile_url_is_refused():
    reasons = {reason_of(url) for url in HOSTILE}

    assert reasons <= REFUSALS.keys()


@every_row("url", ORDINARY)
def test_ordinary_url_is_allowed_and_its_normal_form_stable(url):
    checked = check_url(url, resolve=to_public)

    assert checked.url.isascii()
    assert check_url(checked.url, resolve=to_public) == checked


@every_row(
    ("url", "reason"),
    [
        (f"http://example.com/{'a' * 9000}", "too_long"),
        ("http://example.com/\n", "characters"),
        ("http:/example.com", "malformed"),
        ("ftp://example.com/", "scheme"),
        ("http://u:p@example.com/", "credentials"),
        ("http://example.com:22/", "port"),
        ("http://example.com:http/", "port"),
        ("http://[::1/", "host_form"),
        ("http://2130706433/", "host_form"),
        ("http://example.com./", "host_form"),
        ("http://xn--127-.com/", "host_idna"),
        ("http://①.com/", "host_idna"),
        ("http://printer.local/", "host_local"),
        ("http://printer/", "host_local"),
        ("http://169.254.169.254/latest/meta-data/", "address"),
    ],
)
def test_refusal_names_its_reason_and_remedy(url, reason):
    with pytest.raises(UrlRefused, match=":") as refused:
        check_url(url, resolve=to_public)

    assert refused.value.reason == reason
    assert reason in str(refused.value)


def test_error_message_does_not_quote_the_url():
    for url in ("http://u:hunter2@example.com/", "http://169.254.169.254/?token=hunter2", "http://hunter2/"):
        with pytest.raises(UrlRefused) as refused:
            check_url(url, resolve=to_public)
        assert "hunter2" not in str(refused.value)


def test_normal_form_has_every_part():
    assert check_url(
        "HTTPS://Bücher.Example.COM:443/ä b".replace(" ", "%20") + "?q=ü#frag", resolve=to_public
    ) == CheckedUrl(
        url="https://xn--bcher-kva.example.com/%C3%A4%20b?q=%C3%BC",
        scheme="https",
        host="xn--bcher-kva.example.com",
        port=443,
        path="/%C3%A4%20b",
        query="q=%C3%BC",
        addresses=(PUBLIC, PUBLIC_V6),
    )


def test_non_default_port_is_kept():
    checked = check_url("http://[2606:2800:220:1:248:1893:25C8:1946]:8080")

    assert checked.url == f"http://[{PUBLIC_V6}]:8080/"
    assert checked.origin == ("http", PUBLIC_V6, 8080)


def test_other_schemes_must_be_named():
    checked = check_url("wss://example.com/feed", schemes=("ws", "wss"), resolve=to_public)

    assert (checked.scheme, checked.port) == ("wss", 443)
    assert check_url("ws://example.com", schemes=("ws",), resolve=to_public).port == 80
    assert reason_of("http://example.com/", schemes=("ws", "wss")) == "scheme"
    assert reason_of("gopher://example.com/", schemes=("gopher",)) == "scheme"


@every_row(
    "answers",
    [
        ["127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        ["10.0.0.1", PUBLIC],
        [PUBLIC, PUBLIC_V6, "::1"],
        [PUBLIC, "fe80::1%eth0"],
        [PUBLIC, "2606:2800::1%eth0"],
        [PUBLIC, "::ffff:93.184.216.34"],
        [PUBLIC, "64:ff9b::5db8:d822"],
        [PUBLIC, "169.254.169.254"],
        [PUBLIC, "0x7f.1"],
        [PUBLIC, ""],
        [PUBLIC, "example.com"],
        [f"93.184.216.{n}" for n in range(65)],
    ],
)
def test_one_private_address_refuses_the_name(answers):
    assert reason_of("http://example.com/", resolve=lambda host: answers) == "address"


def test_resolver_gets_ascii_names_and_no_addresses():
    asked = []

    def resolve(host):
        asked.append(host)
        return [PUBLIC]

    check_url("http://MÜNCHEN.de/", resolve=resolve)
    check_url("http://1.1.1.1/", resolve=resolve)

    assert asked == ["xn--mnchen-3ya.de"]
