"""Tampering with rows, found without checkpoints. The tests drop the triggers first, as an attacker would."""

import random

import pytest
from django.db import connection, transaction

from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append, close_chain
from audit.verify import verify_chain, verify_log
from tests.audit.samples import (
    NOW,
    RUN,
    call,
    edit,
    hash_again,
    hash_chain_again,
    later,
    record_session,
    remove,
    row,
    sql,
    start,
)

OTHER = "other-run"
EDITS = {
    "chain": lambda found: {"chain": OTHER if found.chain != OTHER else RUN, "seq": found.seq + 1_000},
    "seq": lambda found: {"seq": found.seq + 1_000},
    "kind": lambda found: {"kind": "model.accepted"},
    "at": lambda found: {"at": later(12_345)},
    "actor": lambda found: {"actor": "user:666"},
    "subject": lambda found: {"subject": "session:666"},
    "request_id": lambda found: {"request_id": "666"},
    "details": lambda found: {"details": {**found.details, "detail": "666"}},
    "prev_hash": lambda found: {"prev_hash": "6" * 64},
    "hash": lambda found: {"hash": "6" * 64},
}


WITHOUT_UNIQUENESS = {
    "postgresql": ["ALTER TABLE audit_auditevent DROP CONSTRAINT audit_event_chain_seq"],
    "sqlite": [
        "CREATE TABLE copied AS SELECT * FROM audit_auditevent",
        "DROP TABLE audit_auditevent",
        "ALTER TABLE copied RENAME TO audit_auditevent",
    ],
}


@pytest.fixture
def record(unguarded):
    record_session(OTHER, calls=3)
    record_session(RUN)


def first_problem():
    report = verify_log()
    assert not report.verified
    return report.problems[0]


@pytest.mark.django_db
def test_empty_audit_log_is_verified():
    report = verify_log()
    assert (report.verified, report.rows, report.chains, report.checkpoints) == (True, 0, 0, None)


def test_untouched_audit_log_is_verified(record):
    report = verify_log()
    assert (report.problems, report.further, report.rows, report.chains) == ([], 0, 20, 3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("column", EDITS)
def test_edit_of_any_column_of_any_row_is_found(record, column):
    for found in AuditEvent.objects.all():
        with transaction.atomic():
            AuditEvent.objects.filter(pk=found.pk).update(**EDITS[column](found))
            problems = verify_log().problems
            assert any(problem.id == found.pk or problem.chain == found.chain for problem in problems), found
            transaction.set_rollback(True)
    assert verify_log().verified


@pytest.mark.stress
@pytest.mark.parametrize("column", EDITS)
def test_edit_of_any_column_of_100_random_rows_is_found(unguarded, column):
    for number in range(20):
        record_session(f"run-{number}", calls=random.randint(1, 20))
    for found in random.sample(list(AuditEvent.objects.all()), 100):
        with transaction.atomic():
            AuditEvent.objects.filter(pk=found.pk).update(**EDITS[column](found))
            assert not verify_log().verified, found
            transaction.set_rollback(True)


def test_database_id_of_a_row_is_not_hashed(record):
    edit(RUN, 3, id=1_000_000)
    assert verify_log().verified


def test_edit_names_the_row(record):
    edit(RUN, 3, actor="user:666")
    problem = first_problem()
    assert (problem.chain, problem.seq, problem.id) == (RUN, 3, row(RUN, 3).id)
    assert str(problem) == (
        f"chain {RUN}, row 3 (id {problem.id}): its content does not match its hash: it was changed"
    )


def test_rehashed_edit_breaks_the_next_link(record):
    edit(RUN, 3, actor="user:666")
    hash_again(RUN, 3)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 4)
    assert "does not link to row 3" in problem.what


def test_rehashed_chain_differs_from_its_opening_in_system(record):
    edit(RUN, 1, actor="user:666")
    hash_chain_again(RUN)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 1)
    assert "its first row is not the one that row 3 of `system` names" in problem.what


def test_closed_chain_rehashed_from_its_middle_is_found(record):
    edit(RUN, 3, actor="user:666")
    hash_chain_again(RUN)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 7)
    assert "row 4 of `system` closed it at row 7" in problem.what


def test_first_bad_row_of_each_chain_is_named_and_the_rest_counted(record):
    for seq in (2, 4, 5):
        edit(RUN, seq, actor="user:666")
    edit(OTHER, 6, actor="user:666")
    report = verify_log()
    assert {(problem.chain, problem.seq) for problem in report.problems} == {(RUN, 2), (OTHER, 6)}
    assert report.further == 2


def test_deleted_row_is_found(record):
    remove(chain=RUN, seq=4)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 5)
    assert "it follows row 3" in problem.what


def test_deleted_first_row_is_found(record):
    remove(chain=RUN, seq=1)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 2)
    assert "row 1 is missing" in problem.what


def test_renumbered_deletion_is_found(record):
    remove(chain=RUN, seq=4)
    for seq in (5, 6, 7):
        edit(RUN, seq, seq=seq - 1)
    assert "does not link to row 3" in first_problem().what


def test_first_row_that_starts_elsewhere_is_found(record):
    edit(RUN, 1, prev_hash="6" * 64)
    hash_again(RUN, 1)
    assert "does not start from an empty chain" in first_problem().what


def test_inserted_row_is_found(record):
    for seq in (7, 6, 5, 4):
        edit(RUN, seq, seq=seq + 1)
    copy = row(RUN, 3)
    copy.pk, copy.seq, copy.prev_hash = None, 4, copy.hash
    copy.save(force_insert=True)
    hash_again(RUN, 4)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 5)


def test_duplicate_row_is_found(record):
    for statement in WITHOUT_UNIQUENESS[connection.vendor]:
        sql(statement)
    copy = row(RUN, 3)
    copy.pk = 1_000_000
    copy.save(force_insert=True)
    problem = first_problem()
    assert (problem.seq, problem.what) == (3, "this row number occurs twice")


def test_swapped_rows_are_found(record):
    edit(RUN, 3, seq=1_003)
    edit(RUN, 4, seq=3)
    edit(RUN, 1_003, seq=4)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 3)


def test_swapped_contents_are_found(record):
    edit(RUN, 3, details=row(RUN, 5).details)
    assert (first_problem().chain, first_problem().seq) == (RUN, 3)


def test_cut_tail_of_a_closed_chain_is_found(record):
    remove(chain=RUN, seq__gte=6)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 5)
    assert "closed it at row 7" in problem.what


def test_row_after_the_end_of_its_chain_is_found(record):
    call(RUN, "started")
    problem = first_problem()
    assert (problem.chain, problem.seq) == (RUN, 8)
    assert "closed it at row 7" in problem.what


def test_dropped_chain_is_found(record):
    remove(chain=RUN)
    report = verify_log()
    assert str(report.problems[0]) == (f"chain {RUN}: row 3 of `system` opens it, but it has no rows: it was dropped")
    assert len(report.problems) == 1


def test_chain_without_an_opening_is_found(record):
    remove(chain=SYSTEM_CHAIN)
    report = verify_log()
    assert {problem.chain for problem in report.problems} == {RUN, OTHER}
    assert "no row in `system`" in report.problems[0].what


def test_closing_of_an_unknown_chain_is_found(unguarded):
    close_chain("nobody", now=NOW)
    problem = first_problem()
    assert (problem.chain, "closes it, but it has no rows" in problem.what) == ("nobody", True)


@pytest.mark.parametrize(
    ("kind", "details", "word"),
    [
        ("audit.chain_opened", {"opened": RUN, "first_hash": "6"}, "opened"),
        ("audit.chain_closed", {"closed": RUN, "last_seq": 6, "last_hash": "6"}, "closed"),
    ],
)
def test_second_opening_or_closing_is_found(record, kind, details, word):
    append(SYSTEM_CHAIN, kind, now=NOW, details=details)
    problem = first_problem()
    assert (problem.chain, problem.seq) == (SYSTEM_CHAIN, 5)
    assert f"chain {RUN} is {word} a second time" in problem.what


def test_unknown_kind_is_found(record):
    edit(RUN, 7, kind="autonomous_session.danced")
    hash_again(RUN, 7)
    assert first_problem().what == "unknown kind 'autonomous_session.danced'"


def test_details_that_are_no_object_are_found(record):
    edit(RUN, 3, details=["x"])
    assert first_problem().what == f"it cannot be read: row 3 of chain {RUN} holds details that are not an object"


def test_unreadable_row_of_system_is_found(record):
    edit(SYSTEM_CHAIN, 3, details=[])
    report = verify_log()
    assert {(problem.chain, problem.seq) for problem in report.problems} == {(SYSTEM_CHAIN, 3), (RUN, 1)}


SQLITE_DAMAGE = {
    "details that are no JSON": ("details", "{", "no readable details"),
    "details with a key twice": ("details", '{"to_phase": "x", "to_phase": "intake"}', "no readable details"),
    "details too deep": ("details", "[" * 100_000, "no readable details"),
    "a number that JSON does not know": ("details", '{"to_phase": NaN}', "a value that JSON does not know"),
    "a time that is none": ("at", "yesterday", "no readable time"),
    "a month that is none": ("at", "2026-13-01 00:00:00", "no readable time"),
    "a time with a zone": ("at", "2026-05-04 09:00:01+05:00", "no readable time"),
    "a row number that is none": ("seq", "two", "the rows between are missing"),
}


if connection.vendor == "sqlite":  # PostgreSQL refuses to store such values

    @pytest.mark.parametrize(("column", "value", "words"), SQLITE_DAMAGE.values(), ids=SQLITE_DAMAGE)
    def test_damage_that_only_sqlite_can_hold_is_seen(record, column, value, words):
        sql("PRAGMA ignore_check_constraints = ON")
        sql(f"UPDATE audit_auditevent SET {column} = %s WHERE chain = %s AND seq = 2", value, RUN)
        sql("PRAGMA ignore_check_constraints = OFF")  # the connection serves the tests that come after
        assert any(words in problem.what for problem in verify_log().problems)


def test_progress_is_reported(record, monkeypatch):
    told = []
    monkeypatch.setattr("audit.verify.PROGRESS_ROWS", 8)
    verify_log(progress=told.append)
    assert told == [8, 16]


def test_verification_is_nine_queries(record, django_assert_num_queries):
    # The events; skill audits with and without a place, and their seal; what was dropped, and the seals.
    with django_assert_num_queries(9):
        verify_log()


def test_one_chain_is_verified_with_its_opening_and_closing(record, django_assert_num_queries):
    with django_assert_num_queries(3):
        report = verify_chain(RUN)
    assert (report.verified, report.rows) == (True, 7)


def test_edited_chain_is_found_when_verified_alone(record):
    edit(RUN, 3, actor="user:666")
    assert [problem.seq for problem in verify_chain(RUN).problems] == [3]


def test_rehashed_chain_is_found_when_verified_alone(record):
    edit(RUN, 1, actor="user:666")
    hash_chain_again(RUN)
    assert [problem.seq for problem in verify_chain(RUN).problems] == [1]


def test_edited_opening_is_found_when_a_chain_is_verified_alone(record):
    edit(SYSTEM_CHAIN, 3, actor="user:666")
    assert [(problem.chain, problem.seq) for problem in verify_chain(RUN).problems] == [(SYSTEM_CHAIN, 3)]


def test_missing_opening_is_found_when_a_chain_is_verified_alone(record):
    remove(chain=SYSTEM_CHAIN)
    assert [problem.chain for problem in verify_chain(RUN).problems] == [RUN]


def test_system_chain_is_verified_by_its_links(record):
    assert verify_chain(SYSTEM_CHAIN).verified
    edit(SYSTEM_CHAIN, 2, actor="user:666")
    assert [problem.seq for problem in verify_chain(SYSTEM_CHAIN).problems] == [2]


def test_running_chain_is_verified(unguarded):
    start(RUN)
    call(RUN, "started", second=5)
    assert verify_chain(RUN).verified
    assert verify_log().verified
