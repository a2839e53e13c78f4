"""Parsing replies: which texts are calls, which are prose, and which make the whole reply an error."""

import json
import pickle

import pytest

from agents.skills.literals import MAX_DEPTH, MAX_NAME_CHARS, MAX_NUMBER_CHARS
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.types import RequestedCall
from tests.table import every_row

CALL = "<skill>f(a=1)</skill>"
READ = SkillCall("f", {"a": 1})


def native(arguments, name="f", call_id="call-1"):
    return calls_from_native([RequestedCall(id=call_id, name=name, arguments=arguments)])


def nested(depth):
    return "[" * depth + "]" * depth


# --- Tags ---


def test_reads_a_call():
    assert parse_skill_calls('<skill>web_search(query="BTC price today", max_results=5)</skill>') == [
        SkillCall("web_search", {"query": "BTC price today", "max_results": 5})
    ]


def test_calls_of_a_parallel_block_share_a_group():
    text = """
    <parallel>
    <skill>web_search(query="BTC price")</skill>
    <skill>web_search(query="ETH price")</skill>
    </parallel>
    """
    assert parse_skill_calls(text) == [
        SkillCall("web_search", {"query": "BTC price"}, parallel_group=0),
        SkillCall("web_search", {"query": "ETH price"}, parallel_group=0),
    ]


@every_row(
    "text",
    [
        CALL,
        f"First I look.\n\n{CALL} Then I tell you.",
        f"No blanks around{CALL}it",
        "<skill>f(\n  a=1\n)</skill>",
        "<skill> \n f \t ( a = 1 , ) \r\n </skill>",
        "<skill>f(a=1,)</skill>",
        "<skill>f(  # what is looked for: </skill>)\n a=1 # one\n)</skill>",
        "<skill>f(\\\na=\\\r\n1)</skill>",
        f"In `{CALL}` one backtick quotes nothing",
        f"```{CALL}``` on one line is no fence",
        f"    {CALL}",
        f"> {CALL}",
        f"<SKILL>g()</SKILL> <Skill>g()</Skill> &lt;skill&gt;g()&lt;/skill&gt; {CALL}",
        f"<skill >g()</skill> < skill>g()</skill> <skills>g()</skills> \uff1cskill\uff1eg()\uff1c/skill\uff1e {CALL}",
        f"</skill> closes nothing {CALL} nor does </skill>",
        f"</parallel> {CALL}",
        f"<parallel></parallel>{CALL}<parallel> \n </parallel>",
        f"<parallel> in prose, closed: </parallel> {CALL}",
        f"{CALL} and then \\<parallel> without a call",
        f"\\<skill>a(){CALL}",
        f"\\<parallel>{CALL}\\</parallel>",
        f"NUL \x00 and half a character \ud800 in prose {CALL}",
        f"{CALL}\n<skil",
    ],
)
def test_one_call_is_read_in_any_surroundings(text):
    assert parse_skill_calls(text) == [READ]


def test_several_calls_are_read_in_order():
    text = '<skill>a()</skill><skill>b(x="<skill>c()</skill>")</skill>\n<skill>a()</skill>'
    assert [call.name for call in parse_skill_calls(text)] == ["a", "b", "a"]


@every_row("text", ["", " ", "Nothing to do.", "&lt;skill&gt;f()&lt;/skill&gt;", "<SKILL>f()</SKILL>"])
def test_prose_contains_no_calls(text):
    assert parse_skill_calls(text) == []


@every_row("quote", ['"', "'", '"""', "'''"])
@every_row(
    "said",
    [
        "(1+2)*3",
        "</skill>",
        ") </skill> <skill>g(a=1)</skill>",
        "<parallel>",
        "</parallel>",
        "# no comment",
        "{[(",
        "```",
        "f(b=2)",
    ],
)
def test_quoted_markup_is_text(quote, said):
    assert parse_skill_calls(f"<skill>f(a={quote}{said}{quote})</skill>") == [SkillCall("f", {"a": said})]


def test_a_fence_in_three_quotes_is_text_of_the_call():
    text = f'<skill>f(a="""\n```\ncode\n""")</skill>\n{CALL}\n```\n{CALL}'
    assert parse_skill_calls(text) == [SkillCall("f", {"a": "\n```\ncode\n"}), READ]


# --- Blocks ---


@every_row(
    ("text", "groups"),
    [
        ("<parallel>{0}</parallel>", [0]),
        ("<parallel>{0}{0}</parallel>", [0, 0]),
        ("{0}<parallel>{0}{0}</parallel>{0}", [None, 0, 0, None]),
        ("<parallel>{0}</parallel><parallel>{0}{0}</parallel>", [0, 1, 1]),
        ("<parallel>{0}</parallel>{0}<parallel>{0}</parallel>", [0, None, 1]),
        ("<parallel>first {0}, and then\n- {0}\nthat is all</parallel>", [0, 0]),
        ("<parallel></parallel><parallel>{0}</parallel><parallel> </parallel><parallel>{0}</parallel>", [0, 1]),
        ("<parallel>\n```\n</parallel>{0}\n```\n{0}</parallel>", [0]),
        ("<PARALLEL>{0}</PARALLEL>", [None]),
    ],
)
def test_groups_are_numbered_by_the_blocks_that_hold_calls(text, groups):
    assert [call.parallel_group for call in parse_skill_calls(text.format(CALL))] == groups


@every_row(
    ("text", "position"),
    [
        (f"<parallel>{CALL}", 0),
        (f"{CALL} and then <parallel>", 31),
        (f"<parallel></parallel> <parallel>{CALL}{CALL}", 22),
        (f"<parallel>{CALL}\n```\n</parallel>", 0),
        (f"<parallel>{CALL}</PARALLEL>", 0),
        (f"<parallel><parallel>{CALL}</parallel></parallel>", 10),
        (f"<parallel>{CALL}<parallel>{CALL}</parallel>", 31),
        ("<parallel><parallel></parallel></parallel>", 10),
        (f"{CALL}</parallel>", 21),
        (f"<parallel>{CALL}</parallel></parallel>", 42),
    ],
)
def test_refuses_unclosed_nested_or_unopened_blocks(text, position):
    with pytest.raises(SkillSyntaxError, match="parallel>") as caught:
        parse_skill_calls(text)
    assert caught.value.position == position


# --- Fences ---


@every_row(
    "text",
    [
        "```\n{0}\n```",
        "```xml\n{0}\n```",
        "~~~\n{0}\n~~~",
        "~~~ `x` ~ \n{0}\n~~~",
        "   ```\n{0}\n  ```  \t",
        "````\n```\n{0}\n````",
        "```\n~~~\n{0}\n```",
        "```\n``` no end\n{0}\n```",
        "```\n    ```\n{0}\n```",
        "```\n{0}\n",
        "```{0}",
        "prose\r```\r{0}\r```\r",
        "prose\r\n```\r\n{0}\r\n```\r\n",
        "```\n<skill>broken(\n```",
        "```\n<parallel><parallel></skill>\n```",
        "> ```\n> {0}\n> ```",
        ">```\n>{0}\n>```",
        "> > ```\n> > {0}\n> > ```",
        "- ```\n  {0}\n  ```",
        "* see\n\n  ```\n  {0}\n  ```",
        "12) ~~~\n    {0}\n    ~~~",
        "- a\n    - b\n\n      ```\n      {0}\n      ```",
        "- > 1. ```\n  >    {0}\n  >    ```",
        "    ```\n{0}\n    ```",
        "\t```\n{0}\n",
        " \t ```\n{0}\n",
        "```\n> ```\n{0}\n```",
        "```\n- ```\n{0}\n```",
        "> ```\n```\n{0}\n",
        "> ```\n> > ```\n> {0}\n",
        "- ```\n```\n{0}\n",
        "- ```\n- ```\n{0}\n",
        "- ```\n         ```\n{0}\n",
        "      ```\n         ```\n{0}\n",
        "> ```\n>      ```\n> {0}\n",
    ],
)
def test_calls_in_a_fence_are_ignored(text):
    assert parse_skill_calls(text.format(CALL)) == []


@every_row(
    "text",
    [
        "```\n```\n{0}",
        "```\ncode\n``````\n{0}",
        "```\ncode\n   ``` \t \n{0}",
        "~~~~\r~~~\r~~~~\r{0}",
        "``\n{0}\n``",
        "    ```\n{1}\n    ```\n{0}",
        "> ```\n> {1}\n> ```\n{0}",
        ">```\n> {1}\n>    ```\n{0}",
        "- ```\n  {1}\n  ```\n{0}",
        "- ```\n  {1}\n     ```\n{0}",
        "1. ```\n\t{1}\n\t```\n{0}",
        "- a\n    - b\n\n      ```\n      {1}\n      ```\n{0}",
        "> {0}",
        "- {0}",
        "-```\n{0}\n",
        "1234567890. ```\n{0}\n",
        "``` a `\n{0}\n",
        "x ```\n{0}\n",
        "~~\n{0}",
        "```\n{1}\n```\n{0}\n~~~\n{1}\n~~~",
        "{0} ```\n```\n{1}\n```",
        "<skill>f(a=1)</skill>```\n",
    ],
)
def test_calls_outside_a_fence_are_read(text):
    assert parse_skill_calls(text.format(CALL, "<skill>g()</skill>")) == [READ]


# --- Names ---


@every_row("name", ["f", "_", "F1", "_a_b_9", "from", "__import__", "n" * MAX_NAME_CHARS])
def test_ascii_names_are_read(name):
    """Words of Python among them: a parameter may well be called `from`."""
    text = f"<skill>{name}({name}=1)</skill>"
    assert parse_skill_calls(text) == [SkillCall(name, {name: 1})] == native(json.dumps({name: 1}), name, "")


@every_row(
    "name",
    [
        "1f", "\uff53end", "s\u0435nd", "send\u0301", "se\u200dnd", "\u202esend", "na\u00efve", "\ufb01nd",
        "\u00a0f", "f\x00", "f\ud800", "a.b", "a-b", "a b", "a[0]", "(f)", "'f'", "*f", "n" * (MAX_NAME_CHARS + 1),
    ],
)  # fmt: skip
def test_refuses_other_names(name):
    for text in (f"<skill>{name}(a=1)</skill>", f"<skill>f({name}=1)</skill>"):
        with pytest.raises(SkillSyntaxError, match=rf"1 to {MAX_NAME_CHARS} ASCII|arguments are given by name"):
            parse_skill_calls(text)
    with pytest.raises(SkillSyntaxError, match="is not a skill name: a name has 1 to"):
        native("{}", name)


def test_refuses_a_native_call_without_a_name():
    with pytest.raises(SkillSyntaxError, match="'' is not a skill name"):
        native("{}", "")


# --- The whole call ---


@every_row(
    "inside",
    [
        "'x'", "1", "x", "*x", "**{}", "**{'a': 1}", "a=1, 'x'", "'x', a=1", "a=1, a=2", "a=1, **{'a': 2}", "a", "a==1",
        "a:=1", "a=", "=1", "a=1 b=2", ",", "a=1,,", "a.b=1", "a[0]=1", "'a'=1", "(a)=1", "a for a in 'b'", "a: 1",
        "/", "*", "a=1;",
    ],
)  # fmt: skip
def test_refuses_arguments_that_are_not_given_once_by_name(inside):
    with pytest.raises(SkillSyntaxError):
        parse_skill_calls(f"<skill>f({inside})</skill>")


@every_row(
    "text",
    [
        "<skill>", "<skill></skill>", "<skill>f</skill>", "<skill>f(", "<skill>f()", "<skill>f() </skil>",
        "<skill>f()</SKILL>", "<skill>f() # done\n</skill>", "<skill># f\nf()</skill>", "<skill>\x0bf()</skill>",
        "<skill>f\u00a0()</skill>", "<skill>f()\u2028</skill>",
        "<skill>f();</skill>",
        "<skill>f()()</skill>", "<skill>f().g()</skill>", "<skill>f[0]()</skill>", "<skill>f() f()</skill>",
        "<skill><skill>f()</skill></skill>", "<skill>import os</skill>", "<skill>x = f()</skill>",
        '<skill>{"name": "f"}</skill>', "<skill>f()</parallel></skill>", "<skill>f(a=1</skill>",
        "<skill>f(a='1)</skill>",
        "<skill>__import__('os').system('x')</skill>", "<skill>open('x')</skill>", "<skill>\ud800f()</skill>",
    ],
)  # fmt: skip
def test_one_broken_call_makes_an_error_of_the_whole_reply(text):
    for reply in (text, CALL + text, text + CALL, f"<parallel>{CALL}{text}</parallel>", text * 3):
        with pytest.raises(SkillSyntaxError):
            parse_skill_calls(reply)


# --- Errors ---


@every_row(
    ("text", "position", "message"),
    [
        ("<skill>f(1)</skill>", 9, "Line 1, column 10: expected an argument such as limit=5 but found '1)</skill>'"),
        ("One\nTwo <skill>f(\n a=true)</skill>", 21, "Line 3, column 4: expected True but found 'true)</skill>'"),
        ("<skill>f(a=1, a=2)</skill>", 14, "Line 1, column 15: the argument a is given twice; give it once."),
        ("<skill>f(a='x\n')</skill>", 11, "not closed on its line; use three quotes for several lines"),
        ("<skill>f(a=1", 12, "expected , or ) but found the end of the text"),
        ("<skill>f(a={'\\ud800\u2028': 1})</skill>", 12, "a string contains U+D800, which cannot be stored"),
        ("<skill>f(a={'k\x01': 1, 'k\x01': 1})</skill>", 21, "the key 'k\\x01' occurs twice"),
        ("<skill>f(a=" + "7" * 2_000 + ")</skill>", 11, "a number is 2000 characters long; the limit is 1000"),
    ],
)
def test_error_says_what_is_wrong_where_and_how_to_fix_it(text, position, message):
    with pytest.raises(SkillSyntaxError) as caught:
        parse_skill_calls(text)
    assert message in str(caught.value)
    assert caught.value.position == position
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# --- Native calls ---


def test_native_calls_are_the_same_calls_and_keep_their_ids():
    requested = [
        RequestedCall("id-1", "f", '{"a": [1, -2.5, true, null, {"k": "\\ud83d\\ude00"}]}'),
        RequestedCall("", "g", " {} "),
    ]
    first, second = calls_from_native(requested)

    assert first == SkillCall("f", {"a": [1, -2.5, True, None, {"k": "😀"}]}, None, "id-1")
    assert second == SkillCall("g", {})
    [tagged] = parse_skill_calls("<skill>f(a=(1, -2.5, True, None, {'k': '😀'}))</skill>")
    assert (tagged.name, tagged.arguments) == (first.name, first.arguments)
    assert calls_from_native([]) == []


@every_row(
    "arguments",
    [
        "", " ", "{", '{"a": }', '{"a": 1,}', "{'a': 1}", '{"a": 1} x', '{"a": "\n"}', '{"a": 01}', '{"a": +1}', "a=1",
        "\ufeff{}", "[]", "[1]", "1", '"{}"', "null", "true",
        '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": -1e999}',
        '{"a": ' + "9" * 5_000 + "}", '{"a": 0.' + "1" * 5_000 + "}", '{"a": ' + "9" * (MAX_NUMBER_CHARS + 1) + "}",
        '{"a": 1, "a": 1}', '{"a": {"b": 1, "\\u0062": 2}}', '{"a": [{"b": 1, "b": 2}]}',
        '{"a": "\\u0000"}', '{"a": ["\\ud800"]}', '{"\\u0000": 1}', '{"a": {"\\udfff": 1}}',
        '{"a": "\ud800"}', '{"a": "\x00"}',
        f'{{"a": {nested(MAX_DEPTH + 1)}}}', f'{{"a": {nested(200)}}}', f'{{"a": {nested(100_000)}}}', "[" * 100_000,
        '{"a":' * (MAX_DEPTH + 2) + "1" + "}" * (MAX_DEPTH + 2),
    ],
)  # fmt: skip
def test_refuses_native_arguments_other_than_an_object(arguments):
    with pytest.raises(SkillSyntaxError, match="The arguments of f cannot be read: "):
        calls_from_native([RequestedCall("1", "g", "{}"), RequestedCall("2", "f", arguments)])


def test_native_values_have_the_same_limits_as_tags():
    deep, long = nested(MAX_DEPTH), "-" + "9" * MAX_NUMBER_CHARS
    [call] = native(f'{{"a": {deep}, "b": {long}, "c": -0.0, "from": 1e3}}')
    assert call.arguments == {"a": json.loads(deep), "b": int(long), "c": -0.0, "from": 1000.0}
