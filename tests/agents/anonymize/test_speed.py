"""Hiding and restoring take linear time, whatever the text consists of."""

import random

import pytest

from agents.anonymize import Anonymizer
from tests.agents.anonymize.test_precision import LINES
from tests.agents.anonymize.test_recall import LETTER, MAKERS
from tests.effort import grows_too_fast, seconds, takes_at_most
from tests.table import every_row

NASTY = {
    "legal forms": "Acme Ltd ",
    "bare forms": "Ltd ",
    "titles": "Mr ",
    "particles": "Mr van van van van van van van van ",
    "digits": "1",
    "spaced digits": "1 ",
    "card groups": "4444 ",
    "trunk": "0111111111111111111111111111 ",
    "pluses": "+1 ",
    "ats": "a@a.",
    "dots": ".",
    "backslashes": "\\",
    "escapes": "\\u00",
    "account words": "acct ",
    "addresses": "1.2.3.4, ",
    "colons": "a:",
    "iban heads": "DE89 ",
    "ampersands": "A & ",
    "hyphens": "A-",
    "blanks": " ",
    "lines": "\n",
    "placeholders": "PERSON_1_",
    "marks": "a\u0300",
    "no blanks": "王",
    "telephones": "tel 1 ",
    "web": "https://",
    "quotes": '"',
    "parties": "Anna ",
}


def hide(text: str) -> str:
    anonymizer = Anonymizer(["Anna Anna Anna Müller", "Northwind Traders Ltd"])
    hidden = anonymizer.hide(text)
    assert anonymizer.restore(hidden) == text
    return hidden


def letters(size: int) -> str:
    source = random.Random(1)
    pages = []
    while sum(map(len, pages)) < size:
        values = {name.lower(): make(source) for name, make in MAKERS.items()}
        values |= {"firm": values.pop("org"), "account": values.pop("acct"), "address": values.pop("ip")}
        pages += LETTER.format(title="Herr", street="Hauptstraße", **values), "\n".join(source.sample(LINES, 30))
    return "\n".join(pages)[:size]


@pytest.mark.long
def test_letters_take_linear_time():
    assert not grows_too_fast(hide, letters, 10_000)
    assert takes_at_most(2, lambda: hide(letters(100_000)))


@pytest.mark.stress
def test_a_megabyte_of_letters_takes_two_seconds_at_most():
    anonymizer = Anonymizer(["Anna Anna Anna Müller", "Northwind Traders Ltd"])
    texts = letters(100_000), letters(1_000_000)
    small, large = (seconds(lambda text=text: anonymizer.hide(text), rounds=2) for text in texts)
    print(f"1 MB in {large:.2f} s, {large / small:.1f} times 0.1 MB")
    assert large <= 2
    assert large <= 12 * small + 0.1


@pytest.mark.long
@every_row("name", NASTY)
def test_hostile_text_takes_linear_time(name):
    assert not grows_too_fast(hide, lambda size: (NASTY[name] * size)[:size], 1_500, slack=0.05)


def test_random_bytes_of_every_pattern_take_linear_time():
    source = random.Random(9)
    pieces = [
        "Ltd",
        "Mr ",
        "+49 ",
        "0",
        "12",
        ".",
        "-",
        " ",
        "@",
        "a",
        "A",
        "::",
        "acct ",
        "DE89",
        "\\",
        "\n",
        "_",
        "王",
        "é",
    ]
    assert not grows_too_fast(hide, lambda size: "".join(source.choices(pieces, k=size)), 3_000, slack=0.05)


def test_a_stream_of_single_characters_takes_linear_time():
    anonymizer = Anonymizer()
    placeholder = anonymizer.hide("a@example.com")
    text = f"Dear {placeholder}, " * 1_000

    def restored():
        stream = anonymizer.stream()
        return "".join(map(stream.feed, text)) + stream.close()

    assert takes_at_most(2, restored)
    assert restored() == "Dear a@example.com, " * 1_000
