"""The OpenAI-compatible provider against well-behaved and misbehaving servers."""

import gzip
import logging
import os
import resource
import socket
import struct
import threading
import time
from dataclasses import replace

import pytest

from agents.policy.conversation import in_form
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import Endpoint
from agents.providers.openai_compat import OpenAICompatible
from agents.providers.transport import Timeouts
from agents.skills.parsing import SkillSyntaxError, calls_from_native
from agents.types import ModelRequest, RequestedCall, Usage, WireForm
from tests.agents.providers import hostile_servers
from tests.agents.providers.hostile_servers import SSE_HEAD, answer, delta, drip, events, raw, reply, serving, stream
from tests.agents.providers.listeners import ignore
from tests.table import every_row

REQUEST = ModelRequest("m", ({"role": "user", "content": "Is it in order?"},), max_tokens=64)
PATIENT = Timeouts(connect=60, first_token=60, between_tokens=60, total=60)
QUICK = Timeouts(connect=60, first_token=0.5, between_tokens=0.5, total=1.0)
STALLED = 30  # seconds that a busy machine may stand still at most


def provider(server, timeouts=PATIENT, **more):
    return OpenAICompatible("local", Endpoint(server.url, "model-x", timeouts=timeouts, **more))


def complete(*scripts, request=REQUEST, **more):
    with serving(*scripts) as server:
        found = provider(server, **more)
        try:
            return found.stream(request, ignore), server
        finally:
            found.close()


def failure(*scripts, streaming=False, **more):
    """The error of a call, how long it took, and the chunks that came before it."""
    chunks = []
    with serving(*scripts) as server:
        found = provider(server, **more)
        started = time.monotonic()
        with pytest.raises(ProviderError) as raised:
            found.stream(REQUEST, chunks.append)
        took = time.monotonic() - started
        found.close()
    if streaming:
        assert [chunk.finished for chunk in chunks].count(True) == 1
        assert chunks[-1] == Chunk(finished=True)
    return raised.value, took, chunks


def test_a_call_returns_the_reply():
    found, server = complete(answer(200, reply("All in order."), X_Request_Id="r-1"), key=lambda: "k-123")
    assert (found.text, found.usage, found.stop_reason) == ("All in order.", Usage(7, 3), "end_turn")
    assert found.request_id == "r-1"
    [sent] = server.requests
    assert sent == {
        "model": "model-x",
        "messages": list(REQUEST.messages),
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert "Authorization: Bearer k-123" in server.heads[0]


def test_tools_schema_seed_and_stops_are_sent_when_given():
    request = ModelRequest(
        "m",
        REQUEST.messages,
        tools=({"type": "function"},),
        response_schema={"type": "object"},
        seed=7,
        stop=("END",),
        temperature=0.0,
    )
    _, server = complete(answer(), request=replace(request, form=WireForm(token_limit="max_completion_tokens")))
    [sent] = server.requests
    assert sent["tools"] == [{"type": "function"}]
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (sent["seed"], sent["stop"], sent["temperature"]) == (7, ["END"], 0.0)
    assert sent["max_completion_tokens"] == 1_024
    _, plain = complete(answer(), request=replace(request, form=WireForm(schema_style="off")))
    assert "response_format" not in plain.requests[0]


OBJECTIONS = [
    ("schema_style", "body.response_format.type: Input should be 'text' or 'json_object'", ["json_object", "off"]),
    ("stream_usage", "Unrecognized request argument supplied: stream_options", ["off"]),
    (
        "token_limit",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ["max_completion_tokens"],
    ),
    ("system", "System role not supported", ["first_user"]),
    ("system", "Developer instruction is not enabled for models/g-27b", ["first_user"]),
    ("tools", "library/g:latest does not support tools", ["text"]),
    ("tools", "No endpoints found that support tool use.", ["text"]),
    ("tools", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', ["text"]),
    ("tools", "tools param requires --jinja flag", ["text"]),
    ("tools", "Function calling is not enabled for models/g-27b", ["text"]),
    ("tools", "This model only supports single tool-calls at once!", ["text"]),
]
EITHER = ["Conversation roles must alternate user/assistant/...", "Only user and assistant roles are supported!"]
EVERYTHING = ModelRequest(
    "m",
    ({"role": "system", "content": "s"}, *REQUEST.messages),
    tools=({"type": "function"},),
    response_schema={"type": "object"},
)


@every_row(("part", "words", "forms"), OBJECTIONS)
def test_a_server_that_objects_to_a_part_of_a_request_is_asked_in_another_form(part, words, forms):
    with serving(*[answer(status, {"error": {"message": words}}) for status in (400, 422, 500)]) as server:
        found, request, tried = provider(server), EVERYTHING, []
        for _ in forms:
            with pytest.raises(ProviderError) as refused:
                found.stream(request, ignore)
            error = refused.value
            assert (error.fault, error.recoverable, error.usage) == (Fault.FORM, True, Usage(0, 0))
            request = in_form(replace(request, form=error.form))
            tried.append(getattr(error.form, part))
        with pytest.raises(ProviderError) as refused:
            found.stream(request, ignore)
        found.close()
    assert tried == forms
    assert refused.value.fault != Fault.FORM, "no form is left to try"


def test_a_template_that_only_knows_user_and_assistant_is_asked_so():
    for words in EITHER:
        with serving(answer(400, {"error": words}), answer(500, {"error": words}), answer()) as server:
            found, request = provider(server), EVERYTHING
            for _ in range(2):
                with pytest.raises(ProviderError) as refused:
                    found.stream(request, ignore)
                request = in_form(replace(request, form=refused.value.form))
            assert found.stream(request, ignore).form == WireForm(system="first_user", tools="text")
            found.close()
        assert [message["role"] for message in server.requests[-1]["messages"]] == ["user"]


def test_an_objection_to_what_was_not_sent_is_an_error():
    for _, words, _forms in OBJECTIONS[3:]:
        error, _, _ = failure(answer(400, {"error": words}))
        assert (error.fault, error.form) == (Fault.INVALID_REQUEST, None)


def test_the_forms_of_a_request_are_sent():
    form = WireForm(schema_style="json_object", stream_usage="off")
    _, server = complete(answer(), request=replace(EVERYTHING, form=form))
    [sent] = server.requests
    assert sent["response_format"] == {"type": "json_object", "schema": {"type": "object"}}
    assert "stream_options" not in sent


def test_a_query_of_the_address_and_further_fields_are_sent():
    with serving(answer()) as server:
        sent = {"key": lambda: "k-7", "key_header": "api-key", "extra": {"top_k": 3, "model": "other"}}
        endpoint = Endpoint(f"{server.url}/d/?api-version=1", "m", **sent)
        found = OpenAICompatible("local", endpoint)
        found.stream(REQUEST, ignore)
        found.close()
    assert "POST /v1/d/chat/completions?api-version=1 HTTP" in server.heads[0]
    assert "api-key: k-7" in server.heads[0]
    assert "Authorization" not in server.heads[0]
    assert (server.requests[0]["top_k"], server.requests[0]["model"]) == (3, "m")


def test_a_server_that_speaks_no_tls_was_not_contacted():
    """It answers the greeting as servers without TLS do, as soon as it has seen a part of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/v1"
        found = OpenAICompatible("local", Endpoint(url, "m", timeouts=PATIENT))
        with pytest.raises(ProviderError) as raised:
            found.stream(REQUEST, ignore)
        found.close()
        thread.join()
    assert (raised.value.fault, raised.value.contacted) == (Fault.CONNECTION, False)


@pytest.mark.long
@pytest.mark.parametrize("reads_nothing", [True, False], ids=["silent", "closed"])
def test_a_long_request_that_nobody_reads_ends_in_time(reads_nothing):
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    taken = []

    def take():
        connection, _ = listening.accept()
        taken.append(connection)
        if not reads_nothing:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    found = OpenAICompatible("local", Endpoint(url, "m", timeouts=Timeouts(connect=0.6, first_token=5, total=5)))
    long = ModelRequest("m", ({"role": "user", "content": "x" * 30_000_000},))
    with pytest.raises(ProviderError) as raised:
        found.stream(long, ignore)
    assert raised.value.fault == (Fault.TIMEOUT if reads_nothing else Fault.CONNECTION)
    found.close()
    thread.join(STALLED)
    taken[0].close()
    listening.close()


def test_a_request_id_that_is_not_a_label_is_dropped():
    assert complete(answer(200, reply(), X_Request_Id="two words"))[0].request_id == ""


def test_one_connection_serves_many_calls():
    with serving(answer()) as server:
        found = provider(server)
        for _ in range(3):
            assert found.stream(REQUEST, ignore).text == "fine"
        assert len(server._workers) == 1
        found.close()


def test_tool_calls_are_read():
    call = {"id": "c1", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    found, _ = complete(answer(200, reply(None, "tool_calls", tool_calls=[call])))
    assert (found.calls, found.stop_reason, found.text) == (
        (RequestedCall("c1", "search", '{"q": "x"}'),),
        "tool_use",
        "",
    )


@every_row(
    ("status", "fault", "says"),
    [
        (401, Fault.AUTH, "the server refused a request without a key: LQOPS_MODEL_KEY is empty"),
        (403, Fault.AUTH, "403 from"),
        (404, Fault.NOT_SERVED, "model's name"),
        (400, Fault.INVALID_REQUEST, "does not accept"),
        (422, Fault.INVALID_REQUEST, "422 from"),
        (429, Fault.RATE_LIMITED, "slow down"),
        (500, Fault.SERVER, "may work again later"),
        (503, Fault.SERVER, "503 from"),
    ],
)
def test_a_refusal_is_explained(status, fault, says):
    error, _, _ = failure(answer(status, {"error": {"message": "no such thing"}}), key_name="LQOPS_MODEL_KEY")
    assert error.fault == fault
    assert says in str(error)
    assert "no such thing" in str(error)
    assert error.usage == Usage(0, 0)


def test_neither_the_key_nor_a_secret_in_the_answer_is_in_the_error():
    key = "sk-proj-" + "a1B2c3" * 12
    error, _, _ = failure(answer(401, {"error": f"Incorrect API key provided: {key}"}), key=lambda: key)
    assert key not in str(error)


@every_row(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("nonsense", None), ("-3", None), ("", None)])
def test_retry_after_in_seconds_is_read(header, seconds):
    error, _, _ = failure(answer(429, {}, Retry_After=header))
    assert error.retry_after == seconds


def test_retry_after_as_a_date_is_read():
    error, _, _ = failure(answer(429, {}, Retry_After="Fri, 01 Jan 2100 00:00:00 GMT"))
    assert error.retry_after > 1_000_000
    past, _, _ = failure(answer(429, {}, Retry_After="Sat, 01 Jan 2000 00:00:00 GMT"))
    assert past.retry_after == 0


@every_row(
    "body",
    [
        b'{"choices": [{"mess',
        b"",
        b"<html>busy</html>",
        b"[]",
        b"3",
        b'{"choices": []}',
        b'{"choices": "x"}',
        b"[" * 100_000,
    ],
)
def test_an_incomplete_answer_is_malformed_and_recoverable(body):
    error, _, _ = failure(answer(200, body))
    assert error.fault == Fault.MALFORMED
    assert error.recoverable


def test_usage_is_kept_when_the_rest_is_unusable():
    error, _, _ = failure(answer(200, {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}))
    assert error.usage == Usage(5, 1)


@every_row("usage", [{"prompt_tokens": -1}, {"prompt_tokens": "7"}, {"prompt_tokens": True}, "x", {}])
def test_usage_that_cannot_be_read_is_ignored(usage):
    found, _ = complete(answer(200, reply(usage=usage)))
    assert found.usage is None


@every_row(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("odd", "end_turn"),
        (None, "end_turn"),
    ],
)
def test_stop_reasons_have_one_meaning_each(finish, reason):
    assert complete(answer(200, reply("x", finish)))[0].stop_reason == reason


def test_a_refusal_of_the_model_has_its_own_stop_reason():
    found, _ = complete(answer(200, reply(None, "stop", refusal="I cannot help with that.")))
    assert (found.stop_reason, found.text) == ("refusal", "I cannot help with that.")


def test_a_server_that_is_not_there_was_not_contacted():
    with serving(answer()) as server:
        gone = provider(server)
    with pytest.raises(ProviderError) as raised:
        gone.stream(REQUEST, ignore)
    assert (raised.value.fault, raised.value.contacted) == (Fault.CONNECTION, False)
    assert "is the model server running" in str(raised.value)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (raw(), Fault.CONNECTION),
        (raw(b"garbage that is not HTTP\r\n\r\n"), Fault.CONNECTION),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"), Fault.CONNECTION),
        (raw(b"HTTP/1.1 200 OK\r\n" + b"X-Filler: y\r\n" * 20_000 + b"\r\n"), Fault.CONNECTION),
    ],
    ids=["closed at once", "garbage", "half a body", "endless headers"],
)
def test_a_connection_that_breaks_is_a_recoverable_error(script, fault, streaming):
    error, took, _ = failure(script, streaming=streaming)
    assert error.fault in {fault, Fault.MALFORMED}
    assert error.recoverable
    assert took < STALLED


@pytest.mark.sampled(2)
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"],
    ids=["status", "headers", "body"],
)
def test_a_server_that_drips_bytes_is_cut_off_at_the_total_timeout(head, streaming):
    over = []
    error, took, _ = failure(drip(head, b"a", 0.1, lambda: bool(over)), streaming=streaming, timeouts=QUICK)
    over.append(True)
    assert error.fault in {Fault.TIMEOUT, Fault.CONNECTION}
    assert took < STALLED


def test_a_silent_server_is_cut_off_at_the_first_byte_timeout():
    over = []
    error, took, _ = failure(drip(b"", b"", 0.1, lambda: bool(over)), timeouts=QUICK)
    over.append(True)
    assert error.fault == Fault.TIMEOUT
    assert took < STALLED


@pytest.mark.parametrize("piece", [b": still reading the prompt\n\n", events(delta(role="assistant"), done=False)])
def test_what_a_server_sends_before_its_first_token_does_not_count_as_one(piece):
    over = []
    timeouts = Timeouts(connect=60, first_token=0.5, between_tokens=60, total=60)
    error, took, _ = failure(drip(SSE_HEAD, piece, 0.1, lambda: bool(over)), streaming=True, timeouts=timeouts)
    over.append(True)
    assert error.fault == Fault.TIMEOUT
    assert took < STALLED


def test_a_slow_server_may_take_its_time_before_the_first_token_whatever_it_sends_meanwhile():
    def slow(connection, _):
        connection.sendall(SSE_HEAD + events(delta(role="assistant"), done=False))
        for _ in range(6):
            threading.Event().wait(0.1)
            connection.sendall(b": still reading the prompt\n\n")
        connection.sendall(events(delta("ok", "stop")))

    timeouts = Timeouts(connect=60, first_token=60, between_tokens=0.3, total=60)
    with serving(slow) as server:
        found = OpenAICompatible("local", Endpoint(server.url, "m", timeouts=timeouts))
        assert found.stream(REQUEST, lambda _: None).text == "ok"


def test_a_compressed_answer_is_refused_unopened():
    bomb = gzip.compress(b"\0" * 50_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error, _, _ = failure(answer(200, bomb, Content_Encoding="gzip"))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert error.fault == Fault.MALFORMED
    assert grown < 50


@pytest.mark.parametrize("streaming", [False, True])
def test_an_answer_without_end_is_cut_off(streaming, monkeypatch):
    monkeypatch.setattr("agents.providers.http.MAX_REPLY_BYTES", 100_000)
    body = b"x" * 400_000
    script = raw(SSE_HEAD, body) if streaming else answer(200, body)
    error, _, _ = failure(script, streaming=streaming)
    assert error.fault == Fault.MALFORMED


def test_a_redirect_is_not_followed():
    error, _, _ = failure(answer(302, {}, Location="http://127.0.0.1:1/"))
    assert error.fault == Fault.INVALID_REQUEST


def streamed(*scripts):
    chunks = []
    with serving(*scripts) as server:
        found = provider(server)
        result = found.stream(REQUEST, chunks.append)
        found.close()
    assert chunks[-1] == Chunk(finished=True)
    assert sum(chunk.finished for chunk in chunks) == 1
    return result, "".join(chunk.text for chunk in chunks), server


def test_a_stream_is_passed_on_as_it_comes():
    usage = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    found, text, server = streamed(stream(delta("All "), delta("fine", "stop"), usage))
    assert (found.text, text, found.stop_reason, found.usage) == ("All fine", "All fine", "end_turn", Usage(4, 2))
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_a_stream_cut_anywhere_reads_the_same():
    data = events(delta("größer — "), delta("ok", "stop"))
    for size in (1, 2, 3, 7):
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        found, text, _ = streamed(raw(SSE_HEAD, *pieces))
        assert found.text == text == "größer — ok"


def test_tool_calls_are_put_together_from_their_pieces():
    first = delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "se", "arguments": '{"q'}}])
    more = delta(tool_calls=[{"index": 0, "function": {"name": "arch", "arguments": '": 1}'}}])
    other = delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "read", "arguments": "{}"}}])
    found, _, _ = streamed(stream(first, more, other, delta(finish="tool_calls")))
    assert found.calls == (RequestedCall("c1", "search", '{"q": 1}'), RequestedCall("c2", "read", "{}"))
    assert found.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((), "end_turn"),
        ((delta("half"),), "end_turn"),
        ((delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]),), "tool_use"),
        ((delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f"}}]),), "tool_use"),
    ],
)
def test_a_stream_that_just_stops_is_the_reply_and_logged(data, reason, caplog):
    with caplog.at_level(logging.WARNING):
        found, _, _ = streamed(stream(*data, done=False))
    assert found.stop_reason == reason
    [noted] = [record for record in caplog.records if "without an end mark" in record.message]
    assert noted.levelname == "WARNING"


def test_a_call_cut_off_before_its_arguments_cannot_be_read():
    named = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "now"}}])
    cut, whole = (streamed(stream(named, done=done))[0].calls[0] for done in (False, True))
    with pytest.raises(SkillSyntaxError):
        calls_from_native([cut])
    assert whole.arguments == ""


@every_row(
    ("script", "fault"),
    [
        (stream("{half", done=False), Fault.MALFORMED),
        (stream("[1]", done=False), Fault.MALFORMED),
        (stream(delta("so far"), {"error": {"message": "overloaded"}}), Fault.SERVER),
        (stream({"error": "overloaded"}), Fault.SERVER),
        (answer(500, {}), Fault.SERVER),
    ],
)
def test_a_stream_that_breaks_ends_once_and_then_fails(script, fault):
    error, _, chunks = failure(script, streaming=True)
    assert error.fault == fault
    assert error.received_bytes == sum(len(chunk.text) for chunk in chunks)


def test_usage_that_a_broken_stream_reported_is_kept():
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    error, _, _ = failure(stream(delta("x"), usage, "{half", done=False), streaming=True)
    assert error.usage == Usage(9, 2)


def test_a_listener_may_cancel_the_stream():
    class Enough(Exception):
        pass

    chunks = []

    def listen(chunk):
        chunks.append(chunk)
        if chunk.text:
            raise Enough

    with serving(stream(delta("a"), delta("b"), delta("c", "stop"))) as server:
        found = provider(server)
        with pytest.raises(Enough):
            found.stream(REQUEST, listen)
        found.close()
    assert [chunk.text or chunk.finished for chunk in chunks if chunk != Chunk()] == ["a", True]


def test_odd_events_are_skipped():
    odd = b": comment\n\nevent: ping\nid: 3\ndata:\n\n"
    found, text, _ = streamed(
        raw(SSE_HEAD, odd, events({"choices": None}, {"choices": [7]}, delta(None), delta("ok", "stop")))
    )
    assert text == "ok"
    assert found.text == "ok"


def test_a_refusal_in_a_stream_has_its_own_stop_reason():
    found, _, _ = streamed(stream(delta(None, "stop", refusal="no")))
    assert found.stop_reason == "refusal"


def test_no_environment_proxy_is_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert os.environ["HTTP_PROXY"]
    assert complete(answer())[0].text == "fine"
    assert hostile_servers.reply()["choices"]
