"""The embeddings protocol on a real socket: what is sent, what is taken, and what is refused as a whole."""

import json
from array import array

import pytest

from agents.enums import Purpose
from agents.providers.base import Chunk, Fault, ProviderError
from agents.providers.http import MAX_REPLY_BYTES, Endpoint
from agents.providers.openai_embeddings import MOST_DIMENSIONS, OpenAIEmbeddings
from agents.types import ModelRequest, Usage
from tests.agents.providers.hostile_servers import SSE_HEAD, Server, answer, events, raw
from tests.embeddings_wire import Embeddings, answer_to, as_base64

TEXTS = ("a car", "an invoice", "a secret")


def embed(script, texts=TEXTS, **more):
    messages = tuple({"role": "user", "content": text} for text in texts)
    request = ModelRequest("m", messages, max_tokens=0, min_tokens=0, purpose=Purpose.EMBEDDING)
    with Server(script) as server:
        provider = OpenAIEmbeddings("m", Endpoint(server.url, "embed-1", key=lambda: "k", **more))
        try:
            return provider.stream(request, lambda _: None), server
        finally:
            provider.close()


def refused(script, **more):
    with pytest.raises(ProviderError) as error:
        embed(script, **more)
    return error.value


def numbers(vector):
    return array("f", vector).tolist()


def changed(change):
    return Embeddings(change=change)


def test_texts_are_sent_together_and_vectors_come_back_in_their_order():
    reply, server = embed(Embeddings())

    [sent] = server.requests
    assert sent == {"model": "embed-1", "input": list(TEXTS), "encoding_format": "float"}
    assert "POST /v1/embeddings" in server.heads[0]
    assert "Authorization: Bearer k" in server.heads[0]
    assert [max(range(4), key=numbers(vector).__getitem__) for vector in reply.vectors] == [0, 2, 3]
    assert reply.usage == Usage(6, 0)
    assert reply.text == ""


def test_vectors_are_of_length_one():
    reply, _ = embed(changed(lambda data: [{**one, "embedding": [3, 4]} for one in data]))
    assert [numbers(vector) for vector in reply.vectors] == [pytest.approx([0.6, 0.8])] * 3


def test_further_fields_are_sent_as_declared():
    reply, server = embed(Embeddings(), extra={"dimensions": 4})
    assert server.requests[0]["dimensions"] == 4
    assert len(numbers(reply.vectors[0])) == 4


def test_base64_is_understood():
    assert embed(changed(as_base64))[0].vectors == embed(Embeddings())[0].vectors


def test_an_answer_without_usage_reports_none():
    assert embed(Embeddings(usage=False))[0].usage is None


BAD = {
    "fewer": (lambda data: data[1:], "sent 2 vectors for 3 texts"),
    "more": (lambda data: [*data, data[0]], "sent 4 vectors for 3 texts"),
    "nothing": (lambda data: None, "sent 0 vectors for 3 texts"),
    "no_entries": (lambda data: ["x", "y", "z"], "sent 0 vectors for 3 texts"),
    "same_index": (lambda data: [{**one, "index": 0} for one in data], "did not number"),
    "odd_index": (lambda data: [{**one, "index": [1]} for one in data], "did not number"),
    "no_index": (lambda data: [{"embedding": one["embedding"]} for one in data], "did not number"),
    "not_a_number": (lambda data: [{**one, "embedding": [1.0, float("nan")]} for one in data], "infinite, no number"),
    "infinite": (lambda data: [{**one, "embedding": [1.0, float("inf")]} for one in data], "infinite, no number"),
    "too_large": (lambda data: [{**one, "embedding": [10**400]} for one in data], "infinite, no number"),
    "zeros": (lambda data: [{**one, "embedding": [0, 0]} for one in data], "all zeros"),
    "texts": (lambda data: [{**one, "embedding": ["1", "2"]} for one in data], "something else than numbers"),
    "flags": (lambda data: [{**one, "embedding": [True, 2]} for one in data], "something else than numbers"),
    "empty": (lambda data: [{**one, "embedding": []} for one in data], "no list of 1 to"),
    "missing": (lambda data: [{"index": one["index"]} for one in data], "no list of 1 to"),
    "too_long": (lambda data: [{**one, "embedding": [1] * (MOST_DIMENSIONS + 1)} for one in data], "no list of 1 to"),
    "not_base64": (lambda data: [{**one, "embedding": "%"} for one in data], "neither a list"),
    "cut_base64": (lambda data: [{**one, "embedding": "AAA="} for one in data], "neither a list"),
    "lengths": (
        lambda data: [{**data[0], "embedding": [1]}, *({**one, "embedding": [1, 2]} for one in data[1:])],
        "different lengths",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_answer_is_refused_whole_with_its_reason(name):
    change, reason = BAD[name]
    error = refused(changed(change))
    assert reason in str(error)
    assert (error.fault, error.contacted) == (Fault.MALFORMED, True)
    assert error.usage == Usage(6, 0)  # what was reported is paid


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answer(200, b"{"), "not valid JSON"),
        (answer(200, []), "not an object"),
        (answer(200, {}), "sent 0 vectors"),
        (answer(200, answer_to({"model": "m", "input": TEXTS}), content_encoding="gzip"), "compressed"),
        (raw(SSE_HEAD, events({"data": []})), "streams its answer"),
        (raw(SSE_HEAD, b"hello\n"), "did not answer with JSON"),
    ],
)
def test_unreadable_answer_is_refused(script, reason):
    error = refused(script)
    assert reason in str(error)
    assert error.fault == Fault.MALFORMED


def test_an_answer_of_a_hundred_megabytes_is_not_read():
    head = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"
    sent = []

    def flood(connection, _):
        connection.sendall(head)
        while len(sent) < 100:
            connection.sendall(b"[" * 1_000_000)
            sent.append(1)

    error = refused(flood)
    assert f"longer than {MAX_REPLY_BYTES} bytes" in str(error)
    assert len(sent) < 100


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (401, Fault.AUTH),
        (404, Fault.NOT_SERVED),
        (400, Fault.INVALID_REQUEST),
        (429, Fault.RATE_LIMITED),
        (500, Fault.SERVER),
        (503, Fault.SERVER),
    ],
)
def test_refusals_of_the_server_are_explained(status, fault):
    error = refused(answer(status, {"error": {"message": "No."}}, retry_after="7"))
    assert (error.fault, error.usage, error.retry_after) == (fault, Usage(0, 0), 7.0)
    assert "The server said:" in str(error)


def test_the_fake_refuses_what_the_real_endpoint_refuses():
    error = refused(Embeddings(), texts=("fine", ""))
    assert error.fault == Fault.INVALID_REQUEST
    assert "at least 1 character" in str(error)


def test_nothing_is_streamed_before_the_end():
    pieces = []
    with Server(Embeddings()) as server:
        provider = OpenAIEmbeddings("m", Endpoint(server.url, "embed-1"))
        provider.stream(ModelRequest("m", ({"role": "user", "content": "x"},)), pieces.append)
        provider.close()
    assert {piece.text for piece in pieces} == {""}
    assert pieces[-1] == Chunk(finished=True)
    assert "authorization" not in server.heads[0].lower()
    assert json.dumps(server.requests[0])
