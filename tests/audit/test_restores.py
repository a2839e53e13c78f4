"""A restore from a backup is accepted once, by name and with a reason; no other tampering passes with it."""

import json

import pytest
from django.contrib.auth import get_user_model

from audit import checkpoints, restores
from audit.checkpoints import write_checkpoint
from audit.keys import signed
from audit.management.commands import verify_audit
from audit.models import SYSTEM_CHAIN, AuditEvent
from audit.rows import canonical
from audit.verify import verify_log
from tests.audit.samples import RUN, call, edit, hash_chain_again, later, record_session, remove, start
from tests.audit.test_commands import run

pytestmark = pytest.mark.django_db

CLOSED, LOST = "closed-run", "lost-run"
ACCEPT = ("verify_audit", "--accept-restore", "--by", "op", "--reason", "disk failed")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time of the commands: after everything else."""
    monkeypatch.setattr(verify_audit, "utc_now", lambda: later(2_000))


@pytest.fixture(autouse=True)
def operator(db):
    return get_user_model().objects.create_user("op")


@pytest.fixture
def history(unguarded, checkpoint_file):
    """Checkpoints 1 and 2, a backup, and checkpoints 3 and 4. Return what restores the backup."""
    record_session(CLOSED)
    start(RUN)
    call(RUN, "started", second=10)
    write_checkpoint(now=later(60))
    call(RUN, "success", second=70)
    write_checkpoint(now=later(120))
    call(RUN, "started", second=130)  # row 4: in the backup, and newer than the checkpoint
    backup = list(AuditEvent.objects.values_list("pk", flat=True))
    call(RUN, "success", second=400)
    start(LOST)
    write_checkpoint(now=later(500))
    call(RUN, "started", second=600)
    call(LOST, "started", second=610)
    write_checkpoint(now=later(700))
    return lambda: AuditEvent.objects.exclude(pk__in=backup).delete()


@pytest.fixture
def restored(history):
    history()


@pytest.fixture
def accepted(restored):
    assert run(*ACCEPT)[0] == 0


def bad_chains(head):
    return {problem.chain for problem in verify_log(head=head).problems}


def test_missing_rows_are_tampering_until_somebody_accepts_the_restore(restored, operator, checkpoint_file):
    assert bad_chains(checkpoint_file) == {RUN, LOST, SYSTEM_CHAIN, None}

    code, out, _ = run(*ACCEPT)

    assert code == 0
    assert out.splitlines()[0] == (
        "Note: restored on 2026-05-04 09:33 UTC by op (disk failed); 6 events missing, among them rows "
        f"{RUN} 5 to 6; lost-run 1 to 2; system 6 to 7"
    )
    assert out.splitlines()[-1].startswith("Verified: ")
    event = AuditEvent.objects.get(kind="audit.restore_accepted")
    assert (event.actor, event.details) == (
        f"user:{operator.pk}",
        {"rows": 6, "chains": 3, "first_line": 3, "last_line": 4},
    )
    assert (
        event.sentence == "A restore from a backup was accepted: 6 events are missing, of 3 signed chains and others."
    )
    report = json.loads(run("verify_audit", "--json")[1])
    assert (report["verified"], report["checkpoints"], len(report["restores"])) == (True, 5, 1)


def test_work_goes_on_after_the_acceptance(accepted, checkpoint_file):
    call(RUN, "success", second=2_100)
    start("next-run")
    write_checkpoint(now=later(2_200))

    assert bad_chains(checkpoint_file) == set()


def test_restore_is_accepted_after_work_has_gone_on(restored, checkpoint_file):
    for second in (900, 910, 920):
        call(RUN, "success", second=second)  # rows 5 to 7 again, with other hashes
    write_checkpoint(now=later(930))
    assert RUN in bad_chains(checkpoint_file)

    code, out, _ = run(*ACCEPT)

    assert (code, f"{RUN} 5 to 6" in out) == (0, True)
    assert bad_chains(checkpoint_file) == set()


def test_second_restore_is_accepted_too(accepted, history, checkpoint_file):
    history()  # the same backup again: the event of the first acceptance is lost, its line is not
    assert bad_chains(checkpoint_file) == {SYSTEM_CHAIN, None}

    assert run(*ACCEPT)[0] == 0

    assert len(verify_log(head=checkpoint_file).restores) == 2
    assert bad_chains(checkpoint_file) == set()


def rewrite(chain, seq):
    edit(chain, seq, actor="user:666")
    hash_chain_again(chain)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("tamper", "chain"),
    [
        (lambda: rewrite(RUN, 2), RUN),  # before the backup, signed by a checkpoint before it
        (lambda: rewrite(RUN, 4), RUN),  # in the gap between the last checkpoint before the backup and the backup
        (lambda: edit(RUN, 4, actor="user:666"), RUN),
        (lambda: remove(chain=CLOSED, seq=7), CLOSED),
        (lambda: remove(chain=RUN, seq=4), RUN),
        (lambda: remove(kind="audit.restore_accepted"), SYSTEM_CHAIN),
        (lambda: rewrite(RUN, 5), RUN),  # after the restore
        (lambda: remove(chain=RUN, seq=6), RUN),
    ],
)
def test_other_tampering_is_found_after_the_acceptance(accepted, checkpoint_file, tamper, chain):
    for second in (2_100, 2_110):
        call(RUN, "success", second=second)
    write_checkpoint(now=later(2_200))
    assert bad_chains(checkpoint_file) == set()

    tamper()

    assert chain in bad_chains(checkpoint_file)
    assert run("verify_audit")[0] == 1


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda: edit(RUN, 1, actor="user:666"), "not only missing rows"),
        (lambda: rewrite(RUN, 2), "is not missing: it has another content"),
        (lambda: call(CLOSED, "success", second=650), "not only missing rows"),
        (lambda: call(RUN, "success", second=650), "a restore loses every row after the backup"),
    ],
)
def test_restore_with_other_tampering_is_not_accepted(restored, checkpoint_file, tamper, says):
    tamper()
    before = checkpoint_file.read_bytes()

    code, _, error = run(*ACCEPT)

    assert (code, says in error) == (1, True), error
    assert checkpoint_file.read_bytes() == before
    assert not AuditEvent.objects.filter(kind="audit.restore_accepted").exists()


def test_rows_cut_from_one_chain_are_no_restore(history, checkpoint_file):
    remove(chain=RUN, seq__gte=5)  # the rows that others wrote meanwhile are still there
    call("third-run", "success", second=650)

    assert "a restore loses every row" in run(*ACCEPT)[2]


def test_forged_acceptance_excuses_nothing(restored, checkpoint_file):
    genuine = checkpoint_file.read_text()
    report = verify_log(head=checkpoint_file)
    wanted = {
        "by": "op",
        "reason": "x",
        "lines": [3, 4],
        "lost": 5,
        "missing": [[named.chain, 1, 99] for named in report.missing],
    }
    last = checkpoints.last_checkpoint()
    digest = checkpoints._sha256(genuine.splitlines()[-1].encode())
    forged = signed({**last, "n": last["n"] + 1, "prev": digest, "restored": wanted}, "a key that the forger made up")
    checkpoint_file.write_text(f"{genuine}{canonical(forged)}\n")
    assert bad_chains(checkpoint_file) >= {RUN, LOST, SYSTEM_CHAIN, None}

    checkpoint_file.write_text(genuine)
    assert run(*ACCEPT)[0] == 0
    lines = checkpoint_file.read_text().splitlines()
    wider = json.loads(lines[-1])
    wider["restored"]["missing"] = [[chain, 1, 99] for chain, _, _ in wider["restored"]["missing"]]
    checkpoint_file.write_text(
        "\n".join([*lines[:-1], json.dumps(wider, sort_keys=True, separators=(",", ":"))]) + "\n"
    )
    assert bad_chains(checkpoint_file) >= {RUN, LOST, SYSTEM_CHAIN, None}

    checkpoint_file.write_text("\n".join([*lines[:2], lines[-1], *lines[2:-1]]) + "\n")  # genuine, moved
    assert bad_chains(checkpoint_file) >= {RUN, LOST, SYSTEM_CHAIN, None}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (ACCEPT[:2], 1, "are used together"),
        (("verify_audit", "--by", "op", "--reason", "x"), 1, "are used together"),
        (("verify_audit", "--accept-restore", "--by", "nobody", "--reason", "x"), 1, "no active user 'nobody'"),
        (ACCEPT, 1, "nothing to accept"),
    ],
)
def test_wrong_use_is_refused_with_the_reason(checkpoint_file, arguments, code, says):
    found = run(*arguments)
    assert (found[0], says in found[2]) == (code, True), found
    start(RUN)
    write_checkpoint(now=later(60))
    assert says in run(*arguments)[2]


def test_acceptance_that_cannot_be_written_is_an_error(restored, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restores, "write_checkpoint", full)
    code, _, error = run(*ACCEPT)
    assert (code, "cannot be written: No space left on device" in error) == (2, True)


def test_long_list_of_chains_is_cut():
    missing = {f"run-{number:02}": (1, number + 1) for number in range(25)}
    text = str(restores.Restore(5, later(0), "op", "why", (3, 4), 325, missing))
    assert text.endswith("run-19 1 to 20 and of 5 more chains")
