"""Tampering that only checkpoints show: rows cut from the end. And tampering with the checkpoint file."""

import json

import pytest
from django.db import DatabaseError

from audit import checkpoints
from audit.checkpoints import write_checkpoint
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.verify import verify_log
from tests.audit.samples import RUN, call, edit, hash_chain_again, later, record_session, remove, row, start

OTHER = "other-run"


pytestmark = pytest.mark.django_db


@pytest.fixture
def head(unguarded, checkpoint_file):
    """Three checkpoints over a closed chain and one that runs on."""
    record_session(OTHER)
    start(RUN)
    for number in range(3):
        call(RUN, "started", call_id=f"call-{number}")
        write_checkpoint(now=later(number))
    return checkpoint_file


def problems(head):
    return verify_log(head=head).problems


def rewrite(head, change):
    lines = head.read_text().splitlines()
    change(lines)
    head.write_text("".join(f"{line}\n" for line in lines))


def test_untouched_audit_log_is_verified(head):
    call(RUN, "success")
    report = verify_log(head=head)
    assert (report.problems, report.warnings, report.checkpoints) == ([], [], 3)


def test_cut_tail_is_found(head):
    remove(chain=RUN, seq=4)
    assert verify_log().verified
    found = {problem.chain: problem for problem in problems(head)}
    assert (found[RUN].seq, found[RUN].line) == (4, 3)
    assert "the checkpoint in line 3 signed it" in str(found[RUN])


def test_cut_tail_of_system_is_found(head):
    start("newest")
    write_checkpoint(now=later(9))
    remove(chain="newest")
    remove(chain=SYSTEM_CHAIN, seq__gte=7)
    assert verify_log().verified
    assert {(problem.chain, problem.line) for problem in problems(head)} == {
        ("newest", 4),
        (SYSTEM_CHAIN, 4),
        (None, 4),
    }


def test_emptied_file_is_found(head):
    head.write_bytes(b"")
    (problem,) = problems(head)
    assert str(problem) == (
        "checkpoint file: checkpoint 1, which an event of `system` names, is missing or was replaced (missing: 3): "
        "the file is empty"
    )


def test_lines_cut_from_the_end_of_the_file_are_found(head):
    rewrite(head, lambda lines: lines.pop())
    assert "checkpoint 3, which an event of `system` names, is missing" in str(problems(head)[0])
    write_checkpoint(now=later(9))  # another checkpoint 3
    assert "checkpoint 3, which an event of `system` names, is missing or was replaced" in str(problems(head)[0])


def test_checkpoints_of_another_file_are_a_note(head):
    head.unlink()
    write_checkpoint(now=later(9))
    report = verify_log(head=head)
    assert (report.verified, report.checkpoints) == (True, 1)
    (note,) = report.warnings
    assert note == (
        "checkpoint file: 3 checkpoints, the newest of them number 3, were written to another file than this one; "
        "verify it with --head"
    )


def test_crash_before_the_event_of_a_checkpoint_leaves_no_problem(head, monkeypatch):
    def crash(*args, **kwargs):
        raise DatabaseError("the server is gone")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "append", crash)
        with pytest.raises(DatabaseError):
            write_checkpoint(now=later(9))
    write_checkpoint(now=later(10))
    report = verify_log(head=head)
    assert (report.problems, report.warnings, report.checkpoints) == ([], [], 5)


def test_dropped_chain_is_found(head):
    remove(chain=RUN)
    report = verify_log(head=head)
    assert [problem.chain for problem in report.problems] == [RUN, None]
    assert "it has no rows" in report.problems[0].what


def test_chain_dropped_with_its_rows_in_system_is_found(head):
    remove(chain=OTHER)
    remove(chain=SYSTEM_CHAIN, subject=f"session:{OTHER}")
    hash_chain_again(SYSTEM_CHAIN)
    assert verify_log().verified
    assert SYSTEM_CHAIN in {problem.chain for problem in problems(head)}


def test_chain_rehashed_from_the_start_is_found(head):
    edit(RUN, 1, actor="user:666")
    hash_chain_again(RUN)
    edit(SYSTEM_CHAIN, 3, details={"opened": RUN, "first_hash": row(RUN, 1).hash})
    hash_chain_again(SYSTEM_CHAIN)
    assert verify_log().verified
    assert {problem.chain for problem in problems(head)} == {RUN, SYSTEM_CHAIN}


def test_rewrite_before_a_later_checkpoint_is_found(head):
    edit(RUN, 4, actor="user:666")
    hash_chain_again(RUN)
    write_checkpoint(now=later(9))
    assert [(problem.chain, problem.seq, problem.line) for problem in problems(head)] == [(RUN, 4, 3)]


def test_fewer_rows_than_counted_are_found(head):
    remove(chain=OTHER)
    report = verify_log(head=head)
    assert str(report.problems[-1]) == "checkpoint file, line 3: it counted 16 rows, now there are 10"


def test_rows_added_during_verification_are_no_loss(head, monkeypatch):
    walked = AuditEvent.objects.exclude(chain=RUN, seq=4).exclude(chain=RUN, seq=3)
    monkeypatch.setattr(AuditEvent.objects, "all", lambda: walked)
    assert problems(head) == []


def test_many_heads_are_looked_up_in_batches(head, monkeypatch):
    monkeypatch.setattr("audit.verify.LOOKUP_HEADS", 2)
    for number in range(5):
        start(f"many-{number}")
    write_checkpoint(now=later(8))
    assert problems(head) == []
    remove(chain="many-3")
    assert "many-3" in {problem.chain for problem in problems(head)}


def test_unchanged_head_is_looked_up_once(head, django_assert_num_queries):
    for number in range(20):
        write_checkpoint(now=later(10 + number))
    with django_assert_num_queries(10):  # the walk, three for skill audits, five for seals, the heads
        assert verify_log(head=head).checkpoints == 23


@pytest.mark.parametrize("name", ["at", "n", "rows", "last_id", "system", "open", "prev", "signature"])
def test_edit_of_any_field_of_a_line_is_found(head, name):
    def change(lines):
        lines[1] = json.dumps({**json.loads(lines[1]), name: "666"}, sort_keys=True, separators=(",", ":"))

    rewrite(head, change)
    found = problems(head)
    assert str(found[0]) == (
        "checkpoint file, line 2: its signature is wrong: it was changed, or signed with another key"
    )
    assert verify_log(head=head).further == 0


def test_line_signed_with_another_key_is_found(head, settings):
    settings.LQOPS_AUDIT_KEY = "another key"
    report = verify_log(head=head)
    assert (report.problems[0].line, report.further, report.checkpoints) == (1, 2, 0)


@pytest.mark.parametrize("line", [0, 1])
def test_removed_line_is_found(head, line):
    rewrite(head, lambda lines: lines.pop(line))
    found = problems(head)
    assert str(found[0]) == (
        f"checkpoint file, line {line + 1}: found checkpoint {line + 2}, expected {line + 1}: "
        "lines were removed or moved"
    )


def test_swapped_lines_are_found(head):
    rewrite(head, lambda lines: lines.reverse())
    assert problems(head)[0].line == 1


def test_line_signed_for_another_place_is_found(head, checkpoint_file, tmp_path):
    write_checkpoint(now=later(5), path=tmp_path / "other")
    write_checkpoint(now=later(6), path=tmp_path / "other")
    foreign = (tmp_path / "other").read_text().splitlines()[1]
    rewrite(head, lambda lines: lines.__setitem__(1, foreign))
    assert problems(head)[0].line == 2


def test_damaged_last_line_is_reported(head):
    head.write_bytes(head.read_bytes()[:-50])
    found = problems(head)
    assert (found[0].line, found[0].what[:13]) == (3, "it is damaged")


def test_damaged_line_confirmed_by_the_next_checkpoint_is_a_note(head):
    head.write_bytes(head.read_bytes()[:-50])
    remove(kind="audit.checkpoint_written", details__number=3)  # the event follows the line
    write_checkpoint(now=later(9))
    report = verify_log(head=head)
    assert (report.verified, report.checkpoints) == (True, 3)
    assert report.warnings == [
        "checkpoint file, line 4: a crash left the line before it half-written; this checkpoint confirms it"
    ]


@pytest.mark.parametrize("text", ["rubbish", ""])
def test_text_inserted_between_lines_is_found(head, text):
    rewrite(head, lambda lines: lines.insert(1, text))
    assert (problems(head)[0].line, "damaged text" in problems(head)[0].what) == (3, True)


def test_removed_damaged_line_is_found(head):
    head.write_bytes(head.read_bytes()[:-50])
    write_checkpoint(now=later(9))
    rewrite(head, lambda lines: lines.pop(2))
    assert problems(head)[0].line == 3


def test_forged_last_line_is_seen_once(head):
    rewrite(head, lambda lines: lines.append("{}"))
    report = verify_log(head=head)
    assert ([problem.line for problem in report.problems], report.further) == ([4], 0)
