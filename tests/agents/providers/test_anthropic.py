"""The Anthropic provider against a server that refuses what the public endpoint refuses."""

import json
import threading
from dataclasses import replace

import pytest

from agents.providers.anthropic import Anthropic, payload_of, usage_of
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import Endpoint
from agents.providers.transport import Timeouts
from agents.types import ModelRequest, RequestedCall, Usage, WireForm
from tests.agents.providers.hostile_servers import SSE_HEAD, answer, drip, raw, serving
from tests.anthropic_wire import (
    KEY,
    PING,
    begins,
    block,
    call,
    check_anthropic,
    check_head,
    ends,
    refused,
    sse,
    streams,
    strict,
    text,
    thought,
)
from tests.table import every_row

SAID = {"role": "user", "content": "Is it in order?"}
REQUEST = ModelRequest("m", ({"role": "system", "content": "Be brief."}, SAID), max_tokens=4_096)
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "Nothing."}
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
PATIENT = Timeouts(connect=60, first_token=60, between_tokens=60, total=60)


def ask(*scripts, request=REQUEST, timeouts=PATIENT, **more):
    """The reply, the text that was passed on, and the server."""
    chunks = []
    with serving(*scripts) as server:
        endpoint = Endpoint(server.url, "model-x", key=lambda: KEY, key_header="x-api-key", timeouts=timeouts, **more)
        found = Anthropic("native", endpoint)
        try:
            reply = found.stream(request, chunks.append)
        finally:
            found.close()
    assert [chunk.finished for chunk in chunks].count(True) == 1
    assert chunks[-1] == Chunk(finished=True)
    return reply, "".join(chunk.text for chunk in chunks), server


def failure(*scripts, **more):
    with pytest.raises(ProviderError) as raised:
        ask(*scripts, **more)
    return raised.value


def test_a_call_is_sent_as_documented_and_its_stream_read():
    found, passed_on, server = ask(streams(begins(), *text(0, "All ", "fine."), PING, *ends()))
    assert found.text == passed_on == "All fine."
    assert (found.stop_reason, found.usage, found.calls) == ("end_turn", Usage(20, 9), ())
    assert (found.form, found.streamed) == (WireForm(), True)
    assert check_head(server.heads[0]) == KEY
    assert server.requests[0] == {
        "model": "model-x",
        "max_tokens": 4_096,
        "stream": True,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Is it in order?"}]}],
    }


def test_tools_and_their_results_are_sent_as_blocks():
    earlier = replace(REQUEST, messages=(*REQUEST.messages, CALLED, RESULT), tools=(TOOL,))
    _, _, server = ask(streams(begins(), *text(0, "ok"), *ends()), request=earlier)
    body = server.requests[0]
    assert body["tools"] == [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "abcdefgh1", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefgh1", "content": "Nothing."}]},
    ]


def test_calls_without_their_tools_are_sent_as_text():
    earlier = replace(REQUEST, messages=(*REQUEST.messages, CALLED, RESULT))
    _, _, server = ask(streams(begins(), *text(0, "ok"), *ends()), request=earlier)
    assert "tools" not in server.requests[0]
    assert "<skill>look(at=1)</skill>" in json.dumps(server.requests[0]["messages"])


def test_tool_use_is_put_together_from_its_pieces():
    found, passed_on, _ = ask(
        streams(
            begins(),
            *text(0, "Let me look."),
            *call(1, "look", '{"a', 't": 1}'),
            *call(2, "look", "", call_id="toolu_02"),
            *ends("tool_use"),
        ),
        request=replace(REQUEST, tools=(TOOL,)),
    )
    assert passed_on == found.text == "Let me look."
    assert found.calls == (RequestedCall("toolu_01", "look", '{"at": 1}'), RequestedCall("toolu_02", "look", "{}"))
    assert found.stop_reason == "tool_use"


def test_a_call_that_was_cut_off_before_its_arguments_cannot_be_read():
    cut, _, _ = ask(
        streams(begins(), *call(0, "look")[:-1], *ends("max_tokens")), request=replace(REQUEST, tools=(TOOL,))
    )
    assert (cut.calls[0].arguments, cut.stop_reason) == ("{", "max_tokens")


def test_a_reply_to_a_schema_is_the_input_of_a_tool_that_has_to_be_called():
    found, passed_on, server = ask(
        streams(begins(), *call(0, "answer", '{"num', 'ber": 7}'), *ends("tool_use")),
        request=replace(REQUEST, response_schema=SCHEMA),
    )
    assert found.text == passed_on == '{"number": 7}'
    assert (found.calls, found.stop_reason) == ((), "end_turn")
    assert server.requests[0]["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
    assert server.requests[0]["tools"][0]["input_schema"] == SCHEMA


def test_a_model_that_may_not_be_forced_is_asked_without_the_schema():
    request = replace(REQUEST, response_schema=SCHEMA)
    error = failure(refused("invalid_request_error", "tool_choice forces tool use"), request=request)
    assert (error.fault, error.form, error.usage) == (Fault.FORM, WireForm(schema_style="off"), Usage(0, 0))
    _, _, server = ask(
        streams(begins(), *text(0, "{}"), *ends()), request=replace(request, form=WireForm(schema_style="off"))
    )
    assert "tool_choice" not in server.requests[0]
    assert failure(refused("invalid_request_error", "tool_choice")).fault == Fault.INVALID_REQUEST, "none was sent"


@every_row(
    ("change", "reasoning"),
    [
        ({"tools": (TOOL,)}, None),
        ({}, True),
        ({"response_schema": {"type": "array"}}, None),
    ],
)
def test_a_schema_binds_nothing_beside_tools_and_thinking(change, reasoning):
    request = replace(REQUEST, **{"response_schema": SCHEMA, **change})
    payload = payload_of(request, Endpoint("http://127.0.0.1/v1", "m", reasoning=reasoning))
    check_anthropic(payload)
    assert "tool_choice" not in payload


# --- Thinking ---


def test_what_the_model_thinks_is_no_part_of_its_answer():
    chunks = []
    events = [begins(), *thought(0, "Hmm, ", "let me see."), *text(1, "Yes."), *ends(output_tokens=40)]
    with serving(streams(*events)) as server:
        found = Anthropic("native", Endpoint(server.url, "m", reasoning=True))
        reply = found.stream(REQUEST, chunks.append)
        found.close()
    assert (reply.text, reply.usage) == ("Yes.", Usage(20, 40))
    assert any(chunk.is_thought for chunk in chunks)
    assert not any("Hmm" in chunk.text for chunk in chunks)
    assert server.requests[0]["thinking"] == {"type": "adaptive"}


def test_thinking_that_used_up_all_tokens_is_a_cut_reply():
    found, _, _ = ask(streams(begins(), *thought(0, "Hmm")[:-1], *ends("max_tokens")), reasoning=True)
    assert (found.text, found.stop_reason) == ("", "max_tokens")


@every_row(
    ("max_tokens", "budget"),
    [(16_000, 8_000), (6_000, 4_976), (2_048, 1_024), (2_047, None), (256, None)],
)
def test_a_budget_for_thinking_leaves_room_for_the_answer(max_tokens, budget):
    endpoint = Endpoint("http://127.0.0.1/v1", "m", reasoning=8_000)
    payload = payload_of(replace(REQUEST, max_tokens=max_tokens), endpoint)
    check_anthropic(payload)
    assert payload.get("thinking") == (None if budget is None else {"type": "enabled", "budget_tokens": budget})


def test_a_model_does_not_think_between_the_calls_of_a_turn():
    endpoint = Endpoint("http://127.0.0.1/v1", "m", reasoning=True)
    payload = payload_of(replace(REQUEST, messages=(*REQUEST.messages, CALLED, RESULT), tools=(TOOL,)), endpoint)
    check_anthropic(payload)
    assert "thinking" not in payload


def test_a_model_that_thinks_is_not_silent():
    """A piece of its thinking every 0.1 seconds, for longer than it may be silent."""
    over = threading.Event()
    head = SSE_HEAD + sse(begins(), *thought(0)[:1])
    piece = sse({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm "}})
    pings = sse(PING)
    waits = Timeouts(connect=60, first_token=0.6, between_tokens=0.6, total=2.0)
    thinking = failure(strict(drip(head, piece, 0.1, over.is_set)), timeouts=waits, reasoning=True)
    assert thinking.received_bytes > len("hm ") * 8, "it went on until the time of the call was over"
    assert failure(strict(drip(SSE_HEAD, pings, 0.1, over.is_set)), timeouts=waits).received_bytes == 0
    over.set()


# --- Ends, usage and faults ---


@every_row(
    ("reason", "means"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("pause_turn", "max_tokens"),
        ("refusal", "refusal"),
        ("something_new", "end_turn"),
    ],
)
def test_stop_reasons_have_one_meaning_each(reason, means):
    assert ask(streams(begins(), *text(0, "x"), *ends(reason)))[0].stop_reason == means


def test_tokens_of_the_cache_are_input_and_counted_apart():
    found, _, _ = ask(
        streams(
            begins(cache_creation_input_tokens=300, cache_read_input_tokens=4_000),
            *text(0, "x"),
            *ends(output_tokens=5),
        )
    )
    assert found.usage == Usage(4_320, 5, cache_write_tokens=300, cache_read_tokens=4_000)


@every_row(
    ("begun", "ended", "usage"),
    [
        ({"input_tokens": 20, "output_tokens": 3}, {"output_tokens": 2}, Usage(20, 3)),
        ({"input_tokens": 20}, {"output_tokens": 2, "input_tokens": 30}, Usage(30, 2)),
        ({}, {"output_tokens": 2, "input_tokens": 30}, Usage(30, 2)),
        ({"input_tokens": 20}, {}, None),
        ({}, {"output_tokens": 2}, None),
        ({"input_tokens": -1}, {"output_tokens": 2}, None),
        ({"input_tokens": 20}, {"output_tokens": True}, None),
        (
            {"input_tokens": 1},
            {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 7}},
            Usage(1, 9, reasoning_tokens=7),
        ),
    ],
)
def test_of_two_counts_the_larger_one_is_booked(begun, ended, usage):
    assert usage_of(begun, ended) == usage


@every_row(
    ("script", "fault", "retry_after"),
    [
        (refused("overloaded_error", "Overloaded", 529), Fault.SERVER, None),
        (refused("rate_limit_error", "Slow down", 429, retry_after="17"), Fault.RATE_LIMITED, 17.0),
        (refused("api_error", "Oops", 500), Fault.SERVER, None),
        (refused("authentication_error", "invalid x-api-key", 401), Fault.AUTH, None),
        (refused("permission_error", "no access", 403), Fault.AUTH, None),
        (refused("not_found_error", "model: nope", 404), Fault.NOT_SERVED, None),
        (refused("invalid_request_error", "no", 400), Fault.INVALID_REQUEST, None),
    ],
)
def test_a_refusal_has_its_fault_and_costs_nothing(script, fault, retry_after):
    error = failure(script, key_name="THE_KEY")
    assert (error.fault, error.retry_after, error.usage) == (fault, retry_after, Usage(0, 0))
    assert KEY not in str(error)
    assert (fault == Fault.AUTH) == ("the server refused the key in THE_KEY: set the right one" in str(error))


def test_an_error_in_the_middle_of_a_stream_is_an_outage_whose_tokens_are_not_known():
    broken = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    error = failure(streams(begins(), *text(0, "half of ")[:-1], broken))
    assert (error.fault, error.usage, error.received_bytes) == (Fault.SERVER, None, 8)
    assert "Overloaded" in str(error)


def test_a_stream_cut_anywhere_is_an_outage_or_the_whole_reply():
    """Each cut loses the reply or nothing of it: what is half there is never taken for a reply."""
    data = sse(begins(), *thought(0, "hm"), *text(1, "Größe: ", "9"), *call(2, "look", "{}"), *ends("tool_use"))
    complete = data.index(b'"usage": {"output_tokens"')
    request = replace(REQUEST, tools=(TOOL,))
    for cut in range(0, len(data), 23):
        script = strict(raw(SSE_HEAD, data[:cut]))
        if cut <= complete:
            assert failure(script, request=request).fault in {Fault.CONNECTION, Fault.MALFORMED}, cut
    whole = ask(strict(raw(SSE_HEAD, data[: data.index(b"event: message_stop")])), request=request)[0]
    assert (whole.text, whole.stop_reason) == ("Größe: 9", "tool_use")


def test_a_stream_in_any_pieces_reads_the_same():
    data = sse(begins(), *thought(0, "hm"), *text(1, "Größe: ", "9"), *ends())
    for size in (1, 5, 64):
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        found, passed_on, _ = ask(strict(raw(SSE_HEAD, *pieces)))
        assert found.text == passed_on == "Größe: 9"


def test_unknown_events_and_blocks_are_skipped():
    odd = [
        {"type": "something_new", "index": 3},
        *block(0, {"type": "new_block", "text": "no"}, {"type": "new_delta", "text": "no"}),
        {"type": "content_block_stop", "index": 9},
        {"type": "content_block_delta", "index": 8, "delta": {"type": "text_delta", "text": "unopened "}},
        {"type": "message_delta", "delta": None, "usage": None},
    ]
    assert ask(streams(begins(), *odd, *text(1, "yes"), *ends()))[0].text == "yesunopened "


def test_a_reply_in_one_piece_is_understood():
    body = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 2}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 6},
    }
    found, passed_on, _ = ask(answer(200, body, request_id="req_7"))
    assert (found.text, passed_on, found.streamed, found.request_id) == ("ok", "ok", False, "req_7")
    assert found.calls == (RequestedCall("toolu_1", "look", '{"at": 2}'), RequestedCall("toolu_2", "look", "{}"))
    assert found.usage == Usage(5, 6)
    assert failure(answer(200, {"type": "message"})).fault == Fault.MALFORMED
    assert failure(answer(200, b"[1]")).fault == Fault.MALFORMED


@every_row(
    "change",
    [
        lambda body: body.pop("max_tokens"),
        lambda body: body.update(seed=1),
        lambda body: body["messages"].insert(0, {"role": "assistant", "content": "x"}),
        lambda body: body["messages"].append({"role": "user", "content": "x"}),
        lambda body: body["messages"].append({"role": "assistant", "content": "x"}),
        lambda body: body["messages"][0].update(content=" "),
        lambda body: body["messages"][0].update(content=[]),
        lambda body: body["messages"][2]["content"].pop(),
        lambda body: body["messages"][2]["content"].insert(0, {"type": "text", "text": "first"}),
        lambda body: body["messages"][1]["content"][0].update(input="{}"),
        lambda body: body["messages"][1]["content"][0].update(id="other"),
        lambda body: body.update(tools=[]),
        lambda body: body["tools"][0].update(input_schema={"type": "array"}),
        lambda body: body["tools"][0].update(strict=True),
        lambda body: body.update(tool_choice={"type": "tool", "name": "nobody"}),
        lambda body: body.update(temperature=1.5),
        lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 4_096}),
        lambda body: body.update(thinking={"type": "enabled", "budget_tokens": 100}),
        lambda body: body.update(thinking={"type": "adaptive"}),
        lambda body: body.update(system=" "),
    ],
)
def test_the_strict_server_refuses_what_the_endpoint_refuses(change):
    request = replace(REQUEST, messages=(*REQUEST.messages, CALLED, RESULT), tools=(TOOL,))
    body = payload_of(request, Endpoint("http://127.0.0.1/v1", "m"))
    check_anthropic(body)
    change(body)
    with pytest.raises(ValueError, match="validation error"):
        check_anthropic(body)


def test_blank_texts_stops_and_further_fields_are_sent_as_the_endpoint_takes_them():
    blank = ({"role": "user", "content": " "}, {"role": "assistant", "content": "\n"}, SAID)
    request = replace(REQUEST, messages=blank, stop=("END",), temperature=0.5, seed=3)
    body = payload_of(request, Endpoint("http://127.0.0.1/v1", "m", extra={"service_tier": "auto"}))
    check_anthropic(body)
    assert body["stop_sequences"] == ["END"]
    assert body["service_tier"] == "auto"
    assert "seed" not in body
