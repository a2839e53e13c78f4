"""A second host counter-signs what continues the checkpoints that it has seen."""

import json

import pytest

from audit.checkpoints import write_checkpoint
from audit.keys import is_signed, public_key
from tests.audit.samples import later, record_session
from tests.audit.test_commands import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def countersign(checkpoint_file, tmp_path):
    record_session()
    write_checkpoint(now=later(1))

    def command(key=None):
        files = ("--with", str(tmp_path / "own_key"), "--into", str(tmp_path / "seen.jsonl"))
        return run("countersign_audit", str(checkpoint_file), "--key", key or public_key(), *files)

    return command


def seen(tmp_path):
    return [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]


def test_newest_checkpoint_is_counter_signed(countersign, tmp_path):
    assert countersign()[0] == 0
    write_checkpoint(now=later(2))
    write_checkpoint(now=later(3))
    code, said, _ = countersign()
    assert (code, "Checkpoint 3 counter-signed" in said) == (0, True)
    own = public_key((tmp_path / "own_key").read_text())
    assert [(line["n"], line["key"], is_signed(line)) for line in seen(tmp_path)] == [(1, own, True), (3, own, True)]


def test_same_checkpoint_can_be_counter_signed_again(countersign, tmp_path):
    countersign()
    assert countersign()[0] == 0
    assert [line["n"] for line in seen(tmp_path)] == [1, 1]


def test_half_written_line_is_passed_over(countersign, checkpoint_file):
    with checkpoint_file.open("ab") as file:
        file.write(b'{"at":"20\n[]')
    assert countersign()[0] == 0


@pytest.mark.parametrize("lines", [1, 3])
def test_file_that_was_written_anew_is_refused(countersign, checkpoint_file, tmp_path, lines):
    countersign()
    checkpoint_file.unlink()
    for second in range(lines):
        write_checkpoint(now=later(10 + second))
    code, _, error = countersign()
    assert (code, "does not continue checkpoint 1" in error, len(seen(tmp_path))) == (1, True, 1)


def test_file_that_was_cut_is_refused(countersign, checkpoint_file):
    write_checkpoint(now=later(2))
    countersign()
    checkpoint_file.write_text(checkpoint_file.read_text().splitlines(keepends=True)[0])
    assert "does not continue checkpoint 2" in countersign()[2]


def test_file_of_another_key_is_refused(countersign):
    code, _, error = countersign(key=public_key("another key"))
    assert (code, "is signed with the key" in error) == (1, True)
