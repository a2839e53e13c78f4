"""Redaction is cheap on clean text, linear on any text, and bounded on text made to be slow."""

import random
import re
import string

import pytest

from audit.redaction import redact
from audit.redaction.patterns import RULES
from tests.audit.test_redaction_clean import LINES as CLEAN
from tests.effort import grows_too_fast, seconds, takes_at_most
from tests.table import every_row

UNITS = [
    "password=",
    "password=${",
    "password=get(",
    "token: ",
    "token=x,",
    "eyJ",
    "eyJa.",
    "-eyJaaaaaaaaaa",
    "://",
    "a://b:",
    "://a:@",
    "://a:b@c@",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nabc\n",
    "sk-",
    "ask-",
    "bearer ",
    "authorization: ",
    "cookie: a=b; ",
    "cookie=",
    "%70%61ss=",
    "%25%32",
    "\\u0070",
    '\\"password\\":',
    '"password":"',
    "password is ",
    "curl -u a:",
    "mysql -p",
    "a.b.c.",
    ":",
    "@",
    "key=",
    "<password>",
    "<password ",
    "AKIA",
    "[redacted:a:0000]",
    "[redacted:",
    "&quot;",
    "\\",
    "password=a&",
    "basic aaaa",
    "digest username=",
    "aws4-hmac-sha256 ",
    "0123456789:",
    "type=password ",
    "name=password\n\n",
    "machine a login b password ",
    "password: |\n ",
    "secret,",
    'password "',
    "\n",
    "a b ",
    "İpassword=",
    "-pw ",
    "$",
    "{",
    "(",
    "x-",
]


@pytest.mark.parametrize(("size", "most"), [(20_000, 0.16), pytest.param(1_000_000, 1, marks=pytest.mark.stress)])
def test_slow_line_is_bounded(size: int, most: float) -> None:
    lines = {unit: (unit * (size // len(unit) + 1))[:size] for unit in UNITS}
    assert [unit for unit, line in lines.items() if not takes_at_most(most, lambda line=line: redact(line))] == []


@every_row("unit", ["password=${", "eyJ", "://", "sk-", "token: a1b2c3 ", "word and text ", "%3D%22", "key="])
def test_time_grows_with_length(unit: str) -> None:
    assert not grows_too_fast(redact, lambda size: (unit * size)[:size], 10_000)


def test_clean_text_costs_at_most_twice_one_substitution() -> None:
    text = "\n".join(line for line in CLEAN if len(line) < 500) * 4
    expression = re.compile("|".join(rule.expression.pattern for rule in RULES))

    assert any(seconds(lambda: redact(text)) <= 2 * seconds(lambda: expression.sub("", text)) for _ in range(5))


def fuzzed(source: random.Random) -> str:
    """Pieces of what the searches look for, repeated and mixed with noise."""
    parts = []
    for _ in range(source.randint(1, 12)):
        unit = (
            source.choice(UNITS)
            if source.random() < 0.7
            else "".join(source.choices(string.printable, k=source.randint(1, 9)))
        )
        parts.append(unit * source.randint(1, 60))
    return "".join(parts)


@pytest.mark.parametrize("number", [60, pytest.param(10_000, marks=pytest.mark.stress)])
def test_no_fuzzed_text_takes_longer_than_50_ms(number: int) -> None:
    source = random.Random(41)
    texts = [fuzzed(source) for _ in range(number)]
    assert [text for text in texts if not takes_at_most(0.05, lambda text=text: redact(text))] == []


def test_text_of_candidates_only_is_masked_whole() -> None:
    text = "password=get( " * 10_000
    result = redact(text)
    assert re.fullmatch(r"\[redacted:text:[0-9a-f]{4}\]", result)
    assert redact(result) == result
    dense = "webhook.site/" + "a1" * 10
    masked = redact(dense * 10_000)
    assert redact(masked) == masked
