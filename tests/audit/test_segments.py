"""Archived segments: what is written, what may be dropped, and what verification finds across the seam."""

import errno
import gzip
import json

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client

from audit import models, recorder, segments
from audit.checkpoints import read_lines, replace_key, write_checkpoint
from audit.export import Selection, export_log
from audit.keys import public_key, signed
from audit.models import SYSTEM_CHAIN, AuditEvent, DroppedSegment, PendingEvent, Seal, SealedChain, SkillAudit
from audit.recorder import append, chain_head
from audit.rows import UnreadableRow, digest
from audit.seals import archived, newest_seam, seal_faults, unfinished
from audit.segments import (
    ArchiveError,
    Content,
    archive,
    archive_folder,
    chain_fault,
    drop,
    signed_rows,
    system_end,
    verify_archive,
    write_file,
)
from audit.verify import verify_chain, verify_log
from tests.audit.samples import (
    RUN,
    edit,
    hash_again,
    hash_chain_again,
    later,
    record_session,
    record_skill_call,
    remove,
    sql,
)
from tests.audit.test_commands import run
from tests.audit.verifier import run_process, run_script

pytestmark = pytest.mark.django_db

OTHER = "0b9e6679-7425-40de-944b-e07fc1f90ae7"
OPEN = "aa9e6679-7425-40de-944b-e07fc1f90ae7"
AFTER = later(86_400)
NEW_SECRET = "another secret of at least thirty-two characters"


@pytest.fixture
def folder(tmp_path):
    with archive_folder(tmp_path / "archive") as found:
        yield found


@pytest.fixture
def log():
    """Two closed runs, one of them with a skill audit, and one that is open."""
    record_session(RUN, closed=False)
    record_skill_call(
        session_id=RUN, skill_name="send", arguments={}, output="", capability_level="CONTROLLED", risk_level=None,
        duration_ms=1,
    )  # fmt: skip
    recorder.close_chain(RUN, now=later(60))
    record_session(OTHER)
    record_session(OPEN, closed=False)
    write_checkpoint(now=later(70))


def whole(*chains):
    return [(chain, chain_head(chain).seq) for chain in chains]


def seal(folder, *chains, now=AFTER):
    return archive(whole(*chains), folder=folder, agreed=signed_rows(), by="user:1", now=now)


def seal_system(folder, now=AFTER):
    end = system_end(later(80), after=newest_seam().system_seq)
    return archive([(SYSTEM_CHAIN, end)], folder=folder, agreed=signed_rows(), by="user:1", now=now)


def prune(folder, *chains, system=False):
    sealed = [seal(folder, *chains)] if chains else []
    for one in sealed:
        drop(one, folder=folder, now=AFTER)
    if system:
        sealed.append(seal_system(folder))
        drop(sealed[-1], folder=folder, now=AFTER)
    return sealed[-1]


def verified(checkpoint_file, **options):
    return verify_log(head=checkpoint_file, **options)


def verify_file(path, *more, run_by=run_script):
    return run_by("--key", public_key(), *more, path)


# --- What is archived ---


def test_dropped_rows_are_in_the_file_and_the_rest_verifies(log, folder, checkpoint_file):
    before = {(row.chain, row.seq): row.hash for row in AuditEvent.objects.all()}

    sealed = prune(folder, RUN, OTHER)

    with gzip.open(folder / sealed.statement["file"], "rt") as file:
        rows = [json.loads(line) for line in file][:-1]
    assert {(row["chain"], row["seq"]): row["hash"] for row in rows}.items() <= before.items()
    assert {row["chain"] for row in rows} == {RUN, OTHER}
    assert set(AuditEvent.objects.values_list("chain", flat=True)) == {SYSTEM_CHAIN, OPEN}
    assert not SkillAudit.objects.exists()
    report = verified(checkpoint_file)
    assert report.problems == []
    assert report.archived == len(rows)


def test_rows_of_system_are_dropped_by_range_and_verification_goes_on_at_the_seam(log, folder, checkpoint_file):
    prune(folder, RUN, OTHER, system=True)

    seqs = list(AuditEvent.objects.filter(chain=SYSTEM_CHAIN).order_by("seq").values_list("seq", flat=True))
    assert seqs[0] > 1
    assert verified(checkpoint_file).problems == []
    record_session("cc9e6679-7425-40de-944b-e07fc1f90ae7")
    recorder.close_chain(OPEN, now=later(90))
    write_checkpoint(now=later(100))
    assert verified(checkpoint_file).problems == []
    assert verify_chain(OPEN).problems == []
    assert chain_fault(OPEN, signed_rows()) == ""


def test_chain_that_is_still_open_is_carried_over_the_seam(log, folder):
    sealed = prune(folder, RUN, OTHER, system=True)

    assert list(sealed.statement["carried"]) == [OPEN]
    remove_rows = AuditEvent.objects.filter(chain=OPEN)
    models.remove(connection)
    remove_rows.delete()
    assert [problem.chain for problem in verify_log().problems] == [OPEN]


def test_checkpoints_name_the_same_log_and_count_dropped_rows(log, folder, checkpoint_file):
    first = write_checkpoint(now=later(71))
    prune(folder, RUN, OTHER, system=True)
    last = write_checkpoint(now=AFTER)

    assert last["log"] == first["log"]
    assert last["rows"] == first["rows"] + 5  # the events of two seals and three checkpoints
    assert list(last["open"]) == [OPEN]


def test_open_chains_are_found_without_the_checkpoint_file(log, folder, checkpoint_file):
    prune(folder, RUN, OTHER, system=True)
    checkpoint_file.unlink()

    assert list(write_checkpoint(now=AFTER)["open"]) == [OPEN]


def test_replaced_keys_are_still_told(log, folder, settings):
    replace_key(NEW_SECRET, by="user:1", now=later(75))
    former = Client().get("/.well-known/lqops-audit-key").json()["former"]
    settings.LQOPS_AUDIT_KEY = NEW_SECRET

    prune(folder, RUN, system=True)

    assert former
    assert Client().get("/.well-known/lqops-audit-key").json()["former"] == former


def test_seals_of_a_replaced_key_stay_genuine(log, folder, settings, checkpoint_file):
    prune(folder, RUN)
    replace_key(NEW_SECRET, by="user:1", now=AFTER)
    settings.LQOPS_AUDIT_KEY = NEW_SECRET

    assert verified(checkpoint_file).problems == []
    prune(folder, OTHER)
    assert verify_log().problems == []  # the new seal names the old one


def test_where_a_run_is_archived_is_known(log, folder):
    sealed = prune(folder, RUN)
    last = SealedChain.objects.get(chain=RUN)

    found = archived(RUN)

    assert (found.file, found.sha256) == (sealed.statement["file"], sealed.statement["sha256"])
    assert (found.last_seq, found.last_hash) == (last.last_seq, last.last_hash)
    assert archived(OPEN) is None


def test_nothing_is_added_to_an_archived_chain(log, folder):
    prune(folder, RUN)

    with pytest.raises(recorder.ArchivedChain):
        append(RUN, "session.paused", now=AFTER, details={"idle_seconds": 1})


# --- What is not ---


def test_open_chain_cannot_be_archived(log):
    assert chain_fault(OPEN, {}) == "its chain is not closed"
    assert chain_fault(RUN, signed_rows()) == ""


@pytest.mark.usefixtures("unguarded")
def test_changed_chain_cannot_be_archived(log, folder):
    edit(RUN, 2, actor="user:8")
    assert "was changed" in chain_fault(RUN, {})
    with pytest.raises(ArchiveError, match="was changed"):
        seal(folder, RUN)
    assert not Seal.objects.exists()


@pytest.mark.usefixtures("unguarded")
def test_row_other_than_a_checkpoint_signed_cannot_be_archived(log, folder):
    signed = AuditEvent.objects.filter(chain=SYSTEM_CHAIN).count() - 1  # the last row is the checkpoint's own event
    edit(SYSTEM_CHAIN, signed, actor="user:8")
    hash_chain_again(SYSTEM_CHAIN)
    append(SYSTEM_CHAIN, "audit.exported", now=later(79), details={"format": "csv"})
    append(SYSTEM_CHAIN, "audit.exported", now=later(200), details={"format": "csv"})

    with pytest.raises(ArchiveError, match="checkpoint signed"):
        seal_system(folder)


def test_the_newest_row_of_system_stays(log):
    assert system_end(AFTER, after=0) == chain_head(SYSTEM_CHAIN).seq - 1
    assert system_end(later(-1), after=0) == 0


# --- Who may delete ---


def attempt(statement):
    with pytest.raises(DatabaseError, match=models.MESSAGE), transaction.atomic():
        sql(statement)


def test_rows_that_no_seal_covers_cannot_be_deleted(log, folder):
    seal(folder, RUN)
    if connection.vendor == "postgresql":
        sql(f"SELECT set_config('{models.SEAL_SETTING}', '1', true)")

    attempt("DELETE FROM audit_auditevent")
    attempt(f"DELETE FROM audit_auditevent WHERE chain = '{OTHER}'")
    attempt("DELETE FROM audit_auditevent WHERE chain = 'system'")
    attempt("DELETE FROM audit_seal")
    attempt("DELETE FROM audit_sealedchain")
    attempt(f"UPDATE audit_auditevent SET actor = 'user:8' WHERE chain = '{RUN}'")
    attempt("UPDATE audit_seal SET event_seq = 1")
    attempt("UPDATE audit_sealedchain SET last_seq = 1000")


def test_ranges_without_a_recorded_seal_allow_nothing(log):
    """Somebody writes the rows of a seal, but no event of `system` names it."""
    seal = Seal.objects.create(number=1, statement={}, digest="", event_seq=1)
    SealedChain.objects.create(seal=seal, chain=RUN, first_seq=1, last_seq=99, first_hash="", last_hash="")
    if connection.vendor == "postgresql":
        sql(f"SELECT set_config('{models.SEAL_SETTING}', '1', true)")

    attempt(f"DELETE FROM audit_auditevent WHERE chain = '{RUN}'")


if connection.vendor == "postgresql":  # SQLite has no settings of a transaction

    def test_transaction_that_names_no_seal_or_another_one_deletes_nothing(log, folder):
        seal(folder, RUN)
        attempt(f"DELETE FROM audit_auditevent WHERE chain = '{RUN}'")
        sql(f"SELECT set_config('{models.SEAL_SETTING}', '2', true)")
        attempt(f"DELETE FROM audit_auditevent WHERE chain = '{RUN}'")


# --- Tampering ---


def forge_seal(chain):
    """What somebody with the database, but without the key, can write: a seal of their own, with an event."""
    rows = AuditEvent.objects.filter(chain=chain).order_by("seq")
    first, last = rows.first(), rows.last()
    genuine = Seal.objects.order_by("-number").first()
    number = genuine.number + 1
    statement = {**genuine.statement, "n": number, "prev": genuine.digest, "events": last.seq}
    head = append(SYSTEM_CHAIN, "audit.sealed", now=AFTER, details={"seal": number, "events": 1, "chains": 1})
    seal = Seal.objects.create(number=number, statement=statement, digest="0" * 64, event_seq=head.seq)
    SealedChain.objects.create(
        seal=seal, chain=chain, first_seq=1, last_seq=last.seq, first_hash=first.hash, last_hash=last.hash
    )
    DroppedSegment.objects.create(seal=seal, events=last.seq, at=AFTER)


def drop_a_range():
    SealedChain.objects.filter(chain=RUN).delete()


def widen_a_range():
    SealedChain.objects.filter(chain=RUN).update(last_seq=99)


def forge():
    forge_seal(OTHER)
    remove(chain=OTHER)


def change_statement():
    seal = Seal.objects.get(number=1)
    seal.statement["file"] = "other.jsonl.gz"
    seal.save()


def drop_a_seal():
    DroppedSegment.objects.all().delete()
    SealedChain.objects.all().delete()
    Seal.objects.all().delete()


TAMPERINGS = {
    "chain that was not archived": lambda: remove(chain=OTHER),
    "last rows of a chain": lambda: remove(chain=OTHER, seq__gt=2),
    "rows of system": lambda: remove(chain=SYSTEM_CHAIN, seq=chain_head(SYSTEM_CHAIN).seq - 1),
    "first row of system after the seam": lambda: remove(chain=SYSTEM_CHAIN, seq=newest_seam().system_seq + 1),
    "a range of a seal": drop_a_range,
    "a wider range": widen_a_range,
    "a forged seal": forge,
    "a changed statement": change_statement,
    "all seals": drop_a_seal,
    "rows in an archived chain": lambda: record_into(RUN),
}


def record_into(chain):
    values = AuditEvent.objects.filter(chain=OPEN, seq=1).values().get()
    AuditEvent.objects.create(**{**values, "id": None, "chain": chain})
    hash_again(chain, 1)


@pytest.mark.sampled(6)
@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("tamper", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_is_found_across_the_seam(log, folder, checkpoint_file, tamper):
    record_session("dd9e6679-7425-40de-944b-e07fc1f90ae7")
    prune(folder, RUN)
    end = AuditEvent.objects.filter(chain=SYSTEM_CHAIN, kind="audit.chain_opened").order_by("seq").first().seq
    drop(archive([(SYSTEM_CHAIN, end)], folder=folder, agreed={}, by="user:1", now=AFTER), folder=folder, now=AFTER)
    write_checkpoint(now=AFTER)
    assert verified(checkpoint_file).problems == []

    tamper()

    assert not verified(checkpoint_file).verified


def sign_again(number, secret="", **changes):
    """Change a seal and sign it, with the key of the installation or another one."""
    seal = Seal.objects.get(number=number)
    said = {name: value for name, value in seal.statement.items() if name != "signature"}
    seal.statement = signed({**said, **changes}, secret)
    seal.digest = digest(seal.statement)
    seal.save()


def forget(number):
    DroppedSegment.objects.filter(seal_id=number).delete()
    SealedChain.objects.filter(seal_id=number).delete()
    Seal.objects.filter(number=number).delete()


FORGERIES = {
    "first seal is gone": (lambda: forget(1), "it is missing"),
    "seal between others is gone": (lambda: forget(2), "it is missing"),
    "other statement, signed": (lambda: sign_again(2, at="2026-01-01T00:00:00+00:00"), "seal after it names"),
    "first one with something before it": (lambda: sign_again(1, prev="0" * 63 + "1"), "does not start from nothing"),
    "other number of events, signed": (lambda: sign_again(3, events=1), "another number of events"),
    "rows of system left out": (
        lambda: SealedChain.objects.filter(chain=SYSTEM_CHAIN).update(first_seq=2),
        "rows of `system` do not follow row 0",
    ),
}


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize(("forgery", "told"), FORGERIES.values(), ids=FORGERIES)
def test_forged_seals_are_found(log, folder, checkpoint_file, forgery, told):
    prune(folder, RUN)
    prune(folder, OTHER, system=True)
    assert verified(checkpoint_file).problems == []

    forgery()

    assert any(told in fault.what for fault in seal_faults())
    assert not verified(checkpoint_file).verified


@pytest.mark.usefixtures("unguarded")
def test_seal_of_a_foreign_key_is_found(log, folder):
    prune(folder, RUN)
    sign_again(1, NEW_SECRET)

    assert ["a key that is not one of this installation" in fault.what for fault in seal_faults()] == [True]
    assert list(seal_faults({public_key(NEW_SECRET)})) == []


def say(number, statement):
    """Somebody with the database writes another statement into a seal."""
    sql("UPDATE audit_seal SET statement = %s WHERE number = %s", json.dumps(statement), number)


def without(said, name):
    return {key: value for key, value in said.items() if key != name}


MALFORMED = {
    "empty object": lambda _: {},
    "list": lambda _: [],
    "null": lambda _: None,
    "text": lambda _: "x",
    "nothing carried": lambda said: without(said, "carried"),
    "list of what is carried": lambda said: {**said, "carried": []},
    "two values carried": lambda said: {**said, "carried": {OPEN: ["", 1]}},
    "no place in system": lambda said: {**said, "system": []},
    "text for a place in system": lambda said: {**said, "system": "x"},
    "number for keys": lambda said: {**said, "keys": 1},
    "other number": lambda said: {**said, "n": 99},
    "no signature": lambda said: without(said, "signature"),
    "text for rows without an event": lambda said: {**said, "unlinked": "x"},
    "rows without a digest": lambda said: {**said, "unlinked": [{"a": 1}]},
    "signed by somebody else": lambda _: signed({}, NEW_SECRET),
}


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
def test_malformed_seal_is_told_as_changed(log, folder, malformed):
    number = prune(folder, RUN, system=True).number
    assert run("verify_audit", "--archive", str(folder))[0] == 0

    say(number, malformed(Seal.objects.get(number=number).statement))

    for options in ([], ["--archive", str(folder)]):
        code, out, _ = run("verify_audit", *options)
        assert (code, f"Bad: seal {number}: it was changed, or its signature is wrong" in out) == (1, True), out
        code, out, _ = run("verify_audit", "--json", *options)
        texts = [problem["text"] for problem in json.loads(out)["problems"]]
        assert (code, f"seal {number}: it was changed, or its signature is wrong" in texts) == (1, True), texts


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("command", ["checkpoint_audit", "export_audit"])
def test_commands_that_need_the_newest_seal_say_that_it_cannot_be_read(log, folder, command):
    number = prune(folder, RUN, system=True).number
    say(number, {})

    code, _, said = run(command)

    assert (code != 0, f"seal {number} was changed: its statement cannot be read" in said) == (True, True), said


# --- Runs whose beginning or end stands in rows of `system` that were archived before them ---


def test_run_that_was_closed_in_archived_rows_is_verified_and_archived_by_what_the_seal_carries(
    log, folder, checkpoint_file
):
    prune(folder, system=True)
    assert verified(checkpoint_file).problems == []
    assert (chain_fault(RUN, signed_rows()), verify_chain(OTHER).problems) == ("", [])

    prune(folder, RUN)

    assert verified(checkpoint_file).problems == []


@pytest.mark.usefixtures("unguarded")
def test_beginning_that_a_seal_no_longer_names_is_missed(log, folder):
    prune(folder, system=True)
    carried = Seal.objects.get().statement["carried"]
    sign_again(1, carried={chain: ["", *end] for chain, (_, *end) in carried.items()})

    found = {problem.chain for problem in verify_log().problems if problem.what == "no row in `system` opens it"}
    assert {RUN, OTHER} <= found


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("changed", ["first_hash", "last_hash"])
def test_dropped_run_with_another_beginning_or_end_than_system_names_is_found(log, folder, changed):
    prune(folder, RUN)
    SealedChain.objects.filter(chain=RUN).update(**{changed: "0" * 64})

    assert RUN in {problem.chain for problem in verify_log().problems}


def test_seals_and_what_they_hold_have_names_that_people_can_read(log, folder):
    sealed = prune(folder, RUN)
    held = sealed.chains.get()

    waiting = PendingEvent(kind="audit.exported", at=AFTER)
    assert [str(row) for row in (sealed, held, sealed.dropped, waiting)] == [
        "seal 1",
        f"{RUN} 1 to {held.last_seq}",
        f"segment 1, dropped {AFTER:%Y-%m-%d}",
        f"audit.exported of {AFTER:%Y-%m-%d %H:%M:%S}",
    ]


def test_older_skill_audits_stay_accounted_for(log, folder, checkpoint_file):
    sealed = {"rows": 2, "digest": "0" * 64}
    append(SYSTEM_CHAIN, "audit.skill_audits_sealed", now=later(72), details=sealed)
    append(SYSTEM_CHAIN, "audit.exported", now=later(73), details={"format": "csv"})
    append(SYSTEM_CHAIN, "audit.exported", now=later(200), details={"format": "csv"})

    prune(folder, RUN, system=True)

    assert newest_seam().unlinked == (sealed,)


# --- Files ---


@pytest.mark.usefixtures("unguarded")
def test_nothing_is_dropped_if_rows_differ_from_the_file_or_the_seal(log, folder):
    sealed = seal(folder, RUN)
    sealed.statement["events"] += 1
    with pytest.raises(ArchiveError, match="is for"):
        drop(sealed, folder=folder, now=AFTER)
    sealed.refresh_from_db()
    edit(RUN, 2, actor="user:8")
    with pytest.raises(ArchiveError, match="differ"):
        drop(sealed, folder=folder, now=AFTER)
    assert AuditEvent.objects.filter(chain=RUN).exists()


def test_rows_that_are_not_there_are_not_archived(log, folder):
    with pytest.raises(ArchiveError, match="its rows up to 99 are not there"):
        archive([(RUN, 99)], folder=folder, agreed={}, by="user:1", now=AFTER)
    assert not Seal.objects.exists()


def test_seal_whose_number_another_process_took_meanwhile_is_refused_in_words(log, folder, tmp_path, checkpoint_file):
    def meanwhile(_chains):
        with archive_folder(tmp_path / "other") as other:
            prune(other, OTHER)
        yield from ()

    content = Content(lines=meanwhile, drop=lambda _ranges, _now: None)
    with pytest.raises(ArchiveError, match=r"another process prunes into another folder\. Nothing was dropped"):
        archive(whole(RUN), folder=folder, agreed=signed_rows(), by="user:1", now=AFTER, content=content)

    assert list(SealedChain.objects.values_list("seal", "chain")) == [(1, OTHER)]
    assert AuditEvent.objects.filter(kind="audit.sealed").count() == 1
    assert verified(checkpoint_file).problems == []
    assert prune(folder, RUN).number == 2


def test_file_that_cannot_be_written_gives_its_space_back(log, folder, monkeypatch):
    def full_disk():
        yield "{}\n"
        assert [path.name for path in folder.glob(".*.part")] == [".audit-000001.part"]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_file(folder, "audit-000001", full_disk())
    assert [path.name for path in folder.iterdir()] == [".lock"]

    monkeypatch.setattr(segments.os, "fsync", lambda _: next(broken_disk))
    broken_disk = full_disk()
    next(broken_disk)
    with pytest.raises(OSError, match="No space left"):
        seal(folder, RUN)
    assert [path.name for path in folder.iterdir()] == [".lock"]
    assert not Seal.objects.exists()


def test_file_that_the_disk_changed_is_not_sealed(log, folder, monkeypatch):
    with gzip.open(folder / "other.gz", "wb") as file:
        file.write(b"something else")
    real = gzip.open
    monkeypatch.setattr(segments.gzip, "open", lambda path, mode: real(folder / "other.gz", mode))

    with pytest.raises(ArchiveError, match="does not hold what was written"):
        seal(folder, RUN)
    assert not Seal.objects.exists()


def test_file_with_rows_other_than_a_checkpoint_signed_is_found(log, folder, checkpoint_file):
    prune(folder, RUN)
    report = verified(checkpoint_file)
    verify_archive(folder, report, agreed={(RUN, 2): "0" * 64})
    assert [problem.what for problem in report.problems if "holds another row 2" in problem.what]


def test_files_of_the_archive_are_verified(log, folder, checkpoint_file):
    prune(folder, RUN, OTHER, system=True)
    report = verified(checkpoint_file)

    verify_archive(folder, report, agreed=signed_rows())

    assert report.problems == []
    assert report.files == 3


def test_missing_and_changed_files_are_found(log, folder, checkpoint_file):
    first, second = prune(folder, RUN), prune(folder, OTHER)
    (folder / first.statement["file"]).unlink()
    (folder / second.statement["file"]).write_bytes(b"x")
    report = verified(checkpoint_file)

    verify_archive(folder, report, agreed={})

    assert [str(problem).split(" ")[:2] for problem in report.problems] == [["seal", "1:"], ["seal", "2:"]]


def test_only_files_that_are_right_are_counted_as_verified(log, folder, checkpoint_file):
    first, second, third = prune(folder, RUN), prune(folder, OTHER), prune(folder, system=True)
    (folder / first.statement["file"]).unlink()
    (folder / second.statement["content_file"]).write_bytes(b"x")

    def files(agreed):
        report = verified(checkpoint_file)
        verify_archive(folder, report, agreed=agreed)
        return report.files, [problem.chain for problem in report.problems]

    assert files(signed_rows()) == (3, ["seal:1", "seal:2"])
    assert files({(SYSTEM_CHAIN, 1): "0" * 64}) == (2, ["seal:1", "seal:2", f"seal:{third.number}"])
    assert json.loads(run("verify_audit", "--json", "--archive", str(folder))[1])["files"] == 3


def test_command_verifies_the_archive(log, folder, capsys, checkpoint_file):
    sealed = prune(folder, RUN)

    call_command("verify_audit", archive=folder)
    assert "files of it verified: 2" in capsys.readouterr().out

    (folder / sealed.statement["file"]).unlink()
    with pytest.raises(SystemExit):
        call_command("verify_audit", archive=folder, json=True)
    assert json.loads(capsys.readouterr().out)["problems"][0]["text"].endswith("is missing")


def test_file_is_verified_by_anybody_with_the_key(log, folder, checkpoint_file):
    for sealed in (prune(folder, RUN, OTHER), prune(folder, system=True)):
        file = folder / sealed.statement["file"]
        code, out, errors = verify_file(file, "--kept", checkpoint_file, run_by=run_process)
        assert (code, errors) == (0, "")
        assert f"segment {sealed.number} of the archive" in out


def test_changed_files_are_refused_without_lqops(log, folder, tmp_path):
    sealed = prune(folder, RUN, OTHER)
    with gzip.open(folder / sealed.statement["file"], "rt") as file:
        lines = file.readlines()
    changed = {
        "an event": [lines[0].replace("user:7", "user:8"), *lines[1:]],
        "a cut": lines[:-1],
        "a removed row": [lines[0], *lines[2:]],
        "another order": [*lines[1:-1], lines[0], lines[-1]],
    }
    for name, text in changed.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(text))
        assert verify_file(path)[0] == 1, name


def test_compressed_file_with_a_flipped_byte_is_refused_without_lqops(log, folder, tmp_path):
    intact = (folder / prune(folder, RUN, OTHER).statement["file"]).read_bytes()
    path = tmp_path / "flipped.jsonl.gz"
    broken = b""
    for at in range(20, len(intact) - 8, 10):
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 0xFF]) + intact[at + 1 :])
        code, out, errors = verify_file(path)
        assert (code, out, errors.startswith("Refused: ")) == (1, "", True), at
        broken = path.read_bytes() if "while decompressing" in errors else broken
    path.write_bytes(broken)  # zlib itself cannot go on
    code, _, errors = verify_file(path, run_by=run_process)
    assert (code, errors.startswith("Refused: Error -3 while decompressing")) == (1, True), errors


def test_row_other_than_a_kept_checkpoint_signed_is_refused(log, folder, checkpoint_file, tmp_path):
    kept = tmp_path / "kept.jsonl"
    line = json.loads(checkpoint_file.read_text().splitlines()[0])
    line["system"]["hash"] = "0" * 64
    kept.write_text(json.dumps(line) + "\n")

    _, _, errors = verify_file(folder / prune(folder, RUN, OTHER, system=True).statement["file"], "--kept", kept)

    assert "kept checkpoint" in errors


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("chain", ["", SYSTEM_CHAIN, OPEN])
def test_export_after_pruning_is_verified_by_anybody_with_the_key(log, folder, tmp_path, form, chain):
    prune(folder, RUN, OTHER, system=True)
    path = tmp_path / f"export.{form}"
    path.write_text("".join(export_log(Selection(chain=chain), form=form, by="user:1", now=AFTER)))

    code, _, errors = verify_file(path)

    assert (code, errors) == (0, "")


@pytest.mark.parametrize("selection", [Selection(), Selection(chain=OPEN), Selection(kind="audit.chain_opened")])
def test_export_during_which_a_segment_is_dropped_has_no_manifest(log, folder, tmp_path, selection):
    sealed = seal(folder, RUN)
    path = tmp_path / "export.jsonl"
    lines = export_log(selection, form="jsonl", by="user:1", now=AFTER)
    written = [next(lines)]
    drop(sealed, folder=folder, now=AFTER)

    with pytest.raises(UnreadableRow, match="archived while they were exported"):
        written.extend(lines)

    path.write_text("".join(written))
    assert verify_file(path)[2] == "Refused: there is no manifest: the end was cut off\n"
    path.write_text("".join(export_log(selection, form="jsonl", by="user:1", now=AFTER)))
    assert verify_file(path)[0] == 0


@pytest.mark.usefixtures("unguarded")
def test_export_of_a_log_with_a_dropped_chain_is_refused(log, folder, tmp_path):
    prune(folder, RUN, system=True)
    remove(chain=OTHER)
    path = tmp_path / "export.jsonl"
    path.write_text("".join(export_log(Selection(), form="jsonl", by="user:1", now=AFTER)))

    assert verify_file(path)[0] == 1


# --- Interrupted ---


def test_sealed_segment_is_dropped_later(log, folder, checkpoint_file):
    seal(folder, RUN)
    assert verified(checkpoint_file).problems == []
    with pytest.raises(ArchiveError, match="not dropped yet"):
        seal(folder, OTHER)

    for one in unfinished():
        drop(one, folder=folder, now=AFTER)

    assert verified(checkpoint_file).problems == []
    assert not AuditEvent.objects.filter(chain=RUN).exists()


def test_nothing_is_dropped_if_the_file_is_missing_or_differs(log, folder):
    sealed = seal(folder, RUN)
    path = folder / sealed.statement["file"]
    text = path.read_bytes()
    path.write_bytes(text + b"x")
    with pytest.raises(ArchiveError, match="was changed"):
        drop(sealed, folder=folder, now=AFTER)
    path.unlink()
    with pytest.raises(ArchiveError, match="is missing"):
        drop(sealed, folder=folder, now=AFTER)
    assert AuditEvent.objects.filter(chain=RUN).exists()
    path.write_bytes(text)
    drop(sealed, folder=folder, now=AFTER)


def test_two_processes_do_not_archive_to_one_folder(folder):
    with pytest.raises(ArchiveError, match="Another process"), archive_folder(folder):
        pass


def test_half_written_files_are_removed(tmp_path):
    (tmp_path / ".audit-000001.part").write_bytes(b"x")
    with archive_folder(tmp_path):
        assert not list(tmp_path.glob(".*.part"))


def test_checkpoint_follows_the_seal(log, folder, checkpoint_file):
    sealed = seal(folder, RUN)

    newest = list(read_lines(checkpoint_file))[-1].checkpoint
    assert newest["system"]["seq"] == sealed.event_seq
