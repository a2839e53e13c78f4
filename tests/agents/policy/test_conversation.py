"""The wire form of conversations: any messages become what strict servers take, and nothing is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agents.policy.context_window import MARK
from agents.policy.conversation import GO_ON, NO_RESULT, NOTED, OPENER, add_note, alternate, in_form, strict_id
from agents.policy.costs import input_bound
from agents.skills.parsing import parse_skill_calls
from agents.types import ModelRequest, Price, WireForm
from tests.table import every_row
from tests.wire import check_bodies, check_gemma


def user(content="u", **more):
    return {"role": "user", "content": content, **more}


def system(content="s"):
    return {"role": "system", "content": content}


def said(content="a", *ids):
    calls = [
        {
            "id": one,
            "type": "function",
            "function": {"name": "look", "arguments": '{"place": "x", "deep": [true, null]}'},
        }
        for one in ids
    ]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def result(call_id, content="r"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


ONE, TWO = "abcdefgh1", "abcdefgh2"
NOTE = user("n", **{MARK: "aside"})


@every_row(
    ("given", "sent"),
    [
        ([system(), user(), said(), user()], [system(), user(), said(), user()]),
        ([user("a"), user("b"), said(), user()], [user("a\n\nb"), said(), user()]),
        ([system("a"), user(), system("b")], [system("a\n\nb"), user()]),
        ([user(), said("a"), said("b"), user()], [user(), said("a\n\nb"), user()]),
        ([user(), said("a"), said("", ONE), result(ONE)], [user(), said("a", ONE), result(ONE)]),
        # Notes of ours behind results stand in the last message of the user; what the user says begins a turn.
        ([user(), said("", ONE), result(ONE), NOTE], [user("u\n\nn"), said("", ONE), result(ONE)]),
        ([user(), said(), NOTE], [user(), said(), user("n")]),
        ([user(), NOTE], [user("u\n\nn")]),
        ([said("", ONE), result(ONE), NOTE], [user("n"), said("", ONE), result(ONE)]),
        ([user(), said("", ONE), result(ONE), user()], [user(), said("", ONE), result(ONE), said(NOTED), user()]),
        # Every call has its result, directly behind it, and no result is without its call.
        ([user(), said("", ONE, TWO), result(TWO)], [user(), said("", ONE, TWO), result(ONE, NO_RESULT), result(TWO)]),
        ([user(), said("", ONE), NOTE, result(ONE)], [user("u\n\nn"), said("", ONE), result(ONE)]),
        ([user(), result("x"), user("v")], [user("u\n\nResult of call x:\nr\n\nv")]),
        # It begins with the user and does not end with the model.
        ([said(), user()], [user(OPENER), said(), user()]),
        ([user(), said()], [user(), said(), user(GO_ON)]),
        ([], [user(OPENER)]),
        ([user(), said(""), user(""), said(None), user("v")], [user("u\n\nv")]),
    ],
)
def test_roles_alternate_and_calls_have_their_results(given, sent):
    assert alternate(given) == sent
    assert alternate(sent) == sent


def test_ids_of_calls_are_nine_letters_and_digits():
    sent = alternate([user(), said("", "call_1_1", ONE), result("call_1_1"), result(ONE)])
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in sent[2:]] == [strict_id("call_1_1"), ONE]
    assert all(len(one) == 9 and one.isalnum() and one.isascii() for one in ids)


def test_a_note_stands_in_the_last_message_of_the_user():
    assert add_note([user(), said("", ONE), result(ONE)], "n") == [user("u\n\nn"), said("", ONE), result(ONE)]


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def test_calls_and_skills_can_be_written_as_text():
    messages = (system(), user(), said("I look.", ONE, TWO), result(ONE), result(TWO))
    sent = in_form(ModelRequest("m", messages, tools=(TOOL,), form=WireForm(tools="text")))

    listed, asked, called, results = sent.messages
    assert sent.tools == ()
    assert listed["content"] == 's\n\nSkills:\n{"name": "look", "parameters": {"type": "object"}}'
    assert asked == user()
    assert results == user(f"Result of call {ONE}:\nr\n\nResult of call {TWO}:\nr")
    assert [call.arguments for call in parse_skill_calls(called["content"])] == [
        {"place": "x", "deep": [True, None]}
    ] * 2
    assert in_form(sent) == sent


def test_the_system_message_can_stand_in_the_first_message_of_the_user():
    request = ModelRequest("m", (system(), user(), said(), user()), form=WireForm(system="first_user"))
    assert list(in_form(request).messages) == [user("s\n\nu"), said(), user()]
    assert in_form(in_form(request)) == in_form(request)


# --- Any transcript ---


IDS = st.sampled_from(["call_1_1", "call_1_2", "call_2_1", ONE])
TEXTS = st.one_of(st.none(), st.text(max_size=8))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def messages(draw):
    content = draw(TEXTS)
    match draw(st.sampled_from(["system", "user", "note", "assistant", "calls", "tool"])):
        case "note":
            return {"role": "user", "content": content, MARK: "result"}
        case "tool":
            return {"role": "tool", "tool_call_id": draw(IDS), "content": content}
        case "calls":
            arguments = st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2)
            calls = [
                {
                    "id": one,
                    "type": "function",
                    "function": {"name": "look", "arguments": json.dumps(draw(arguments), ensure_ascii=False)},
                }
                for one in draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
            ]
            return {"role": "assistant", "content": content, "tool_calls": calls}
        case role:
            return {"role": role, "content": content}


@given(
    st.lists(messages(), max_size=12), st.sampled_from(["native", "text"]), st.sampled_from(["message", "first_user"])
)
def test_any_transcript_becomes_one_that_strict_servers_take(transcript, tools, where):
    plain = in_form(ModelRequest("m", tuple(transcript), tools=(TOOL,)))
    sent = in_form(ModelRequest("m", plain.messages, tools=(TOOL,), form=WireForm(tools=tools, system=where)))

    check_bodies(sent)
    assert all(MARK not in message for message in sent.messages)
    assert in_form(sent) == sent
    for message in transcript:
        assert any((message["content"] or "") in (one["content"] or "") for one in sent.messages)
    if (tools, where) == ("text", "first_user"):
        check_gemma(sent.messages)
    price = Price("m", 1, 1, overhead_tokens=0)
    assert sum(len(message["content"].encode()) for message in sent.messages) <= input_bound(plain, price)
