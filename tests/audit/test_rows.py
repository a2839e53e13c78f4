from datetime import UTC, datetime

import pytest

from audit.models import AuditEvent
from audit.rows import StoredRow, UnreadableRow, stream
from tests.audit.samples import RUN, later, row, start
from tests.table import every_row


def stored(**columns):
    facts = {"id": 1, "chain": RUN, "seq": 1, "kind": "k", "actor": "", "subject": "", "request_id": ""}
    facts |= {"at": "2026-05-04 09:00:00.000001", "details": "{}", "prev_hash": "", "hash": ""}
    return StoredRow(**{**facts, **columns})


def test_time_is_read_from_text_and_from_datetimes():
    moment = datetime(2026, 5, 4, 9, 0, 0, 1, tzinfo=UTC)
    assert stored().columns()["at"] == stored(at=moment).columns()["at"] == 1_777_885_200_000_001


@every_row("at", ["", "never", None, 7, datetime(2026, 5, 4)])  # noqa: DTZ001
def test_malformed_time_is_unreadable(at):
    with pytest.raises(UnreadableRow, match=f"row 1 of chain {RUN} holds no readable time"):
        stored(at=at).columns()


@every_row("details", ["", "{", None, b"{}", '{"a":1,"a":2}', "[" * 100_000])
def test_malformed_details_are_unreadable(details):
    with pytest.raises(UnreadableRow, match="holds no readable details"):
        stored(details=details).columns()


@every_row("details", ["[]", "null", "1", '"text"'])
def test_details_are_an_object(details):
    with pytest.raises(UnreadableRow, match="holds details that are not an object"):
        stored(details=details).columns()


@pytest.mark.parametrize("columns", [{"actor": b"bytes"}, {"details": '{"a":NaN}'}])
def test_value_without_a_hash_is_unreadable(columns):
    with pytest.raises(UnreadableRow, match="holds a value that JSON does not know"):
        stored(**columns).digest()


@pytest.mark.django_db
def test_rows_stream_chain_by_chain_in_order(django_assert_num_queries):
    for chain in ("b", "a", "b", "a"):
        start(chain)
    with django_assert_num_queries(1):
        found = [(event.chain, event.seq) for event in stream(AuditEvent.objects.all())]
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("system", 1), ("system", 2)]


@pytest.mark.django_db
def test_streamed_row_has_its_stored_hash():
    start(RUN, agent_id=3)
    [first] = stream(AuditEvent.objects.filter(chain=RUN))
    assert first.digest() == first.hash == row(RUN, 1).hash
    assert first.columns()["at"] == (later(0) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000
