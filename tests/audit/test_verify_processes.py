"""Verification by several processes finds what one finds, and says it in the same words."""

import json
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection

from audit import models, parallel, verify
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.parallel import ROWS_EACH, Bounds, read_parts, split
from audit.recorder import append
from audit.verify import verify_log
from tests.audit.samples import edit, hash_again, later, record_session, record_skill_call, remove, sql

transactional = pytest.mark.django_db(transaction=True)
RUNS = [f"run-{number:02}" for number in range(12)]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Threads that other tests have left would make every process start anew, which takes a second each."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.fixture
def record(transactional_db):
    """Twelve chains, with the triggers dropped."""
    for run in RUNS:
        record_session(run, calls=3)
    record_skill_call(
        skill_name="post", arguments={}, output="done", capability_level="CONTROLLED", risk_level=None, duration_ms=1
    )
    models.remove(connection)
    yield
    models.install(connection)


def tamper():
    """In every part of the log, and so that findings are made at every stage."""
    edit(RUNS[0], 3, actor="user:666")
    edit(RUNS[0], 5, actor="user:666")
    remove(chain=RUNS[2], seq=4)
    edit(RUNS[4], 2, actor="user:666")
    hash_again(RUNS[4], 2)
    remove(chain=RUNS[5])
    append("unopened", "autonomous_session.resumed", now=later(1))
    remove(chain=SYSTEM_CHAIN, subject="session:unopened")
    edit(RUNS[8], 9, kind="no.such.kind")
    remove(chain=RUNS[9], seq=9)
    edit(RUNS[11], 1, prev_hash="6" * 64)
    append(SYSTEM_CHAIN, verify.CHAIN_OPENED, now=later(9), details={"opened": RUNS[1], "first_hash": "6" * 64})
    sql("UPDATE audit_skillaudit SET output_summary = 'nothing'")


@pytest.mark.parametrize("tampered", [False, True])
def test_several_processes_find_what_one_finds(record, tampered):
    if tampered:
        tamper()
    alone = verify_log()
    assert len(alone.problems) == (9 if tampered else 0)
    together = verify_log(processes=3)
    assert together == alone
    assert together.problems == alone.problems
    assert verify_log(processes=None) == alone


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_output_does_not_depend_on_the_number_of_processes(record, monkeypatch, how):
    monkeypatch.setattr(verify, "PROGRESS_ROWS", 20)
    monkeypatch.setattr(verify, "COUNTED_ROWS", 7)
    tamper()
    outputs = []
    for processes in ("1", "2"):
        out, err = StringIO(), StringIO()
        with pytest.raises(SystemExit) as stopped:
            call_command("verify_audit", "--processes", processes, *how, stdout=out, stderr=err)
        outputs.append((stopped.value.code, out.getvalue(), err.getvalue()))
    assert outputs[0] == outputs[1]
    assert outputs[0][2].startswith("Rows so far: 20\nRows so far: 40\n")
    if how:
        assert json.loads(outputs[0][1])["further"] > 0


def test_all_processes_read_as_of_one_moment(record, monkeypatch):
    """A chain that is written after they began is seen by none of them."""
    before, results = AuditEvent.objects.count(), parallel._results

    def write_first(*given):
        record_session("run-06b")
        return results(*given)

    monkeypatch.setattr(parallel, "_results", write_first)
    report = verify_log(processes=2)
    assert (report.problems, report.rows) == ([], before)
    written = AuditEvent.objects.count()
    assert written > before
    assert read_parts([Bounds(), Bounds()], "tests.audit.parts.count", lambda rows: None) == [str(written)] * 2


def test_one_process_reads_alone_if_several_cannot_begin_together(record, monkeypatch):
    def locked():
        raise OperationalError("attempt to write a readonly database")

    tamper()
    alone = verify_log()
    monkeypatch.setattr(parallel, "_moment", locked)
    assert verify_log(processes=2) == alone


def test_chain_whose_name_is_no_text_is_found_by_several_processes(record):
    if connection.vendor == "sqlite":  # PostgreSQL has no such name
        sql("UPDATE audit_auditevent SET chain = CAST(chain AS BLOB) WHERE chain = %s", RUNS[3])
    assert verify_log(processes=3) == verify_log()


def test_transaction_is_verified_with_what_it_has_written(db):
    record_session()
    record_session("another")
    assert verify_log(processes=2).rows == AuditEvent.objects.count()


@transactional
def test_beside_another_thread_the_processes_start_anew(monkeypatch):
    """A fork would copy whatever that thread holds."""
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert read_parts([Bounds()], "tests.audit.parts.how_begun", lambda rows: None) == ["started"]
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert read_parts([Bounds()], "tests.audit.parts.how_begun", lambda rows: None) == ["forked"]


@transactional
def test_error_of_a_process_is_raised():
    parts = [Bounds(None, "m"), Bounds("m", None)]
    with pytest.raises(DatabaseError, match="no rows before"):
        read_parts(parts, "tests.audit.parts.fail", lambda rows: None)


@transactional
def test_process_that_ends_early_is_an_error():
    with pytest.raises(DatabaseError, match="has ended"):
        read_parts([Bounds(None, "m"), Bounds("m", None)], "tests.audit.parts.end", lambda rows: None)


@pytest.mark.parametrize("number", ["0", "65", "two", "-1"])
def test_number_of_processes_is_checked(number):
    with pytest.raises(CommandError, match="Use 1 to 64"):
        call_command("verify_audit", "--processes", number)


def test_chains_are_divided_into_ranges_of_about_as_many_rows():
    chains = [("a", 10), ("b", 10), ("c", 30), ("d", 5), ("e", 5)]
    assert split(chains, 1) == [Bounds()]
    assert split(chains, 2) == [Bounds(None, "d"), Bounds("d", None)]
    assert split(chains, 3) == [Bounds(None, "c"), Bounds("c", "d"), Bounds("d", None)]
    assert split([("a", 3)], 8) == [Bounds()]
    assert split([], 2) == [Bounds()]


def test_small_log_is_read_by_one_process_and_a_large_one_by_each_processor(monkeypatch):
    monkeypatch.setattr(parallel, "_processors", lambda: 4)
    assert len(split([(str(number), ROWS_EACH - 1) for number in range(2)], None)) == 1
    assert len(split([(str(number), ROWS_EACH) for number in range(2)], None)) == 2
    assert len(split([(str(number), ROWS_EACH) for number in range(9)], None)) == 4
