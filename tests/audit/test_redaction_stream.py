"""A credential split over chunks is still masked, and little is held back."""

import random

import pytest

from audit.redaction import StreamRedactor, redact
from audit.redaction.redactor import LIMIT, TAIL
from tests.audit.test_redaction_corpus import VENDORS, made
from tests.table import every_row

SOURCE = random.Random(31)
VALUE = made("{A9}7{A9}", SOURCE)
KEY_BLOCK = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(made("{b64}", SOURCE) for _ in range(6))
    + "\n-----END RSA PRIVATE KEY-----\n"
)
TEXTS = {
    **{
        kind: f"start {made(VENDORS[kind], SOURCE)}, end\nnext line\n"
        for kind in ("github-pat", "jwt", "stripe-live", "slack-bot", "telegram")
    },
    "assignment": f"a=1 password={VALUE}&x=2\nrest",
    "json": f'{{"a": 1, "password": "{VALUE}"}}\n{{"b": 2}}\n',
    "url": f"postgres://app:{VALUE}@db.test/app ok",
    "header": f"GET / HTTP/1.1\r\nAuthorization: Bearer {VALUE}\r\nHost: h\r\n\r\n",
    "block": f"before\n{KEY_BLOCK}after\n",
    "block scalar": f"password: |\n  {VALUE}\nuser: bob\n",
    "pair": f"- name: API_TOKEN\n  value: {VALUE}\n- name: B\n",
    "clean": "nothing here\nat all\n",
}


def streamed(*pieces: str) -> str:
    stream = StreamRedactor()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.close()])


@every_row("name", TEXTS)
def test_masks_at_every_split(name: str) -> None:
    text = TEXTS[name]
    expected = redact(text)
    for at in range(len(text) + 1):
        assert streamed(text[:at], text[at:]) == expected


@every_row("name", TEXTS)
@every_row("size", [1, 3, 7])
def test_masks_in_small_pieces(name: str, size: int) -> None:
    text = TEXTS[name]
    assert streamed(*(text[at : at + size] for at in range(0, len(text), size))) == redact(text)


def test_gives_out_finished_lines() -> None:
    stream = StreamRedactor()
    assert stream.feed("first line\nsec") == "first line\n"
    assert stream.feed("ond line\n") == "second line\n"
    assert stream.close() == ""


def test_holds_a_line_whose_value_may_follow() -> None:
    stream = StreamRedactor()
    assert stream.feed("password:\n") == ""
    assert VALUE not in stream.feed(f"  {VALUE}\n") + stream.close()


@pytest.mark.parametrize("filler", ["word ", "x", "x" * 300 + "\n"])
def test_hold_back_is_bounded_and_masks_behind_a_long_line(filler: str) -> None:
    text = filler * (LIMIT * 2 // len(filler)) + f" password={VALUE} " + filler * (LIMIT * 2 // len(filler))
    stream = StreamRedactor()
    given = 0
    output = []
    for at in range(0, len(text), 1000):
        output.append(stream.feed(text[at : at + 1000]))
        given += 1000
        assert given - sum(map(len, output)) <= LIMIT + 2000
    output.append(stream.close())
    assert VALUE not in "".join(output)
    assert len("".join(output)) > len(text) * 0.9


def test_endless_value_is_masked_whole() -> None:
    value = made("{A1000}", SOURCE) * (LIMIT * 3 // 1000)
    stream = StreamRedactor()
    text = f"a password={value} end"
    output = "".join(stream.feed(text[at : at + 5000]) for at in range(0, len(text), 5000)) + stream.close()
    assert output.startswith("a password=[redacted:password:")
    assert output.endswith("] end")
    assert value[:8] not in output


def test_value_at_the_cut_keeps_its_name() -> None:
    value = made("{A400}", SOURCE)
    text = "x" * (LIMIT - TAIL) + f",password={value}&next=" + "y" * (TAIL - 200)
    stream = StreamRedactor()
    output = stream.feed(text) + stream.close()
    assert value[:8] not in output
    assert output == redact(text)
