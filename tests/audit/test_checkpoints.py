import json
import os
import stat
import threading

import pytest
from django.db import connection, transaction

from audit import checkpoints
from audit.checkpoints import EVERY, checkpoint_due, checkpoint_fault, last_checkpoint, write_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import chain_head, close_chain
from audit.rows import GENESIS, canonical
from audit.verify import verify_log
from tests.audit.samples import NOW, RUN, call, edit, later, record_session, remove, start

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _file(checkpoint_file):
    pass


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_names_the_heads_of_system_and_of_open_chains(checkpoint_file):
    record_session("done")
    start(RUN)
    head = call(RUN, "started")
    system = chain_head(SYSTEM_CHAIN)
    signed = AuditEvent.objects.latest("id").id
    written = write_checkpoint(now=NOW)
    assert written["system"] == {"seq": 3, "hash": system.hash}
    assert written["open"] == {RUN: [2, head.hash]}
    assert (written["n"], written["prev"], written["at"]) == (1, GENESIS, NOW.isoformat())
    assert (written["rows"], written["last_id"]) == (12, signed)
    assert lines(checkpoint_file) == [canonical(written).encode() + b"\n"]


def test_empty_audit_log_has_a_checkpoint(checkpoint_file):
    assert write_checkpoint(now=NOW)["system"] == {"seq": 0, "hash": GENESIS}
    assert verify_log(head=checkpoint_file).verified


def test_only_the_owner_can_read_the_file_and_its_folder(checkpoint_file):
    write_checkpoint(now=NOW)
    assert stat.S_IMODE(checkpoint_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(checkpoint_file.parent.stat().st_mode) == 0o700


def test_another_file_can_be_named(tmp_path, checkpoint_file):
    write_checkpoint(now=NOW, path=tmp_path / "elsewhere")
    assert last_checkpoint(tmp_path / "elsewhere")["n"] == 1
    assert not checkpoint_file.exists()


def test_lines_are_chained(checkpoint_file):
    write_checkpoint(now=NOW)
    second = write_checkpoint(now=later(1))
    assert second["n"] == 2
    assert second["prev"] == checkpoints._sha256(lines(checkpoint_file)[0].removesuffix(b"\n"))


def test_open_chains_continue_from_the_last_checkpoint():
    start("a")
    start("b")
    write_checkpoint(now=NOW)
    record_session("c")
    start("d")
    close_chain("a", now=NOW)
    assert set(write_checkpoint(now=NOW)["open"]) == {"b", "d"}


def test_open_chains_are_counted_again_for_another_database(unguarded):
    start("a")
    write_checkpoint(now=NOW)
    edit(SYSTEM_CHAIN, 1, hash="6" * 64)
    start("b")
    assert set(write_checkpoint(now=NOW)["open"]) == {"a", "b"}


def test_dropped_chain_is_not_signed(unguarded):
    start("a")
    remove(chain="a")
    assert write_checkpoint(now=NOW)["open"] == {}


def test_unreadable_row_does_not_stop_the_next_checkpoint(unguarded):
    start("a")
    start("b")
    edit(SYSTEM_CHAIN, 1, details=[])
    assert set(write_checkpoint(now=NOW)["open"]) == {"b"}


@pytest.mark.django_db(transaction=True)
def test_checkpoint_in_an_open_transaction_is_refused(checkpoint_file):
    with transaction.atomic():
        start(RUN)
        with pytest.raises(RuntimeError, match="durable"):
            write_checkpoint(now=NOW)
        transaction.set_rollback(True)
    assert lines(checkpoint_file) == []
    assert write_checkpoint(now=NOW)["rows"] == 0


def test_half_written_line_does_not_stop_the_next_checkpoint(checkpoint_file):
    write_checkpoint(now=NOW)
    write_checkpoint(now=later(1))
    whole = checkpoint_file.read_bytes()
    checkpoint_file.write_bytes(whole[:-100])
    third = write_checkpoint(now=later(2))
    found = lines(checkpoint_file)
    assert found[1] == whole.splitlines()[1][:-99] + b"\n"
    assert (third["n"], third["prev"]) == (2, checkpoints._sha256(found[0].removesuffix(b"\n")))
    assert third["damaged"] == checkpoints._sha256(found[1].removesuffix(b"\n"))
    assert write_checkpoint(now=later(3))["n"] == 3
    assert "damaged" not in last_checkpoint()


def test_genuine_line_without_its_newline_counts(checkpoint_file):
    write_checkpoint(now=NOW)
    checkpoint_file.write_bytes(checkpoint_file.read_bytes().removesuffix(b"\n"))
    second = write_checkpoint(now=later(1))
    assert (second["n"], len(lines(checkpoint_file)), "damaged" in second) == (2, 2, False)
    assert verify_log(head=checkpoint_file).verified


def test_two_crashes_in_a_row_are_confirmed(checkpoint_file):
    write_checkpoint(now=NOW)
    with checkpoint_file.open("ab") as file:
        file.write(b'{"at":"20\n\0\0\0')
    write_checkpoint(now=later(1))
    report = verify_log(head=checkpoint_file)
    assert report.verified
    assert len(report.warnings) == 1


def test_file_without_a_genuine_line_starts_again(checkpoint_file):
    checkpoint_file.parent.mkdir()
    checkpoint_file.write_bytes(b"\nrubbish")
    assert last_checkpoint() is None
    assert write_checkpoint(now=NOW)["n"] == 1


def test_partial_write_is_reported(monkeypatch, checkpoint_file):
    write_checkpoint(now=NOW)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: real(descriptor, line[:50]))
    with pytest.raises(OSError, match=r"only 50 of \d+ bytes"):
        write_checkpoint(now=later(1))
    monkeypatch.undo()
    assert write_checkpoint(now=later(2), path=checkpoint_file)["n"] == 2
    assert verify_log(head=checkpoint_file).verified


def test_last_checkpoint_of_no_file_is_none():
    assert last_checkpoint() is None


@pytest.mark.parametrize(
    "forged",
    [b"{}", b'{"signature":7}', b'{"signature":"\\ud800"}', b'{"n":NaN,"signature":"x"}', b"[]", b"[" * 99_999],
)
def test_line_with_another_signature_does_not_count(checkpoint_file, forged):
    write_checkpoint(now=NOW)
    with checkpoint_file.open("ab") as file:
        file.write(forged + b"\n")
    assert last_checkpoint()["n"] == 1


def test_forged_time_cannot_delay_the_next_checkpoint(checkpoint_file):
    forged = {**write_checkpoint(now=NOW), "at": later(999_999).isoformat()}
    checkpoint_file.write_text(json.dumps(forged) + "\n")
    assert checkpoint_due(later(1))


def test_checkpoint_is_due_after_five_minutes_or_a_clock_reset():
    assert checkpoint_due(NOW)
    write_checkpoint(now=NOW)
    assert not checkpoint_due(NOW)
    assert not checkpoint_due(NOW + EVERY / 2)
    assert checkpoint_due(NOW + EVERY)
    assert checkpoint_due(later(-1))


def test_checkpoint_is_due_after_1000_rows(monkeypatch):
    assert checkpoints.EVERY_ROWS == 1_000
    monkeypatch.setattr(checkpoints, "EVERY_ROWS", 4)  # one of them is the event of the checkpoint
    start("a")
    write_checkpoint(now=NOW)
    call("a", "started")
    call("a", "success")
    assert not checkpoint_due(NOW)
    call("a", "denied")
    assert checkpoint_due(NOW)


@pytest.mark.django_db(transaction=True)
def test_writers_do_not_interleave(checkpoint_file):
    record_session(closed=False)

    def write():
        try:
            for number in range(10):
                write_checkpoint(now=later(number))
        finally:
            connection.close()

    writers = [threading.Thread(target=write) for _ in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    report = verify_log(head=checkpoint_file)
    assert (report.verified, report.checkpoints, report.warnings) == (True, 60, [])


def test_file_that_cannot_be_written_is_a_fault(checkpoint_file, monkeypatch):
    assert checkpoint_fault() == ""
    assert not checkpoint_file.exists()
    write_checkpoint(now=NOW)
    assert checkpoint_fault() == ""
    assert checkpoint_fault(checkpoint_file.parent) == f"{checkpoint_file.parent}: Is a directory"
    monkeypatch.setattr(os, "access", lambda *_: False)
    absent = checkpoint_file.parent / "absent.jsonl"
    assert checkpoint_fault(absent) == f"{absent.parent} is not writable"
