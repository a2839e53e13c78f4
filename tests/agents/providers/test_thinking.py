"""What a model thinks is counted, and no part of its answer: in tags, in fields of its own, in any pieces."""

import threading

import pytest

from agents.providers.base import Chunk, ProviderError
from agents.providers.http import Endpoint
from agents.providers.openai_compat import OpenAICompatible, usage_of
from agents.providers.thinking import ThoughtFilter
from agents.providers.transport import Timeouts
from agents.types import ModelRequest, RequestedCall, Usage
from tests.agents.providers.hostile_servers import SSE_HEAD, answer, delta, drip, events, reply, serving, stream
from tests.table import every_row

REQUEST = ModelRequest("m", ({"role": "user", "content": "Is it in order?"},), max_tokens=64)


def ask(script, reasoning=None):
    """The reply, and the chunks that were passed on."""
    chunks = []
    with serving(script) as server:
        found = OpenAICompatible("local", Endpoint(server.url, "model-x", reasoning=reasoning))
        result = found.stream(REQUEST, chunks.append)
        found.close()
    return result, [chunk for chunk in chunks if chunk not in {Chunk(), Chunk(finished=True)}]


def filtered(pieces, reasoning=None):
    thoughts = ThoughtFilter(reasoning)
    return "".join([*map(thoughts.feed, pieces), thoughts.close()]), thoughts.is_open


@every_row(
    ("written", "answer"),
    [
        ("<think>Hmm.</think>\n\nYes.", "Yes."),
        ("\n <think>Hmm.</think>Yes.", "Yes."),
        ("<think></think>Yes.", "Yes."),
        ("<think>a</think>\n<think>b</think>Yes.", "Yes."),
        ("<think>a < b </thin k></think>Yes, <think> is a tag.", "Yes, <think> is a tag."),
        ("Yes. <think>no</think>", "Yes. <think>no</think>"),
        ("  Yes.", "  Yes."),
        ("<thi", "<thi"),
        ("<thinker> said", "<thinker> said"),
        ("<think>Hmm.</think>\n", ""),
        ("", ""),
    ],
)
def test_thoughts_at_the_beginning_are_dropped_in_any_pieces(written, answer):
    for size in (1, 2, 3, 5, 100):
        pieces = [written[start : start + size] for start in range(0, len(written), size)]
        assert filtered(pieces) == (answer, False), size


@pytest.mark.parametrize("written", ["<think>Hmm", "<think>", "\n<think>Hmm.</think", "<think>a</think><think>b"])
def test_thoughts_that_do_not_end_are_no_answer(written):
    for size in (1, 4, 100):
        assert filtered([written[at : at + size] for at in range(0, len(written), size)]) == ("", True)


def test_a_text_can_be_declared_to_hold_no_thoughts_or_to_begin_with_them():
    assert filtered(["<think>a</think>b"], reasoning=False) == ("<think>a</think>b", False)
    assert filtered(["a, b", "</th", "ink> c"], reasoning="unopened") == ("c", False)
    assert filtered(["<think>a</think>b"], reasoning="unopened") == ("b", False), "a template that writes the tag"
    assert filtered(["a, b"], reasoning="unopened") == ("", True)


def test_thoughts_in_tags_are_no_part_of_a_streamed_answer():
    found, chunks = ask(stream(delta("<thi"), delta("nk>Hmm"), delta(".</think>\n"), delta("Yes."), delta("", "stop")))
    assert found.text == "".join(chunk.text for chunk in chunks) == "Yes."
    assert [chunk.is_thought for chunk in chunks] == [True, False]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("reasoning", [None, True, "unopened"])
def test_thoughts_in_a_field_are_no_part_of_the_answer(name, reasoning):
    script = stream(delta(**{name: "Hmm, "}), delta(None, **{name: "yes."}), delta("Yes."), delta("", "stop"))
    found, chunks = ask(script, reasoning)
    assert (found.text, found.stop_reason) == ("Yes.", "end_turn")
    assert [(chunk.text, chunk.is_thought) for chunk in chunks] == [("", True), ("", True), ("Yes.", False)]


def test_thoughts_among_the_parts_of_the_content_are_no_part_of_the_answer():
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm"}]}]
    found, chunks = ask(stream(delta(thinking), delta([{"type": "text", "text": "Yes"}, 7]), delta(".", "stop")))
    assert found.text == "Yes."
    assert [chunk.is_thought for chunk in chunks] == [True, False, False]


@every_row(
    ("script", "text", "reason"),
    [
        (stream(delta("<think>Hmm"), delta("", "length")), "", "max_tokens"),
        (stream(delta("<think>Hmm"), delta("", "stop")), "", "max_tokens"),
        (stream(delta("<think>Hmm"), done=False), "", "max_tokens"),
        (stream(delta(reasoning_content="Hmm"), delta("", "length")), "", "max_tokens"),
        (stream(delta(reasoning_content="Hmm"), done=False), "", "max_tokens"),
        (stream(delta(reasoning_content="Hmm"), delta("", "stop")), "", "end_turn"),
        (stream(delta("<think>Hmm</think>Ye"), delta("", "length")), "Ye", "max_tokens"),
        (answer(200, reply("<think>Hmm</think> Yes.")), "Yes.", "end_turn"),
        (answer(200, reply("<think>Hmm", "length")), "", "max_tokens"),
        (answer(200, reply("Yes.", reasoning_content="Hmm")), "Yes.", "end_turn"),
    ],
)
def test_a_model_that_was_still_thinking_has_not_answered(script, text, reason):
    found, _ = ask(script)
    assert (found.text, found.stop_reason) == (text, reason)


def test_a_call_behind_thoughts_is_a_call():
    called = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}])
    found, _ = ask(stream(delta("<think>Hmm"), called, delta("", "tool_calls")))
    assert (found.calls, found.stop_reason) == ((RequestedCall("c", "look", "{}"),), "tool_use")


@every_row(
    ("reported", "usage"),
    [
        # OpenAI: what was thought is part of the completion
        (
            {"completion_tokens": 50, "total_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 40}},
            (50, 40),
        ),
        # apart, as the total shows
        (
            {"completion_tokens": 50, "total_tokens": 100, "completion_tokens_details": {"reasoning_tokens": 40}},
            (90, 40),
        ),
        ({"completion_tokens": 50, "total_tokens": 100}, (90, 0)),
        # apart, as it is more than the completion
        ({"completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 70}}, (120, 70)),
        ({"completion_tokens": 50, "total_tokens": 5, "completion_tokens_details": {"reasoning_tokens": -1}}, (50, 0)),
        ({"completion_tokens": 50, "total_tokens": "many", "completion_tokens_details": 7}, (50, 0)),
    ],
)
def test_of_two_readings_of_usage_the_larger_one_counts(reported, usage):
    output, thought = usage
    assert usage_of({"prompt_tokens": 10, **reported}) == Usage(10, output, reasoning_tokens=thought)


def test_tokens_that_came_from_a_cache_are_noted():
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    assert usage_of(usage) == Usage(10, 1, cache_read_tokens=8)
    usage["prompt_tokens_details"]["cached_tokens"] = 11
    assert usage_of(usage) == Usage(10, 1, cache_read_tokens=10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("piece", [delta(reasoning_content="hm "), delta("<think>hm ")])
def test_a_model_that_thinks_is_not_silent(piece):
    """A thought every 0.1 seconds, for longer than the model may be silent; what came in is counted."""
    over = threading.Event()
    waits = Timeouts(connect=60, first_token=0.6, between_tokens=0.6, total=2.0)
    with serving(drip(SSE_HEAD, events(piece, done=False), 0.1, over.is_set)) as server:
        found = OpenAICompatible("local", Endpoint(server.url, "m", timeouts=waits))
        with pytest.raises(ProviderError) as raised:
            found.stream(REQUEST, lambda chunk: None)
        over.set()
        found.close()
    assert raised.value.received_bytes > len("hm ") * 8
