"""Any reply gives calls or a SkillSyntaxError, and literals have their Python meaning."""

import ast
import json
import math
import operator
import random
import re
import time
import warnings

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall

REFUSED = "refused"
THOROUGH = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


def read(text):
    """The calls of a reply, each fit for every database, or that it was refused; anything else is raised."""
    try:
        calls = parse_skill_calls(text)
    except SkillSyntaxError as refusal:
        check_refusal(refusal, text)
        return REFUSED
    for call in calls:
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", call.name)
        assert plain(call.arguments) == call.arguments
        json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()
    return calls


def check_refusal(refusal, text):
    assert 0 <= refusal.position <= len(text)
    assert str(refusal).isprintable()


def plain(value):
    """The same in lists, and in dicts with text keys."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    assert value is None or type(value) in {str, int, float, bool}
    assert not isinstance(value, str) or not re.search("[\0\ud800-\udfff]", value)
    return value


# --- Any text ---

PIECES = [
    "<skill>", "</skill>", "<parallel>", "</parallel>", "<skill>f(a=1)</skill>", "<skill>f(", ")</skill>", "<", ">",
    "&lt;skill&gt;", "<SKILL>", "f", "name", "a=", "=", "(", ")", "[", "]", "{", "}", ",", ":", "[" * 50, "]" * 50,
    "'", '"', "'''", '"""', "r'", 'b"', "f'", "'a' ", "{'a': 1}", "\\", "\\x4", "\\u00e9", "\\ud800",
    "\\N{bullet}", "\\0", "\n", "\r", "\r\n", " ", "\t", "\f", "#", "```", "~~~", "\n```\n", "\n~~~\n", "**", "*",
    "\n> ```\n", "\n- ```\n",
    "\0", "\ud800",
    "\u00e9", "\uff4e", "1", "-", "+", ".", "1e999", "0x", "_", "True", "None", "nan", "x", "9" * 5_000,
]  # fmt: skip
WHOLE = [
    '<skill>web_search(query="BTC price today", max_results=5)</skill>',
    "<parallel>\n<skill>a(x='1')</skill>\n<skill>b(y=[1, -2.5, None])</skill>\n</parallel>",
    "I look first.\n```python\n<skill>quoted()</skill>\n```\nThen <skill>read(path='a', b='''x\n''')</skill>",
    "<skill>f(  # why\n a=r'\\d+', b=\"\\u00e9\" 'x', c=True,\n)</skill><skill>g(a={'k': (1, \"it's\")})</skill>",
    "~~~\n<skill>\n~~~\n`<skill>f(a='</skill>)')</skill>` <parallel></parallel>",
    '<skill>calc(expr="(1+2)*3")</skill><skill>g(n=0xFF, m=1_000, o=[[[[]]]])</skill>',
]  # fmt: skip


def mutated(source):
    """A reply with a few changes of the kinds that models, networks and attackers make."""
    text = source.choice(WHOLE)
    for _ in range(source.randint(1, 6)):
        start = source.randint(0, len(text))
        end = min(len(text), start + int(source.expovariate(0.2)))
        other = source.choice(WHOLE)
        text = source.choice(
            [
                text[:start] + text[end:],
                text[:start] + source.choice(PIECES) + text[end:],
                text[:start] + chr(source.randrange(0x10000)) + text[end:],
                text[:end] + text[start:],
                text[:start],
                text[:start] + other[source.randint(0, len(other)) :],
            ]
        )
    return text


def fuzz(count, seed):
    source = random.Random(seed)
    began = time.process_time()
    outcomes = [read(mutated(source)) for _ in range(count)]
    refused = outcomes.count(REFUSED)
    assert count * 0.1 < refused < count * 0.9, "the mutations have to reach both sides"
    return time.process_time() - began


def test_mutated_replies_give_calls_or_a_syntax_error():
    fuzz(5_000, seed=1)


@pytest.mark.stress
def test_100_000_mutated_replies_give_calls_or_a_syntax_error():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    seconds = fuzz(100_000, seed)
    print(f"{seconds:.1f} s")
    assert seconds <= 30


TEXTS = st.one_of(
    st.text(alphabet=st.characters(), max_size=100),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=25).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=15).map(lambda pieces: f"<skill>f(a={''.join(pieces)})</skill>"),
    st.binary(max_size=100).map(lambda data: f"<skill>{data.decode('utf-8', 'surrogateescape')}</skill>"),
)


@given(TEXTS)
@example("<skill>f(a='\ud800')</skill>")
@example("<skill>" * 1_000)
def test_any_text_gives_calls_or_a_syntax_error(text):
    read(text)


@pytest.mark.stress
@THOROUGH
@given(TEXTS)
def test_10_000_texts_give_calls_or_a_syntax_error(text):
    read(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
    ),
)


@given(
    st.one_of(
        st.text(max_size=30),
        st.lists(st.sampled_from(list('{}[]",:\\u01d8.-eNaI ')), max_size=20).map("".join),
        JSON.map(json.dumps),
    )
)
def test_any_native_arguments_give_a_call_or_a_syntax_error(arguments):
    try:
        [call] = calls_from_native([RequestedCall("1", "f", arguments)])
    except SkillSyntaxError:
        return
    assert call.arguments == json.loads(arguments)
    json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode()


# --- Rendered and read again ---

LETTERS = "abcXYZ_"
NAMES = st.builds(operator.add, st.sampled_from(LETTERS), st.text(f"{LETTERS}019", max_size=3))
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
TRICKY = st.sampled_from(
    ["</skill>", "<parallel>", "')", '")', '"""', "'''", "\\", "\\x", "\n```\n", "#", "\r\n", "\x85"]
)
VALUES = st.recursive(
    st.one_of(
        st.none() | st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), STORABLE, TRICKY
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(STORABLE | TRICKY, inner, max_size=2)
    ),
    max_leaves=5,
)
CALLS = st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=3))
PROSE = st.sampled_from(["", " ", "Then: ", "\n\n- ", "`", "\x00\ud800"])
# Each item is a call alone, or the calls of a block.
REPLIES = st.lists(st.tuples(PROSE, st.one_of(CALLS, st.lists(CALLS, max_size=2))), max_size=2)


def rendered(reply):
    """The text of a reply, and the calls that stand in it."""
    text, calls, groups = "", [], 0
    for prose, item in reply:
        inside = item if isinstance(item, list) else [item]
        group = groups if isinstance(item, list) else None
        groups += bool(inside and group is not None)
        tags = [
            f"<skill>{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})</skill>"
            for name, given in inside
        ]
        text += prose + (f"<parallel>{' '.join(tags)}</parallel>" if group is not None else tags[0])
        calls += [SkillCall(name, plain(given), group) for name, given in inside]
    return text, calls


def round_trip(reply):
    text, calls = rendered(reply)
    again = parse_skill_calls(text)
    assert again == calls
    assert repr(again) == repr(calls)  # 1, 1.0 and True are equal, 0.0 and -0.0 too
    for call in calls:
        assert calls_from_native([RequestedCall("", call.name, json.dumps(call.arguments))]) == [
            SkillCall(call.name, call.arguments)
        ]


@given(REPLIES)
def test_rendered_calls_are_read_back(reply):
    round_trip(reply)


@pytest.mark.stress
@THOROUGH
@given(REPLIES)
def test_10_000_rendered_replies_are_read_back(reply):
    round_trip(reply)


# --- As Python reads it ---

ALPHABETS = ["0123456789_.eE+-xXobBjJaf ", "'\"\\\n\r rRuUNxbf{}01a#,\t\f", "[](){},:'\"a1 #\n\\TrueNon"]


def by_python(source):
    """What Python makes of a literal, by its own parser, with our rules on top."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(f"f(a={source}\n)", mode="eval").body
        assert isinstance(tree, ast.Call)
        assert isinstance(tree.func, ast.Name)
        assert tree.args == []
        [argument] = tree.keywords
        return by_node(argument.value)
    except (SyntaxError, ValueError, AssertionError):
        return REFUSED


def by_node(node):
    if isinstance(node, ast.List | ast.Tuple):
        return [by_node(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [by_node(key) for key in node.keys]
        assert all(isinstance(key, str) for key in keys)
        assert len(set(keys)) == len(keys)
        return dict(zip(keys, map(by_node, node.values), strict=True))
    if isinstance(node, ast.UnaryOp):
        value = by_node(node.operand)
        assert isinstance(node.operand, ast.Constant)
        assert type(value) in {int, float}
        assert isinstance(node.op, ast.USub | ast.UAdd)
        return -value if isinstance(node.op, ast.USub) else value
    assert isinstance(node, ast.Constant)
    value = node.value
    assert value is None or type(value) in {str, bool, int} or (type(value) is float and math.isfinite(value))
    assert not isinstance(value, str) or not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    return value


def compare_with_python(count, seed):
    source = random.Random(seed)
    accepted = 0
    for _ in range(count):
        literal = "".join(source.choices(source.choice(ALPHABETS), k=source.randint(1, 8)))
        calls = read(f"<skill>f(a={literal}\n)</skill>")
        ours = REFUSED if calls == REFUSED else calls[0].arguments["a"]
        assert repr(ours) == repr(by_python(literal)), repr(literal)
        accepted += ours != REFUSED
    assert accepted > count * 0.02


@pytest.mark.long
def test_random_literals_have_their_python_meaning():
    compare_with_python(5_000, seed=1)


@pytest.mark.stress
def test_300_000_random_literals_have_their_python_meaning():
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    compare_with_python(300_000, seed)
