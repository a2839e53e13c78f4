import json
import subprocess
import sys
from pathlib import Path

import pytest

from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append
from audit.rows import exported_lines
from tests.audit.samples import RUN, call, later, record_session, start

pytestmark = pytest.mark.django_db
SCRIPT = Path(__file__).parents[2] / "docs" / "verify_export.py"
OTHER = "other-run"


@pytest.fixture
def rows():
    """The whole export, parsed: a closed chain, a running one and `system`."""
    record_session(RUN)
    start(OTHER)
    call(OTHER, "started")
    return [json.loads(line) for line in exported_lines()]


@pytest.fixture
def verdict(tmp_path):
    """Runs the script that a third party would run."""

    def run(rows, *options):
        file = tmp_path / "export.jsonl"
        file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
        command = [sys.executable, "-I", SCRIPT, *options, file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.stderr
        return done.returncode, done.stdout.strip()

    return run


def place(rows, chain, seq):
    return next(number for number, row in enumerate(rows) if (row["chain"], row["seq"]) == (chain, seq))


def test_line_holds_every_hashed_column_and_the_hash(rows):
    found = rows[place(rows, RUN, 1)]
    stored = AuditEvent.objects.get(chain=RUN, seq=1)
    assert found == {
        "chain": RUN,
        "seq": 1,
        "kind": "autonomous_session.started",
        "at": 1_777_885_200_000_000,
        "actor": "user:7",
        "subject": f"session:{RUN}",
        "request_id": "req-1",
        "details": {"mode": "phased", "owner_id": 7, "max_cost_usd": "5.00"},
        "prev_hash": "0" * 64,
        "hash": stored.hash,
    }


def test_export_is_complete_and_in_order(rows):
    assert len(rows) == AuditEvent.objects.count() == 12
    assert [row["seq"] for row in rows if row["chain"] == RUN] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("filters", "count"),
    [({"chain": RUN}, 7), ({"kind": "audit.chain_opened"}, 2), ({"since": later(60)}, 2), ({"chain": "nobody"}, 0)],
)
def test_filters_leave_rows_out(rows, filters, count):
    assert len(list(exported_lines(**filters))) == count


def test_intact_export_is_verified_without_lqops(rows, verdict):
    assert verdict(rows) == (0, "Verified: all events intact")


def test_one_chain_is_verified_by_its_links(rows, verdict):
    chain = list(exported_lines(chain=RUN))
    assert verdict(chain, "--links-only")[0] == 0
    assert verdict(chain) == (1, f"line 7: end of file, and chain {RUN} does not match its rows in `system`")


@pytest.mark.parametrize(
    "column", ["chain", "seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash", "hash"]
)
def test_edit_of_any_column_of_any_line_is_found(rows, column):
    """In this process, for speed: the script's own function, on every line."""
    verify = load_verifier()
    for number, row in enumerate(rows):
        changed = [dict(found) for found in rows]
        changed[number][column] = {"seq": row["seq"] + 1, "at": row["at"] + 1, "details": {}}.get(column, "6" * 64)
        assert verify(map(json.dumps, changed), links_only=False)


def load_verifier():
    scope = {"__name__": "verify_export"}
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), scope)
    return scope["verify"]


def test_edited_line_is_named(rows, verdict):
    number = place(rows, RUN, 3)
    rows[number]["actor"] = "user:666"
    assert verdict(rows) == (1, f"line {number + 1}: row 3 of chain {RUN} was changed")


def test_removed_line_is_named(rows, verdict):
    number = place(rows, RUN, 3)
    del rows[number]
    assert verdict(rows) == (1, f"line {number + 1}: row 4 of chain {RUN} does not follow the row before it")


def test_dropped_chain_is_found(rows, verdict):
    rest = [row for row in rows if row["chain"] != OTHER]
    assert verdict(rest) == (1, f"line 10: end of file, and chain {OTHER} does not match its rows in `system`")


def test_cut_tail_of_a_closed_chain_is_found(rows, verdict):
    del rows[place(rows, RUN, 7)]
    assert verdict(rows)[0] == 1


def test_second_opening_is_found(rows, verdict):
    append(SYSTEM_CHAIN, "audit.chain_opened", now=later(99), details={"opened": RUN, "first_hash": "6"})
    code, said = verdict(list(exported_lines()))
    assert (code, "row 4 of `system` opens or closes a chain again" in said) == (1, True)


@pytest.mark.parametrize("line", ["rubbish", "[]", "{}", '{"hash": 1, "seq": "x"}', "ü"])
def test_malformed_line_is_named(rows, verdict, line):
    code, said = verdict([*rows, line])
    assert (code, said.partition(":")[0]) == (1, "line 13")


def test_empty_file_is_not_verified(verdict):
    assert verdict([]) == (1, "line 1: the file is empty")
