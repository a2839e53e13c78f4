"""An export is refused by the verifier, with the public key alone, unless it is what the installation signed."""

import csv
import io
import json

import pytest

from audit.checkpoints import replace_key, write_checkpoint
from audit.export import Selection, UnknownChain, export_log
from audit.keys import public_key, signed
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.recorder import append, chain_head, close_chain
from audit.restores import accept_restore
from audit.rows import UnreadableRow, canonical, digest
from audit.verify import verify_log
from audit.witness import countersign
from tests.audit.samples import (
    NOW,
    RUN,
    call,
    edit,
    hash_chain_again,
    later,
    record_session,
    remove,
    row,
    start,
)
from tests.audit.verifier import loaded, run_process, run_script

pytestmark = pytest.mark.django_db
OTHER = "other-run"
FORGER = "a key that the forger made up by hand"


@pytest.fixture(autouse=True)
def _log(checkpoint_file):
    """A closed chain, a running one and `system`, with a checkpoint before the last row."""
    record_session(RUN)
    start(OTHER)
    write_checkpoint(now=later(61))
    call(OTHER, "started", second=62)


def export(form="jsonl", second=100, **selection):
    return list(export_log(Selection(**selection), form=form, by="user:7", now=later(second)))


@pytest.fixture
def verdict(tmp_path):
    """Runs the script that a third party would run, and returns its exit code and what it says."""

    def run(lines, *options, key=None, run_by=run_script):
        file = tmp_path / "export"
        file.write_text("".join(lines))
        code, out, errors = run_by("--key", key or public_key(), *options, file)
        assert "Traceback" not in errors
        return code, (out + errors).strip()

    return run


def verify(lines):
    """The script's own function, in this process, for speed; returns why it refuses."""
    try:
        loaded()["verify"]([line.encode() for line in lines], public_key(), {}, {})
    except ValueError as error:
        return str(error)
    return ""


def place(lines, chain, seq):
    wanted = (chain, seq)
    return next(
        at for at, line in enumerate(lines) if (json.loads(line).get("chain"), json.loads(line).get("seq")) == wanted
    )


def change(line, **columns):
    return canonical({**json.loads(line), **columns}) + "\n"


def rehash(lines):
    """What a careful forger does: number, link and hash all events afresh."""
    last, done = {}, []
    for line in lines:
        event = json.loads(line)
        if "chain" in event:
            seq, before = last.get(event["chain"], (0, "0" * 64))
            event |= {"seq": seq + 1, "prev_hash": before}
            event.pop("hash", None)
            event["hash"] = digest(event)
            last[event["chain"]] = (event["seq"], event["hash"])
        done.append(canonical(event) + "\n")
    return done


def manifest_of(lines):
    return json.loads(lines[-1])["manifest"]


# --- What an export holds ---


def test_event_has_every_hashed_column_and_the_hash():
    lines = export()
    assert json.loads(lines[place(lines, RUN, 1)]) == {
        "chain": RUN,
        "seq": 1,
        "kind": "autonomous_session.started",
        "at": 1_777_885_200_000_000,
        "actor": "user:7",
        "subject": f"session:{RUN}",
        "request_id": "req-1",
        "details": {"mode": "phased", "owner_id": 7, "max_cost_usd": "5.00"},
        "prev_hash": "0" * 64,
        "hash": AuditEvent.objects.get(chain=RUN, seq=1).hash,
    }


def test_checkpoints_come_first_and_the_manifest_last():
    lines = export()
    manifest = manifest_of(lines)
    assert [json.loads(line)["checkpoint"]["n"] for line in lines[:2]] == [1, 2]
    assert manifest["events"] == len(lines) - 3 == AuditEvent.objects.count() == 15
    assert (manifest["checkpoints"], manifest["signed_from"], manifest["key"]) == (2, 1, public_key())
    assert manifest["log"] == row(SYSTEM_CHAIN, 1).hash


def test_export_is_recorded_with_who_and_what():
    export(chain=RUN, since=NOW, kind="autonomous_session.started", form="csv")
    event = AuditEvent.objects.get(kind="audit.exported")
    assert (event.actor, event.details) == (
        "user:7",
        {"format": "csv", "chain": RUN, "since": NOW.isoformat(), "kind": "autonomous_session.started"},
    )


@pytest.mark.parametrize(
    ("filters", "count"),
    [({"chain": RUN}, 7), ({"kind": "audit.chain_opened"}, 2), ({"since": later(60)}, 6), ({"chain": SYSTEM_CHAIN}, 6)],
)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_selection_is_signed(verdict, form, filters, count):
    code, said = verdict(export(form, **filters))
    assert (code, f"Verified: {count} events of" in said) == (0, True), said


def test_unknown_chain_is_refused_and_nothing_is_written(checkpoint_file):
    before = checkpoint_file.read_bytes()
    with pytest.raises(UnknownChain, match="nobody"):
        export(chain="nobody")
    assert checkpoint_file.read_bytes() == before
    assert not AuditEvent.objects.filter(kind="audit.exported").exists()


def test_export_without_a_checkpoint_is_refused(checkpoint_file):
    checkpoint_file.unlink()
    checkpoint_file.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        export()


def test_unreadable_row_leaves_an_export_without_a_manifest(unguarded, verdict):
    edit(RUN, 3, details=[])
    lines = []
    with pytest.raises(UnreadableRow):
        lines.extend(export_log(Selection(), form="jsonl", by="user:7", now=NOW))
    assert verdict(lines) == (1, "Refused: there is no manifest: the end was cut off")


def test_lines_are_made_one_by_one(monkeypatch):
    lines = export_log(Selection(), form="jsonl", by="user:7", now=NOW)
    next(lines)
    monkeypatch.setattr(AuditEvent.objects, "filter", lambda **_: pytest.fail("read before it was asked for"))
    lines.close()


# --- CSV ---


def test_csv_has_one_row_for_each_event_and_is_verified(verdict):
    lines = export("csv")
    rows = list(csv.DictReader(io.StringIO("".join(lines))))
    first = next(found for found in rows if found["chain"] == RUN)
    assert (first["at"], json.loads(first["details"])["mode"]) == ("2026-05-04T09:00:00.000000+00:00", "phased")
    assert [found["chain"] for found in rows if not found["seq"]] == ["checkpoint", "checkpoint", "manifest"]
    assert verdict(lines)[0] == 0


def test_csv_runs_no_formula_and_loses_nothing(verdict):
    append(SYSTEM_CHAIN, "people.opted_in", now=later(90), actor="-1+1", subject="@x", details={"user_id": 7})
    lines = export("csv")
    found = next(found for found in csv.DictReader(io.StringIO("".join(lines))) if found["kind"] == "people.opted_in")
    assert (found["actor"], found["subject"]) == ("'-1+1", "'@x")
    assert verdict(lines)[0] == 0


def test_forged_csv_is_refused(verdict):
    lines = export("csv")
    forged = [line.replace("user:7", "user:8") for line in lines]
    assert "was changed" in verdict(forged)[1]
    assert verdict(lines[:-2] + lines[-1:])[0] == verdict(lines[:-1])[0] == 1


# --- Forged and truncated exports ---


def test_intact_export_is_verified_without_lqops(verdict):
    assert verdict(export(), run_by=run_process) == (
        0,
        "Verified: 15 events of all chains, up to checkpoint 2, exported 2026-05-04T09:01:40+00:00",
    )
    code, said = verdict(export()[:-1], run_by=run_process)
    assert (code, said) == (1, "Refused: there is no manifest: the end was cut off")
    assert verdict(export()[:-1]) == (code, said)


def test_edited_row_is_named(verdict):
    lines = export()
    at = place(lines, RUN, 3)
    lines[at] = change(lines[at], actor="user:666")
    assert verdict(lines) == (1, f"Refused: line {at + 1} (row 3 of chain {RUN}) was changed")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "column", ["seq", "kind", "at", "actor", "subject", "request_id", "details", "prev_hash", "hash"]
)
def test_edit_of_any_column_of_any_event_is_found(column):
    lines = export()
    for at, line in enumerate(lines[2:-1], 2):
        value = {"seq": 99, "at": 1, "details": {}}.get(column, "6" * 64)
        assert verify([*lines[:at], change(line, **{column: value}), *lines[at + 1 :]])


def test_rewritten_export_with_all_hashes_recomputed_is_refused(verdict):
    lines = export()
    at = place(lines, OTHER, 2)
    lines[at] = change(lines[at], actor="user:666")
    code, said = verdict(rehash(lines))
    assert (code, "some were changed or cut" in said or "not the row that a checkpoint signed" in said) == (1, True)


def test_rewritten_export_with_a_forged_manifest_is_refused(verdict):
    lines = rehash(export())
    manifest = manifest_of(lines)
    lines[-1] = canonical({"manifest": signed(manifest, FORGER)}) + "\n"
    assert "is not signed with the key" in verdict(lines)[1]
    lines[-1] = canonical({"manifest": {**signed(manifest, FORGER), "key": public_key()}}) + "\n"
    assert "has a wrong signature" in verdict(lines)[1]


@pytest.mark.parametrize("cut", range(1, 18))
def test_cut_tail_is_found_wherever_it_was_cut(cut):
    lines = export()
    assert verify(lines[:-cut]) == ("" if cut == 0 else "there is no manifest: the end was cut off")
    assert verify([*lines[: -1 - cut], lines[-1]])


@pytest.mark.parametrize("at", range(2, 17))
def test_removed_line_is_found(at):
    lines = export()
    assert verify([*lines[:at], *lines[at + 1 :]])


def test_line_after_the_manifest_is_found(verdict):
    lines = export()
    assert "stands after the manifest" in verdict([*lines, lines[-2]])[1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "line", ["rubbish", "[]", "{}", '{"hash": 1, "seq": "x"}', '{"checkpoint": {}}', '{"manifest": {}}', "ü"]
)
def test_malformed_line_is_named(verdict, line):
    lines = export()
    code, said = verdict([*lines[:-1], f"{line}\n", lines[-1]])
    assert (code, said.startswith("Refused: line 18 ")) == (1, True), said


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        DEEP,
        f'{{"checkpoint": {DEEP}}}',
        f'{{"manifest": {DEEP}}}',
        f'{{"seq": {DEEP}}}',
        f'{{"seq": {"9" * 5_000}}}',
        '{"seal": {"ranges": [["system"]], "statement": {}}}',
    ],
)
def test_hostile_line_is_refused_in_words(verdict, line):
    lines = export()
    code, said = verdict([*lines[:-1], f"{line}\n", lines[-1]], run_by=run_process)
    assert (code, said.startswith("Refused: line 18 ")) == (1, True), said


@pytest.mark.parametrize("cell", ["x" * 300_000, '"' + "y" * 300_000, "", ","])
def test_hostile_row_of_a_table_is_refused_in_words(verdict, cell):
    lines = export("csv")
    code, said = verdict([*lines[:-1], f"{cell}\n", lines[-1]], run_by=run_process)
    assert (code, said.startswith("Refused: line ")) == (1, True), said


def test_long_details_are_verified_in_a_table(verdict):
    """Python reads cells of 131,072 characters unless it is told otherwise."""
    append(
        OTHER, "autonomous_session.completed", now=later(90), details={"reason": [f"r{n:08}" for n in range(20_000)]}
    )
    lines = export("csv")
    assert max(map(len, lines)) > 200_000
    assert verdict(lines, run_by=run_process)[0] == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", [None, 5, -1, 2.5, "", "x", [], [[]], [1, 2], {}, {"a": {}}, 10**400, True])
def test_any_other_value_in_any_field_is_refused_in_words(value):
    lines = export()
    tried = 0
    for at in (0, 2, len(lines) - 1):
        whole = json.loads(lines[at])
        inner = whole.get("checkpoint") or whole.get("manifest") or whole
        for name, old in inner.items():
            if old == value:
                continue
            inner[name] = value
            assert verify([*lines[:at], json.dumps(whole) + "\n", *lines[at + 1 :]])
            inner[name] = old
            tried += 1
    assert tried > 20


def test_hostile_copy_of_checkpoints_is_refused_in_words(verdict, tmp_path):
    kept = tmp_path / "kept.jsonl"
    kept.write_text(f"{DEEP}\n")
    assert verdict(export(), "--kept", kept, run_by=run_process) == (1, f"Refused: line 1 of {kept} is no checkpoint")


def test_empty_file_is_refused(verdict):
    assert verdict([]) == (1, "Refused: there is no manifest: the end was cut off")


def test_manifest_of_another_format_is_refused():
    lines = export()
    manifest = {**manifest_of(lines), "format": "lqops-audit-export/9"}
    del manifest["signature"], manifest["key"]
    assert "unknown format" in verify([*lines[:-1], canonical({"manifest": signed(manifest)})])


def test_text_that_is_no_key_is_not_mistaken_for_a_wrong_key(verdict):
    code, said = verdict(export(), key=f'{{"key": "{public_key()}"}}')

    assert code == 2
    assert "a public key has 64 digits" in said


def test_kept_file_without_checkpoints_is_named(verdict, tmp_path):
    kept = tmp_path / "kept.jsonl"
    kept.write_text('{"chain": "system"}\n')

    assert verdict(export(), "--kept", kept) == (1, f"Refused: line 1 of {kept} is no checkpoint")


def test_export_of_another_installation_is_refused(verdict):
    assert "is not signed with the key" in verdict(export(), key=public_key(FORGER))[1]


def test_one_run_cut_short_is_found(verdict):
    lines = export(chain=RUN)
    assert verdict(lines)[0] == 0
    assert "some were changed or cut" in verdict([*lines[:-2], lines[-1]])[1]


def test_run_whose_signed_head_is_missing_is_refused():
    lines = export(chain=RUN)
    manifest = {**manifest_of(lines), "heads": {RUN: [9, "6" * 64]}}
    del manifest["signature"], manifest["key"]
    assert "names another last row" in verify([*lines[:-1], canonical({"manifest": signed(manifest)})])


# --- A database that was rewritten before the export ---


def test_database_rewritten_with_recomputed_hashes_is_refused(unguarded, verdict):
    write_checkpoint(now=later(70))
    edit(RUN, 1, actor="user:666")
    hash_chain_again(RUN)
    edit(SYSTEM_CHAIN, 1, details={"opened": RUN, "first_hash": row(RUN, 1).hash})
    closed = chain_head(RUN)
    edit(SYSTEM_CHAIN, 2, details={"closed": RUN, "last_seq": closed.seq, "last_hash": closed.hash})
    hash_chain_again(SYSTEM_CHAIN)
    assert verify_log().verified
    code, said = verdict(export())
    assert (code, "(row 3 of chain system) is not the row that a checkpoint signed" in said) == (1, True), said


def test_rows_cut_from_an_open_chain_of_the_database_are_missed(unguarded, verdict):
    write_checkpoint(now=later(70))
    remove(chain=OTHER, seq=2)
    assert f"comes without row 2 of chain {OTHER}" in verdict(export())[1]
    assert f"comes without row 2 of chain {OTHER}" in verdict(export(chain=OTHER))[1]


def test_chain_dropped_from_the_database_is_missed(unguarded, verdict):
    remove(chain=RUN)
    assert f"comes with chain {RUN}, which does not match its rows in `system`" in verdict(export())[1]


def test_chain_that_goes_on_after_its_closing_is_found(unguarded, verdict):
    call(RUN, "started")
    assert f"comes with chain {RUN}" in verdict(export())[1]


def test_short_run_rewritten_with_a_second_opening_and_closing_is_refused(unguarded, verdict):
    """No checkpoint names its rows, and `system` itself is intact."""
    edit(RUN, 1, actor="user:666")
    hash_chain_again(RUN)
    first, last = row(RUN, 1), chain_head(RUN)
    append(SYSTEM_CHAIN, "audit.chain_opened", now=later(99), details={"opened": RUN, "first_hash": first.hash})
    close_chain(RUN, now=later(99), after=last)
    assert f"comes with chain {RUN}" in verdict(export())[1]


def test_gap_in_the_database_is_found(unguarded, verdict):
    remove(chain=RUN, seq=3)
    assert f"(row 4 of chain {RUN}) does not follow the row before it" in verdict(export())[1]


# --- Swapped, changed and missing checkpoints ---


@pytest.fixture
def checkpoints():
    for second in (70, 80, 90):
        call(OTHER, "success", second=second)
        write_checkpoint(now=later(second))


def swap(lines, one, other):
    lines[one], lines[other] = lines[other], lines[one]
    return lines


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (0, 3)])
def test_swapped_checkpoints_are_refused(checkpoints, verdict, one, other):
    assert "does not follow the last one" in verdict(swap(export(), one, other))[1]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2)])
def test_checkpoints_swapped_in_the_file_are_refused(checkpoints, checkpoint_file, verdict, one, other):
    checkpoint_file.write_text("".join(swap(checkpoint_file.read_text().splitlines(keepends=True), one, other)))
    assert "does not follow the last one" in verdict(export())[1]


def test_checkpoint_of_another_file_in_its_place_is_refused(checkpoints, checkpoint_file, tmp_path, verdict):
    for second in (70, 80):
        write_checkpoint(now=later(second), path=tmp_path / "other")
    lines = checkpoint_file.read_text().splitlines(keepends=True)
    lines[1] = (tmp_path / "other").read_text().splitlines(keepends=True)[1]
    checkpoint_file.write_text("".join(lines))
    assert "does not follow the last one" in verdict(export())[1]


def test_checkpoint_removed_from_the_file_is_refused(checkpoints, checkpoint_file, verdict):
    lines = checkpoint_file.read_text().splitlines(keepends=True)
    checkpoint_file.write_text("".join([lines[0], *lines[2:]]))
    assert "comes without all checkpoints" in verdict(export())[1]


def test_checkpoint_that_names_another_row_is_refused(unguarded, checkpoints, verdict):
    edit(OTHER, 5, actor="user:666")
    hash_chain_again(OTHER)
    write_checkpoint(now=later(95))
    assert f"signs another row 5 of {OTHER}" in verdict(export())[1]


def test_changed_checkpoint_is_refused(checkpoints, verdict):
    lines = export()
    second = json.loads(lines[1])["checkpoint"]
    lines[1] = canonical({"checkpoint": {**second, "rows": 1}}) + "\n"
    assert verdict(lines) == (1, "Refused: line 2 has a wrong signature")


def test_checkpoint_signed_by_somebody_else_is_refused(checkpoints, verdict):
    lines = export()
    second = {
        name: value for name, value in json.loads(lines[1])["checkpoint"].items() if name not in {"key", "signature"}
    }
    lines[1] = canonical({"checkpoint": signed(second, FORGER)}) + "\n"
    assert verdict(lines) == (1, "Refused: line 2 is not signed with the key")


# --- What the auditor has from elsewhere ---


def test_file_started_again_after_rows_were_cut_is_found_by_a_kept_copy(
    unguarded, checkpoints, checkpoint_file, tmp_path, verdict
):
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(checkpoint_file.read_bytes())
    assert verdict(export(), "--kept", kept)[0] == 0
    assert verdict(export(chain=OTHER), "--kept", kept)[0] == 0
    checkpoint_file.unlink()
    remove(chain=OTHER, seq__gte=3)
    lines = export()
    assert verdict(lines)[0] == 0
    assert "is not the checkpoint that was kept" in verdict(lines, "--kept", kept)[1]


def test_export_older_than_the_kept_copy_is_refused(checkpoints, checkpoint_file, tmp_path, verdict):
    lines, run = export(), export(chain=OTHER)
    write_checkpoint(now=later(200))
    for old in (lines, run):
        assert "older than those you have" in verdict(old, "--kept", checkpoint_file)[1]


def test_counter_signature_shows_a_history_written_anew(unguarded, checkpoints, checkpoint_file, tmp_path, verdict):
    second, secret = tmp_path / "witness.jsonl", "the key of the second host, also a long one"
    countersign(checkpoint_file, key=public_key(), into=second, secret=secret, now=later(95))
    options = ("--kept", second, "--witness-key", public_key(secret))
    assert verdict(export(), *options)[0] == 0
    assert verdict(export(), *options[:3], public_key())[0] == 1
    assert verdict(export(), "--kept", checkpoint_file, *options[2:])[0] == 1
    checkpoint_file.unlink()
    for step in range(4):
        write_checkpoint(now=later(300 + step))
    assert "kept or counter-signed" in verdict(export(), *options)[1]
    second.write_text(second.read_text().replace('"n":4', '"n":3'))
    assert verdict(export(), *options) == (1, "Refused: a counter-signature is wrong")


# --- Keys, old checkpoints and restores ---


def test_replaced_key_is_followed_from_the_old_one(checkpoints, settings, verdict):
    old, new = public_key(), "another key, long enough to be one"
    replace_key(new, by="user:7", now=later(95))
    settings.LQOPS_AUDIT_KEY = new
    write_checkpoint(now=later(96))
    for lines in (export(), export(chain=RUN)):
        assert verdict(lines, key=old)[0] == 0
        assert verdict(lines, key=public_key())[0] == 0
        assert verdict(lines, key=public_key(FORGER))[0] == 1


def test_checkpoints_from_before_signatures_are_linked(checkpoint_file, verdict):
    first = json.loads(checkpoint_file.read_text())
    old = {name: value for name, value in first.items() if name not in {"key", "log", "signature"}}
    checkpoint_file.write_text(canonical({**old, "signature": hmac_of(old)}) + "\n")
    lines = export()
    assert (manifest_of(lines)["signed_from"], verdict(lines)[0]) == (2, 0)
    lines[0] = canonical({"checkpoint": {**old, "rows": 1}}) + "\n"
    assert "line 2 does not follow the last one" in verdict(lines)[1]


def hmac_of(checkpoint):
    import hashlib
    import hmac

    from django.conf import settings

    return hmac.new(settings.LQOPS_AUDIT_KEY.encode(), canonical(checkpoint).encode(), hashlib.sha256).hexdigest()


def test_rows_lost_by_an_accepted_restore_are_excused(unguarded, checkpoints, checkpoint_file, verdict):
    remove(chain=OTHER, seq__gte=3)
    assert verdict(export())[0] == 1
    checkpoint_file.write_text("".join(checkpoint_file.read_text().splitlines(keepends=True)[:4]))
    remove(kind="audit.exported")
    remove(kind="audit.checkpoint_written", details__number=5)
    report = verify_log(head=checkpoint_file)
    accept_restore(report.missing, path=checkpoint_file, by="op", actor="user:7", reason="disk", now=later(400))
    code, said = verdict(export(second=500))
    assert (code, f"of chain {OTHER} were lost by a restore" in said) == (0, True), said


def test_rows_in_the_place_of_lost_ones_agree_with_a_copy_from_before_the_restore(
    unguarded, checkpoints, checkpoint_file, tmp_path, verdict
):
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(checkpoint_file.read_bytes())
    remove(chain=OTHER, seq__gte=3)
    call(OTHER, "denied", second=300)  # row 3 again, with another hash
    report = verify_log(head=checkpoint_file)
    accept_restore(report.missing, path=checkpoint_file, by="op", actor="user:7", reason="disk", now=later(400))

    for lines in (export(second=500), export(second=510, chain=OTHER)):
        code, said = verdict(lines, "--kept", kept)
        assert (code, f"of chain {OTHER} were lost by a restore" in said) == (0, True), said
