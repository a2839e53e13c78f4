"""Address arguments: an allowed host keeps the level, any other makes the call RESTRICTED."""

import pytest

from agents.enums import Level
from agents.skills.risk import host_of, level_for
from agents.skills.skill import skill
from tests.table import every_row

ALLOWED = ["docs.example.org", "*.example.net", "10.0.0.5"]


@skill(level=Level.MONITORED, side_effects=False, addresses=("url",))
def visit(url: str) -> None:
    """Goes somewhere."""


@skill(level=Level.SAFE, side_effects=False, addresses=("first", "second"))
def compare(first: str, second: str) -> None:
    """Compares two places."""


@skill(level=Level.SAFE, side_effects=False, addresses=())
def stay(url: str) -> None:
    """Goes nowhere."""


@every_row(
    ("address", "host"),
    [
        ("https://example.org", "example.org"),
        ("HTTP://Example.ORG:8080/a/b?c=d&e=%20#f", "example.org"),
        ("https://example.org./", "example.org"),
        ("http://10.0.0.5/", "10.0.0.5"),
        ("someone@example.org", "example.org"),
        ("some.one+tag@Mail.Example.org", "mail.example.org"),
    ],
)
def test_plain_address_has_a_host(address, host):
    assert host_of(address) == host


@every_row(
    "address",
    [
        "",
        "example.org",
        "//example.org/",
        "ftp://example.org/",
        "https://user@example.org/",
        "https://docs.example.org@evil.example/",
        "https://docs.example.org\\@evil.example/",
        "https://docs.example.org:80:90/",
        "https://docs.example.org:123456/",
        "https://docs.example.org /",
        " https://docs.example.org/",
        "https://docs.example.org/\n",
        "https://docs.example.org/a\nhttps://evil.example/",
        "https://do\u200bcs.example.org/",
        "https://docs.example.\u212arg/",
        "https://docs\u3002example.org/",
        "https://d\u00f6cs.example.org/",
        "https://[::1]/",
        "https://docs.example.org,evil.example/",
        "one@example.org, two@example.org",
        "Some One <one@example.org>",
        "one@two@example.org",
        "one@example.org\nBcc: two@example.org",
    ],
)
def test_ambiguous_address_has_no_host(address):
    assert host_of(address) == ""


@every_row(
    ("url", "level"),
    [
        ("https://docs.example.org/a", Level.MONITORED),
        ("https://DOCS.example.org:8443/a", Level.MONITORED),
        ("https://a.example.net/", Level.MONITORED),
        ("https://a.b.example.net/", Level.MONITORED),
        ("https://10.0.0.5/", Level.MONITORED),
        ("someone@docs.example.org", Level.MONITORED),
        ("https://example.net/", Level.RESTRICTED),
        ("https://badexample.net/", Level.RESTRICTED),
        ("https://example.org/", Level.RESTRICTED),
        ("https://sub.docs.example.org/", Level.RESTRICTED),
        ("https://docs.example.org.evil.example/", Level.RESTRICTED),
        ("https://docs.example.org@evil.example/", Level.RESTRICTED),
        ("", Level.RESTRICTED),
        (None, Level.RESTRICTED),
        (["https://docs.example.org/"], Level.RESTRICTED),
    ],
)
def test_unlisted_host_is_restricted(url, level):
    assert level_for(visit, Level.MONITORED, {"url": url}, ALLOWED) == level


def test_every_address_has_to_be_allowed():
    fine, other = "https://docs.example.org/", "https://evil.example/"

    assert level_for(compare, Level.SAFE, {"first": fine, "second": fine}, ALLOWED) == Level.SAFE
    assert level_for(compare, Level.SAFE, {"first": fine, "second": other}, ALLOWED) == Level.RESTRICTED
    assert level_for(compare, Level.SAFE, {"first": fine}, ALLOWED) == Level.RESTRICTED


def test_no_host_is_allowed_by_default():
    assert level_for(visit, Level.SAFE, {"url": "https://docs.example.org/"}, []) == Level.RESTRICTED


@pytest.mark.parametrize("level", [Level.RESTRICTED, Level.PRIVILEGED])
def test_level_is_never_lowered(level):
    assert level_for(visit, level, {"url": "https://evil.example/"}, ALLOWED) == level
    assert level_for(visit, level, {"url": "https://docs.example.org/"}, ALLOWED) == level


def test_skill_without_addresses_keeps_its_level():
    assert level_for(stay, Level.SAFE, {"url": "https://evil.example/"}, []) == Level.SAFE


def test_allowed_hosts_ignore_case():
    assert level_for(visit, Level.SAFE, {"url": "https://docs.example.org/"}, ["Docs.Example.ORG"]) == Level.SAFE
