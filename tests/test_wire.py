"""The checks of request bodies refuse what strict servers refuse."""

import copy

import pytest

from tests.table import every_row
from tests.wire import check_gemma, check_mistral, check_request

CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
BODY = {
    "model": "m",
    "max_tokens": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": "r"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "u"},
    ],
}


def test_a_request_in_order_passes():
    check_request(BODY)
    check_mistral(BODY["messages"])
    check_gemma([BODY["messages"][place] for place in (1, 4, 5)])


@every_row(
    "change",
    [
        lambda body: body.update(max_tokens="1"),
        lambda body: body.update(max_completion_tokens=1),
        lambda body: body.update(mark=True),
        lambda body: body.update(tools=[]),
        lambda body: body["messages"][1].update(mark="aside"),
        lambda body: body["messages"][1].update(content=""),
        lambda body: body["messages"][1].update(role="developer"),
        lambda body: body["messages"][3].update(tool_call_id="other"),
        lambda body: body["messages"].pop(3),
        lambda body: body["messages"].pop(2),
        lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments="[]"),
    ],
)
def test_other_shapes_are_refused(change):
    body = copy.deepcopy(BODY)
    change(body)
    with pytest.raises((AssertionError, ValueError)):
        check_request(body)


@every_row("roles", ["s u u", "u s u", "a u", "s u a a", "u c t u", "u c t u a u", "u a", "u a s u", "s", "u x"])
def test_other_orders_of_roles_are_refused(roles):
    kinds = {"s": BODY["messages"][0], "u": BODY["messages"][1], "c": BODY["messages"][2], "t": BODY["messages"][3]}
    kinds |= {"a": BODY["messages"][4], "x": {"role": "tool", "tool_call_id": "call_1", "content": "r"}}
    messages = [kinds[one] for one in roles.split()]
    for check in (check_mistral, check_gemma):
        with pytest.raises((AssertionError, IndexError)):
            check(messages)
