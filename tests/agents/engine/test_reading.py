"""What is read from replies: how many calls one may ask for, what is kept of them, and the answer of a run."""

import json
from types import SimpleNamespace

import pytest

from agents.engine.replies import MOST_CALLS, read_reply, stored_calls
from agents.policy import guardrails
from tests.agents.skills.leaky import CANARY

CALL = "<skill>now()</skill>"
NATIVE = {"name": "now", "arguments": "{}"}


@pytest.mark.parametrize(
    "told",
    [lambda number: {"text": CALL * number}, lambda number: {"text": "", "calls": [NATIVE] * number}],
    ids=["in text", "native"],
)
def test_of_a_reply_with_too_many_calls_none_is_run(told):
    assert len(read_reply(told(MOST_CALLS), step=1).calls) == MOST_CALLS

    flooded = read_reply(told(MOST_CALLS + 1), step=1)

    assert flooded.calls == ()
    assert f"at most {MOST_CALLS}" in flooded.unreadable


@pytest.mark.parametrize("whole", [(), (NATIVE,)], ids=["alone", "beside a whole one"])
def test_call_that_was_cut_off_before_its_arguments_is_not_run(whole):
    calls = [*whole, {"name": "now", "arguments": " "}]
    cut = read_reply({"calls": calls, "stop_reason": "max_tokens"}, step=1)
    without = read_reply({"calls": calls, "stop_reason": "tool_use"}, step=1)

    assert (cut.calls, bool(cut.unreadable), cut.stop) == ((), True, "max_tokens")
    assert [call.arguments for call in without.calls] == [{}] * len(calls)


def escaped(text):
    return "".join(f"\\x{ord(char):02x}" for char in text)


@pytest.mark.parametrize(
    "told",
    [
        {"text": f'<skill>look(place="{CANARY[:7]}" "{CANARY[7:]}")</skill>'},
        {"text": f'<skill>look(place="{escaped(CANARY[:3])}{CANARY[3:]}")</skill>'},
        {"text": f'<skill>look(place={{"{CANARY[:7]}" "{CANARY[7:]}": 1}})</skill>'},
        {"calls": [{"name": "look", "arguments": f'{{"place": "\\u{ord(CANARY[0]):04x}{CANARY[1:]}"}}'}]},
    ],
    ids=["adjacent literals", "escapes", "key", "native escapes"],
)
def test_secret_that_is_put_together_by_reading_is_not_kept(told):
    reply = read_reply(told, step=1)

    assert not reply.unreadable
    assert [call.name for call in reply.calls] == ["look"]
    assert CANARY not in json.dumps([call.arguments for call in reply.calls])
    assert CANARY not in json.dumps([json.loads(call["arguments"]) for call in reply.stored])
    assert [call.arguments for call in stored_calls(reply.stored)] == [reply.calls[0].arguments]


def test_secret_in_what_cannot_be_read_is_not_told():
    arguments = f'{{"{CANARY}": 1, "{CANARY}": 2}}'
    assert CANARY not in read_reply({"calls": [{"name": "look", "arguments": arguments}]}, step=1).unreadable


# --- What a run came to ---


def said(content, reason="", role="assistant"):
    return SimpleNamespace(role="user" if reason else role, content=content, reason=reason)


GO_ON, AGAIN, WARNED = (
    said(message.text, message.reason) for message in (guardrails.CONTINUE, guardrails.CALL_AGAIN, guardrails.WRAP_UP)
)


@pytest.mark.parametrize(
    ("transcript", "words"),
    [
        ([], ""),
        ([said("a", role="user"), said("b")], "b"),
        ([said("a"), said("b")], "b"),
        ([said("a"), GO_ON, said("b"), GO_ON, said("c")], "abc"),
        ([said("a"), GO_ON, WARNED, said("b")], "ab"),
        ([said("a"), WARNED, said("b")], "b"),
        ([said("call("), AGAIN, said("b"), GO_ON, said("c")], "bc"),
        ([said("a"), GO_ON, said("call("), AGAIN, said("c")], "c"),
        ([said("a", role="user"), GO_ON, said("b")], "b"),
    ],
)
def test_only_what_was_cut_off_and_continued_is_one_answer(transcript, words):
    assert guardrails.joined(transcript) == words
