"""Parsing takes linear time for any reply."""

import json

import pytest

from agents.skills.literals import MAX_DEPTH
from agents.skills.parsing import SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall
from tests.effort import grows_too_fast, seconds
from tests.table import every_row

IN_TEXT = [
    "prose ", "<", "<skil", "<skill>", "</skill>", "<parallel>", "</parallel>", "<parallel></parallel>",
    "<skill>f()</skill>", "<parallel><skill>f()</skill></parallel>", "`<skill>f()</skill>`\n",
    "<skill>f(a='", "<skill>f(a=[", " ", "\n", "\r\n", "`", "~", "```\n", "~~~\n", "```x\n", "``` `\n", "   ```\n",
    "    ```\n", "> ```\n", "- ```\n", ">", "> ", "- ", "1. ", "\t", "> ```\n```\n",
    "```\n~~~\n", "```   x\n", "```\n<skill>f(a='\n```\n",
]  # fmt: skip
IN_CALL = [
    "[", "(", "{", "{'a':", "[]", "9", "a", "- ", "'", '"', "''", "'a' ", "'''", "#\n", "# ", "\\\n", "\\", " ", "0x",
    "1.", "1e", "\u00e9",
]  # fmt: skip
IN_STRING = [
    "a", "\\n", "\\x41", "\\N{", "\\N{bullet}", "\\d", "\\u12", "''a", "\n", "\r\n", "\\\n", "\u00e9", ")", "</skill>",
    "<skill>f(",
]  # fmt: skip
IN_LIST = ["1,", "'',", "[],", "(),", "{},", "-1.5,", "None,", "#\n1,", "'a' 'b',"]
DEEP = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + ","
# Before, what is repeated, behind.
REPEATED = [
    *(("", piece, "") for piece in IN_TEXT),
    *(("<skill>f(a=", piece, ")</skill>") for piece in IN_CALL),
    *(("<skill>f(a='''", piece, "''')</skill>") for piece in IN_STRING),
    *(("<skill>f(a=[", piece, "])</skill>") for piece in [*IN_LIST, DEEP]),
    ("<skill>f(a='", "a", ")</skill>"),
    ("<skill>f(a='", "\\\\", ")</skill>"),
    ('<skill>f(a="""', '""a', ")</skill>"),
]
REPEATED_NATIVE = [
    ("", "[", ""),
    ("", '{"a":', ""),
    ('{"a": "', "a", '"}'),
    ('{"a": "', "\\u00e9", '"}'),
    ('{"a": "', "\\n", ""),
    ('{"a": [', "1,", "1]}"),
    ('{"a": ', "9", "}"),
]


def repeated(before, piece, behind):
    return lambda size: before + piece * (size // len(piece)) + behind


def fences(size):
    return ["`" * length for length in range(3, int((2 * size) ** 0.5))]


def parse(text):
    try:
        parse_skill_calls(text)
    except SkillSyntaxError:
        return


def parse_native(arguments):
    try:
        calls_from_native([RequestedCall("1", "f", arguments)])
    except SkillSyntaxError:
        return


CASES = {
    **{"tag " + ascii("_".join(parts)): (parse, repeated(*parts)) for parts in REPEATED},
    **{"native " + ascii("_".join(parts)): (parse_native, repeated(*parts)) for parts in REPEATED_NATIVE},
    "tag, arguments": (parse, lambda size: f"<skill>f({','.join(f'a{n}=1' for n in range(size // 10))})</skill>"),
    "tag, keys": (parse, lambda size: f"<skill>f(a={dict.fromkeys(map(str, range(size // 10)), 1)})</skill>"),
    "native, keys": (parse_native, lambda size: json.dumps(dict.fromkeys(map(str, range(size // 10)), 1))),
    "growing fences": (parse, lambda size: "\n".join(fences(size))),
    "shrinking fences": (parse, lambda size: "\n".join(reversed(fences(size)))),
}


@pytest.mark.long
@every_row("name", CASES)
def test_time_is_about_linear(name):
    """Coarse and quick: what is quadratic takes a hundred times as long."""
    assert not grows_too_fast(*CASES[name], 1_500, slack=0.001)


@pytest.mark.stress
@pytest.mark.parametrize("name", CASES)
def test_ten_times_the_size_takes_at_most_twelve_times_as_long(name):
    act, make = CASES[name]
    texts = make(50_000), make(500_000)
    small, large = (seconds(lambda text=text: act(text), rounds=5) for text in texts)
    print(f"{name}: {large / small:.1f} times; half a megabyte in {large * 1000:.1f} ms")
    assert large <= 12 * small or large <= 0.001  # too short a time to be compared: it was refused at once
