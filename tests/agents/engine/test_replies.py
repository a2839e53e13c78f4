"""Reading replies: the limit of calls, what is stored of them, and the final text of a run."""

import json
from types import SimpleNamespace

import pytest

from agents.engine.replies import MAX_CALLS, read_reply, stored_calls
from agents.policy import guardrails
from tests.agents.skills.leaky import CANARY

CALL = "<skill>now()</skill>"
NATIVE = {"name": "now", "arguments": "{}"}


@pytest.mark.parametrize(
    "data",
    [lambda number: {"text": CALL * number}, lambda number: {"text": "", "calls": [NATIVE] * number}],
    ids=["in text", "native"],
)
def test_reply_with_too_many_calls_runs_none(data):
    assert len(read_reply(data(MAX_CALLS), step=1).calls) == MAX_CALLS

    flooded = read_reply(data(MAX_CALLS + 1), step=1)

    assert flooded.calls == ()
    assert f"at most {MAX_CALLS}" in flooded.unreadable


@pytest.mark.parametrize("whole", [(), (NATIVE,)], ids=["alone", "beside a whole one"])
def test_call_cut_off_before_its_arguments_is_not_run(whole):
    calls = [*whole, {"name": "now", "arguments": " "}]
    cut = read_reply({"calls": calls, "stop_reason": "max_tokens"}, step=1)
    without = read_reply({"calls": calls, "stop_reason": "tool_use"}, step=1)

    assert (cut.calls, bool(cut.unreadable), cut.stop) == ((), True, "max_tokens")
    assert [call.arguments for call in without.calls] == [{}] * len(calls)


def escaped(text):
    return "".join(f"\\x{ord(char):02x}" for char in text)


@pytest.mark.parametrize(
    "data",
    [
        {"text": f'<skill>look(place="{CANARY[:7]}" "{CANARY[7:]}")</skill>'},
        {"text": f'<skill>look(place="{escaped(CANARY[:3])}{CANARY[3:]}")</skill>'},
        {"text": f'<skill>look(place={{"{CANARY[:7]}" "{CANARY[7:]}": 1}})</skill>'},
        {"calls": [{"name": "look", "arguments": f'{{"place": "\\u{ord(CANARY[0]):04x}{CANARY[1:]}"}}'}]},
    ],
    ids=["adjacent literals", "escapes", "key", "native escapes"],
)
def test_secret_assembled_by_parsing_is_not_stored(data):
    reply = read_reply(data, step=1)

    assert not reply.unreadable
    assert [call.name for call in reply.calls] == ["look"]
    assert CANARY not in json.dumps([call.arguments for call in reply.calls])
    assert CANARY not in json.dumps([json.loads(call["arguments"]) for call in reply.stored])
    assert [call.arguments for call in stored_calls(reply.stored)] == [reply.calls[0].arguments]


def test_secret_in_an_unreadable_call_is_not_shown():
    arguments = f'{{"{CANARY}": 1, "{CANARY}": 2}}'
    assert CANARY not in read_reply({"calls": [{"name": "look", "arguments": arguments}]}, step=1).unreadable


# --- The final text of a run ---


def entry(content, reason="", role="assistant"):
    return SimpleNamespace(role="user" if reason else role, content=content, reason=reason)


GO_ON, AGAIN, WARNED = (
    entry(message.text, message.reason) for message in (guardrails.CONTINUE, guardrails.CALL_AGAIN, guardrails.WRAP_UP)
)


@pytest.mark.parametrize(
    ("transcript", "text"),
    [
        ([], ""),
        ([entry("a", role="user"), entry("b")], "b"),
        ([entry("a"), entry("b")], "b"),
        ([entry("a"), GO_ON, entry("b"), GO_ON, entry("c")], "abc"),
        ([entry("a"), GO_ON, WARNED, entry("b")], "ab"),
        ([entry("a"), WARNED, entry("b")], "b"),
        ([entry("call("), AGAIN, entry("b"), GO_ON, entry("c")], "bc"),
        ([entry("a"), GO_ON, entry("call("), AGAIN, entry("c")], "c"),
        ([entry("a", role="user"), GO_ON, entry("b")], "b"),
    ],
)
def test_answer_joins_only_parts_that_were_cut_and_continued(transcript, text):
    assert guardrails.joined(transcript) == text
