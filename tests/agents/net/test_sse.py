"""Server-sent events: read as the standard says, in pieces of any size, with at most one event in memory."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.net.streams import MAX_EVENT_BYTES, MAX_ID_CHARS, EventReader, ServerSentEvent
from tests.table import every_row

STREAM = (
    ": welcome\n\ndata: one\n\nid: 1\r\nevent: price\r\ndata: two\r\ndata:  lines\r\n\r\n"
    "data\r\rid: 2\nretry: 10\ndata:three\nunknown: x\n\nid:\n\ndata: é\n\n"
).encode()
EVENTS = [
    ServerSentEvent("one"),
    ServerSentEvent("two\n lines", "1", "price", named=True),
    ServerSentEvent("", "1"),
    ServerSentEvent("three", "2", named=True),
    ServerSentEvent("é"),
]


def read(*pieces, **more):
    reader = EventReader(**more)
    return [event for piece in pieces for event in reader.feed(piece)]


def test_events_are_read():
    assert read(STREAM) == EVENTS


def test_stream_cut_in_two_anywhere_reads_the_same():
    for place in range(len(STREAM) + 1):
        assert read(STREAM[:place], STREAM[place:]) == EVENTS


@settings(max_examples=25)
@given(st.lists(st.integers(1, 7), min_size=len(STREAM), max_size=len(STREAM)))
def test_pieces_of_any_size_read_the_same(sizes):
    pieces, place = [], 0
    for size in sizes:
        pieces.append(STREAM[place : place + size])
        place += size

    assert read(*pieces) == EVENTS


def test_byte_order_mark_is_dropped():
    assert read(b"\xef\xbb\xbfdata: x\n\n", b"\xef\xbb\xbfdata: y\n\n") == [ServerSentEvent("x")]


def test_incomplete_event_is_not_reported():
    assert read(b"id: 9\ndata: cut of") == []


def test_reader_starts_with_the_last_id():
    assert read(b"data: x\n\n", last_id="41") == [ServerSentEvent("x", "41")]


@pytest.mark.parametrize("empty", ["id", "id:", "id: "])
def test_empty_id_resets_the_id(empty):
    assert read(f"id: 7\ndata: x\n\n{empty}\ndata: y\n\n".encode(), last_id="41") == [
        ServerSentEvent("x", "7", named=True),
        ServerSentEvent("y"),
    ]


@every_row("odd", ["a\x00b", "é", "x" * (MAX_ID_CHARS + 1), "a\tb", "\x7f"])
def test_id_that_is_no_valid_header_is_ignored(odd):
    assert read(f"id: 7\ndata: x\n\nid: {odd}\ndata: y\n\n".encode()) == [
        ServerSentEvent("x", "7", named=True),
        ServerSentEvent("y", "7"),
    ]


def test_invalid_utf8_is_replaced():
    assert read(b"data: \xff\xfe\n\n") == [ServerSentEvent("\ufffd\ufffd")]


def test_oversized_event_is_reported_and_the_next_one_read():
    found = read(b"id: 1\ndata: ", b"x" * 20, b"\nid: 2\ndata: more\n\ndata: next\n\n", max_bytes=16)

    assert found == [ServerSentEvent(None, "2", named=True), ServerSentEvent("next", "2")]


def test_lines_that_are_too_large_together_are_reported_once():
    assert read(b"data: 12345\n" * 10 + b"\n" + b"data: next\n\n", max_bytes=32) == [
        ServerSentEvent(None),
        ServerSentEvent("next"),
    ]


def test_oversized_first_line_ends_the_start_of_the_stream():
    assert read(b"x" * 20 + b"\n\n\xef\xbb\xbfdata: y\n\ndata: z\n\n", max_bytes=16) == [
        ServerSentEvent(None),
        ServerSentEvent("z"),
    ]


def test_comments_are_no_events():
    reader = EventReader(max_bytes=64)
    for _ in range(1_000):
        assert list(reader.feed(b": still here\n")) == []

    assert list(reader.feed(b"data: x\n\n")) == [ServerSentEvent("x")]


def test_line_of_ten_megabytes_uses_little_memory():
    reader, piece = EventReader(), b"x" * 65_536
    list(reader.feed(b"data: "))
    tracemalloc.start()
    for _ in range(160):
        list(reader.feed(piece))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3 * MAX_EVENT_BYTES
    assert list(reader.feed(b"\n\ndata: next\n\n")) == [ServerSentEvent(None), ServerSentEvent("next")]
