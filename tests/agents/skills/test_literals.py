"""Literals in calls have the meaning they have in Python, or are refused."""

import pytest

from agents.skills.literals import MAX_DEPTH, MAX_NUMBER_CHARS
from agents.skills.parsing import SkillSyntaxError, parse_skill_calls
from tests.table import every_row

CALL = "<skill>f(a=1)</skill>"


def value_of(literal):
    """Return the value of a literal as the argument of a call."""
    [call] = parse_skill_calls(f"<skill>f(a={literal})</skill>")
    return call.arguments["a"]


def nested(depth, opening, closing):
    return opening * depth + closing * depth


@every_row(
    ("literal", "value"),
    [
        ("0", 0), ("-5", -5), ("+5", 5), ("- 5", -5), ("1_000", 1000), ("0xFF", 255), ("0o17", 15), ("0b11", 3),
        ("00", 0), ("-0", 0), (str(10**100), 10**100), ("9" * MAX_NUMBER_CHARS, 10**MAX_NUMBER_CHARS - 1),
        ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("-1e-3", -0.001), ("1E+2", 100.0), ("1_0.2_5", 10.25), ("1e-999", 0.0),
        ("012.5", 12.5),
        ("True", True), ("False", False), ("None", None),
        ("[]", []), ("[1, 'a', [None]]", [1, "a", [None]]), ("[1,]", [1]), ("[\n1,# one\n2\n]", [1, 2]),
        ("()", []), ("(1,)", [1]), ("(1, 2)", [1, 2]), ("(1)", 1), ("('a'\n'b')", "ab"), ("((1), (2,),)", [1, [2]]),
        ("{}", {}), ("{'a': 1, 'b': {'c': (2,)},}", {"a": 1, "b": {"c": [2]}}), ("{'a' 'b': 1}", {"ab": 1}),
        ("{('a'): 1}", {"a": 1}), ("{'': -1}", {"": -1}),
        ("''", ""), ('""', ""), ('"a" \'b\' """c"""', "abc"), ('"a"r"\\d"u"ü"', "a\\dü"), ("U'a'", "a"),
        ("R'\\''", "\\'"),
        (r"'\d\.\q'", r"\d\.\q"), (r"'\\\'\"\a\b\f\n\r\t\v'", "\\'\"\a\b\f\n\r\t\v"),
        (r"'\x41\101\u00e9\U0001f600\N{bullet}\N{LF}\7'", "AAé😀•\n\x07"), (r"'\777'", "\u01ff"),
        ("'a\\\nb'", "ab"), ("'a\\\r\nb'", "ab"), ("'''a\nb\r\nc\rd'''", "a\nb\nc\nd"), ("'''a\\\nb'''", "ab"),
        ("r'''\\\r\n'''", "\\\n"), ('"""a"b""c\\""""', 'a"b""c"'), ("'it\\'s'", "it's"), ("'''a'b''c'''", "a'b''c"),
        ("'\x0b\x85\u2028\t'", "\x0b\x85\u2028\t"),
        ("'\uff4eame\u202e'", "\uff4eame\u202e"),
    ],
)  # fmt: skip
def test_literals_have_their_python_meaning(literal, value):
    read = value_of(literal)
    assert (read, type(read)) == (value, type(value))


def test_adjacent_strings_are_joined():
    """A long text may be written over several lines, each with a comment."""
    literal = """'one ' "two "  # so far
        r'\\three' \'\'\'
four\'\'\'"""
    assert value_of(literal) == "one two \\three\nfour"


NO_LITERALS = [
    # names, calls, attributes, operators, comprehensions
    "x", "__import__('os')", "open('x')", "os.environ", "'a'.upper()", "'a'.x", "[1][0]", "'%s' % 1", "1 + 2", "1+2j",
    "1 if True else 2", "not True", "~1", "--1", "-+1", "-True", "-'a'", "-(1)", "-[1]", "+x", "-", "1 < 2", "1 and 2",
    "'a' * 9", "lambda: 1", "(y := 1)", "y := 1", "[x for x in 'ab']", "(x for x in 'ab')", "{x: 1 for x in 'ab'}",
    "await x",
    "...", "`x`", "$x", "@x", "!x", "x=1", "=1", "",
    # words of JSON and JavaScript
    "true", "false", "null", "undefined", "NaN", "Infinity", "inf", "nan", "Truee", "\uff34rue", "True\u0301", "TRUE",
    # other literals of Python
    "{1}", "{'a'}", "{'a', 'b'}", "{'a': 1, 'b'}", "{1: 2}", "{None: 1}", "{(1,): 1}", "{[]: 1}", "{'a' 1}", "{**{}}",
    "[*'ab']", "(*[1],)", "*[1]", "**{}", "{'a': 1, 'a': 2}", "{'a': 1, '\\x61': 2}", "{:}", "{,}", "[,]", "(,)",
    "[1,,2]", "[1 2]", "(1 2)", "{'a': 1 'b': 2}", "[1", "[1)", "(1]", "{'a': 1]", "{'a': (1}",
    "b'a'", "B'a'", "rb'a'", "bR'a'", "f'a'", "F'{1}'", "fr'a'", "rf'{x}'", "ur'a'", "t'a'", "x'a'", "'a' b'b'",
    "'a' f'{x}'", "1j", "1.5J", "0777", "0_7", "1__0", "1_", "_1", "0x", "0b2", "0o8", "1e", "1.2.3", "1.e", "5px",
    "1٣", "٣", "²",
    "1e999", "-1e999", "1.8e308", "9" * (MAX_NUMBER_CHARS + 1), "9" * 5_000, "0x" + "F" * 5_000, "0." + "1" * 5_000,
    # strings
    "'", "'a", '"a', "'a\"", "'''a''", '"""a""""', "'a\nb'", "'a\rb'", '"a\nb"', '"a\rb"', "'a' 'b", "'\\'", "r'\\'",
    "\u201ca\u201d",
    "\u2019a\u2019",
    "'\x00'", "'''\x00'''", r"'\0'", r"'\x00'", r"'\u0000'", r"'\N{NULL}'", "'\ud800'", r"'\ud83d\ude00'", r"'\udfff'",
    r"'\ud83d' '\ude00'", "r'\udc80'", "{'\ud800': 1}", r"'\x4'", r"'\u12'", r"'\U0001f60'", r"'\U00110000'", r"'\N'",
    r"'\N{}'", r"'\N{no such name}'", r"'\N{LATIN SMALL LETTER A WITH MACRON AND GRAVE}'", r"'\N{bullet'",
    # between the brackets
    "1 # not closed", "1 #\x00\n", "1 \\ ", "1 \u00a0", "1 \x0b", "1;", "1 -> 2", "1\x00", "\ud800",
]  # fmt: skip


@every_row("literal", NO_LITERALS)
def test_refuses_everything_but_plain_literals(literal):
    with pytest.raises(SkillSyntaxError, match="Line 1, column "):
        parse_skill_calls(f"{CALL}<skill>g(a={literal})</skill>{CALL}")


@every_row(("opening", "closing"), [("[", "]"), ("(", ")"), ("((", "),)"), ("{'a':[", "]}")])
def test_nesting_is_bounded(opening, closing):
    levels = len(opening.replace("'a':", ""))
    assert value_of(nested(20 // levels, opening, closing).replace("()", "(1)")) is not None
    assert value_of(nested(MAX_DEPTH // levels, opening, closing).replace("()", "(1)")) is not None
    for depth in (MAX_DEPTH // levels + 1, 200, 100_000):
        with pytest.raises(SkillSyntaxError, match=f"more than {MAX_DEPTH} deep"):
            value_of(nested(depth, opening, closing))


@every_row("opening", ["[", "(", "{", "[1,", "(1,", "{'a':", "{'a':1,'b':", "{(", "-(", "[-"])
def test_refuses_unclosed_brackets(opening):
    with pytest.raises(SkillSyntaxError):
        value_of(opening * 100_000)
