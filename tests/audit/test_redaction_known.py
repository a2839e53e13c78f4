"""Known values are masked in every encoding; markers reveal nothing and are never marked again."""

import base64
import json
import random
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.redaction import configure_marker_key, forget_known_secrets, redact, register_known_secrets
from audit.redaction.redactor import MARKER, MarkerKey, marker
from tests.audit.test_redaction_corpus import VENDORS, made
from tests.table import every_row

SOURCE = random.Random(21)
VALUES = [
    "plain words here",
    "Zürich/ö+&=?",
    'quote"back\\slash',
    "tab\tand\nline",
    "emoji 🙂 in it",
    made("{A20}", SOURCE),
    "a/b/c/d%41",
]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    forget_known_secrets()
    key = MarkerKey.value
    yield
    MarkerKey.value = key
    forget_known_secrets()


def encodings(value: str) -> Iterator[str]:
    data = value.encode()
    yield value
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield "".join(part.lower() if at % 2 else part for at, part in enumerate(split_hex(encoded)))
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(value)[1:-1].replace("/", "\\/")
    units = value.encode("utf-16-be").hex()
    yield "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    yield "".join(f"\\u{units[at : at + 4].upper()}" for at in range(0, len(units), 4))
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        yield encode(data).decode().rstrip("=")


def split_hex(text: str) -> list[str]:
    return re.split(r"(%[0-9A-F]{2})", text)


@every_row("value", VALUES)
@every_row("frame", ["{}", "before {} after", '"{}"', "x={}&y=1"])
def test_masks_a_known_value_in_every_encoding(value: str, frame: str) -> None:
    register_known_secrets([value])
    for encoded in encodings(value):
        result = redact(frame.replace("{}", encoded))
        assert encoded not in result, (encoded, result)
        assert MARKER.search(result)
        assert redact(result) == result


@every_row("value", VALUES)
def test_masks_a_known_value_at_every_alignment_inside_longer_base64(value: str) -> None:
    register_known_secrets([value])
    for before in range(7):
        for after in range(4):
            text = base64.b64encode(b"u" * before + value.encode() + b"z" * after).decode()
            result = redact(text)
            assert MARKER.search(result)
            inner = base64.b64encode(b"u" * before + value.encode()).decode()[(before * 4 + 2) // 3 + 1 : -4]
            assert inner not in result


def test_ignores_short_values_and_keeps_earlier_ones() -> None:
    register_known_secrets(["short"])
    register_known_secrets(["first known value"])
    register_known_secrets(["second known value"])
    register_known_secrets(["second known value"])
    text = redact("short, first known value, second known value")
    assert text.startswith("short, [redacted:known:")
    assert "known value" not in text


def test_registration_is_safe_while_others_redact() -> None:
    values = [made("{A18}", SOURCE) for _ in range(20)]
    errors: list[str] = []

    def work() -> None:
        for value in values:
            register_known_secrets([value])
            if value in redact(f"x {value} y"):
                errors.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_marker_is_keyed_and_holds_nothing_of_the_value() -> None:
    value = made("{A30}", SOURCE)
    configure_marker_key(b"one")
    first = marker("kind", value)
    assert first == marker("kind", value)
    configure_marker_key(b"two")
    second = marker("kind", value)
    assert first != second
    assert MARKER.fullmatch(first)
    assert value[:4] not in first
    with pytest.raises(ValueError, match="at least 1"):
        configure_marker_key(b"")


FRAMES = (
    "password={}",
    "token: {}",
    '"password": "{}"',
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "Authorization: {}",
    "Cookie: sessionid={}; a=b",
    "https://user:{}@host/x",
    "https://h/x?token={}&sig={}",
    "curl -u a:{}",
    "--password {}",
    "<password>{}</password>",
    "AccountKey={};",
    "password is {}",
    "password%3D{}",
    '{{\\"token\\":\\"{}\\"}}',
    "mysql -p{}",
    "{}",
    "{}{}",
    "hooks.slack.com/services/{}",
    "https://{}@host/",
    "secret {}",
    "X-Api-Key: {}",
    "key={}",
    "PASSWORD '{}'",
    "bearer {}",
)


@every_row("frame", FRAMES)
def test_never_marks_a_marker(frame: str) -> None:
    register_known_secrets(["redacted", "password"])
    for kind in ("password", "secret", "known", "jwt", "url-token", "private-key"):
        found = marker(kind, "value")
        for spelled in (found, quote(found, safe=""), found.replace(":", "%3a")):
            text = frame.replace("{}", spelled)
            result = redact(text)
            assert result.count(spelled) == text.count(spelled), result


WORDS = [
    *FRAMES,
    *(made(pattern, SOURCE) for pattern in VENDORS.values()),
    " ",
    "\n",
    '"',
    "'",
    ",",
    ";",
    "&",
    "=",
    ":",
    "@",
    "\\",
    "%3D",
    "-----BEGIN PRIVATE KEY-----",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=12))
def test_redacting_twice_changes_nothing(parts: list[str]) -> None:
    once = redact("".join(parts))
    assert redact(once) == once
