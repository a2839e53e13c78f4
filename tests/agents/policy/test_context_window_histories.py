"""The window on random histories: whatever was said, what is sent fits, is in order, and is well formed."""

import copy
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agents.policy.context_window import (
    KEEP_LAST,
    MARK,
    SHORT_MARK,
    SYSTEM_CHARS,
    Mark,
    blocks,
    estimate_tokens,
    fit,
    parted,
    split_for_summary,
    with_summary,
)
from tests.agents.pairing import is_paired

NONCE = "0123456789abcdef"
contents = st.builds(
    lambda word, times: word * times, st.sampled_from(["a", "ab ", "é\n", "<<<x ", ""]), st.integers(0, 900)
)


@st.composite
def exchanges(draw):
    """One message of the user, the loop or the assistant, or one with calls and a result for each, in any order."""
    kind = draw(st.sampled_from(["user", "aside", "assistant", "tags", "calls"]))
    if kind == "aside":
        return [{"role": "user", "content": draw(contents), MARK: Mark.ASIDE}]
    if kind == "tags":
        told = [{"role": "user", "content": text, MARK: Mark.RESULT} for text in draw(st.lists(contents, max_size=3))]
        return [{"role": "assistant", "content": draw(contents)}, *told]
    if kind != "calls":
        return [{"role": kind, "content": draw(contents)}]
    ids = [f"call_{number}" for number in range(draw(st.integers(1, 3)))]
    functions = [{"name": "read", "arguments": draw(st.sampled_from(["{}", '{"path": "a"}', "x" * 300]))} for _ in ids]
    calls = [{"id": one, "type": "function", "function": made} for one, made in zip(ids, functions, strict=True)]
    results = [{"role": "tool", "tool_call_id": one, "content": draw(contents)} for one in draw(st.permutations(ids))]
    return [{"role": "assistant", "content": draw(st.none() | contents), "tool_calls": calls}, *results]


@st.composite
def histories(draw):
    system = [{"role": "system", "content": text} for text in draw(st.lists(contents, max_size=2))]
    said = draw(st.lists(exchanges(), min_size=0 if system else 1, max_size=25))
    # Each message is told apart from every other, so that order can be seen.
    messages = [*system, *(message for exchange in said for message in exchange)]
    return [{**message, "number": number} for number, message in enumerate(messages)]


def is_asked(message):
    return message["role"] == "user" and MARK not in message


windows = st.integers(1, 3_000)
strategies = st.sampled_from(["sliding_window", "compact", "summarize"])


def least(messages):
    """The tokens of messages when everything that may be cut is cut away; the note on what is missing is not."""
    bare = [message for message in messages if "number" not in message]
    for message in (message for message in messages if "number" in message):
        bound = SYSTEM_CHARS if message["role"] == "system" else len(SHORT_MARK)
        bare.append({**message, "content": (message["content"] or "")[:bound]})
    return estimate_tokens(bare)


@given(histories(), windows, strategies, st.integers(0, 12))
def test_what_is_sent_fits_and_is_well_formed(history, window, strategy, keep_last):
    before = copy.deepcopy(history)
    fitted = fit(history, window=window, strategy=strategy, keep_last=keep_last)
    sent = [message for message in fitted if "number" in message]
    numbers = [message["number"] for message in sent]

    assert history == before
    assert sent
    assert estimate_tokens(fitted) <= max(window, least(fitted))
    assert is_paired(history)
    assert is_paired(fitted)
    assert numbers == sorted(set(numbers))
    assert history[-1]["number"] == numbers[-1]
    for message in sent:
        original = history[message["number"]]
        assert {**message, "content": None} == {**original, "content": None}
        assert message["content"] == original["content"] or len(message["content"]) < len(original["content"])
    leading, _ = parted(history)
    assert numbers[: len(leading)] == [message["number"] for message in leading]
    results = [number for number in numbers if history[number].get(MARK) == Mark.RESULT]
    assert {number - 1 for number in results} <= set(numbers), "a result stands behind its call"


@given(histories(), windows, st.integers(1, 12))
def test_compact_keeps_the_first_says_what_is_missing_and_keeps_no_more_than_asked(history, window, keep_last):
    fitted = fit(history, window=window, strategy="compact", keep_last=keep_last)
    leading, rest = parted(history)
    markers = [message for message in fitted if "number" not in message]
    dropped = len(history) - len(fitted) + len(markers)
    if not dropped:
        assert not markers
        return
    assert fitted[len(leading)]["number"] == rest[0]["number"]
    assert [f" {dropped} of the earlier" in marker["content"] for marker in markers] == [True]
    first, *others = blocks(rest)
    at = fitted.index(markers[0])
    assert at == len(leading) + len(first)
    kept = blocks(fitted[at + 1 :])
    assert sum(map(len, kept[1:])) < keep_last
    assert [block[0]["number"] for block in kept] == [block[0]["number"] for block in others[-len(kept) :]]


@given(histories(), windows)
def test_sliding_drops_no_more_than_it_must_and_leaves_a_question(history, window):
    fitted = fit(history, window=window, strategy="sliding_window")
    _, rest = parted(history)
    kept = {message["number"] for message in fitted}
    users = [message["number"] for message in rest if is_asked(message)]
    assert not users or users[-1] in kept
    lost = [block for block in blocks(rest) if block[0]["number"] not in kept]
    if lost:
        more = estimate_tokens(lost[-1]) + estimate_tokens(history[number] for number in kept)
        assert more > window


@given(histories(), windows, st.integers(0, 500))
def test_a_summary_begins_and_ends_at_a_user_message(history, window, reserve):
    parts = split_for_summary(history, window=window, reserve=reserve)
    leading, rest = parted(history)
    boundaries = [at for at in range(1, len(rest)) if is_asked(rest[at])]
    if parts is None:
        assert not boundaries or estimate_tokens(history) <= window - reserve
        return
    older, newer = parts
    assert older + newer == rest
    assert len(older) in boundaries
    assert estimate_tokens(newer) <= window // 2 or len(older) == boundaries[-1]
    assert is_paired(older)
    assert is_paired(with_summary("short", newer, leading, nonce=NONCE))


# --- The work grows with the history, and no faster ---


class Watched(dict):
    """A message that counts how often it is looked at."""

    reads = Counter()

    def __getitem__(self, key):
        self.reads["all"] += 1
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.reads["all"] += 1
        return super().get(key, default)


def reads_of(count, act):
    turn = [
        {"role": "user", "content": "x" * 40},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "y" * 40},
        {"role": "assistant", "content": "z" * 40},
    ]
    history = [Watched(turn[number % 4]) for number in range(count)]
    Watched.reads.clear()
    act(history)
    return Watched.reads["all"]


def one_block(history):
    """The worst for cutting: one message whose thousands of results are all too long together."""
    calls = Watched(history[1])
    return fit([calls, *(Watched(history[2]) for _ in history)], window=1_000, strategy="compact")


def test_ten_times_the_history_is_ten_times_the_work():
    acts = [
        *(
            lambda history, name=name, share=share: fit(history, window=len(history) * share, strategy=name)
            for name in ("sliding_window", "compact", "summarize")
            for share in (1, 7)
        ),
        lambda history: split_for_summary(history, window=len(history) * 7, reserve=0),
        is_paired,
        one_block,
    ]
    for act in acts:
        small, large = reads_of(300, act), reads_of(3_000, act)
        assert 0 < large < 12 * small


def test_the_defaults_are_the_documented_ones():
    assert (KEEP_LAST, SYSTEM_CHARS) == (10, 2_000)
