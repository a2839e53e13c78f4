"""The scripted provider: steps, pieces and failures."""

import pytest

from agents.providers.base import ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.types import ModelRequest, RequestedCall, Usage
from tests.agents.providers.listeners import ignore

REQUEST = ModelRequest("m", ({"role": "user", "content": "?"},))


def test_steps_are_played_in_order_and_the_last_one_repeats():
    played = ScriptedProvider([Step("one"), Step("two")])
    assert [played.stream(REQUEST, ignore).text for _ in range(3)] == ["one", "two", "two"]
    assert len(played.requests) == 3


def test_a_reply_is_streamed_in_pieces_and_ends_once():
    chunks = []
    call = RequestedCall("c", "f", "{}")
    reply = ScriptedProvider([Step("abcdef", chunk_chars=4, calls=(call,))]).stream(REQUEST, chunks.append)
    assert [(chunk.text, chunk.finished) for chunk in chunks] == [("abcd", False), ("ef", False), ("", True)]
    assert (reply.text, reply.calls) == ("abcdef", (call,))


@pytest.mark.parametrize("after", [0, 3])
def test_a_stream_may_break_and_still_ends_once(after):
    chunks = []
    played = ScriptedProvider([Step("abcdef", break_after=after, usage=Usage(3, 1))])
    with pytest.raises(ProviderError) as broken:
        played.stream(REQUEST, chunks.append)
    assert "".join(chunk.text for chunk in chunks) == "abcdef"[:after]
    assert [chunk.finished for chunk in chunks].count(True) == 1
    assert (broken.value.received_bytes, broken.value.usage) == (after, Usage(3, 1))
    with pytest.raises(ProviderError):
        played.stream(REQUEST, ignore)
