"""The key pair: what is signed, with which key, and how it is replaced."""

import json

import pytest

from audit import checkpoints
from audit.checkpoints import (
    FOREIGN,
    ForeignCheckpoint,
    checkpoint_fault,
    last_checkpoint,
    replace_key,
    write_checkpoint,
)
from audit.keys import is_signed, public_key, signed
from audit.models import AuditEvent
from audit.rows import canonical
from audit.verify import verify_log
from tests.audit.samples import NOW, RUN, call, edit, later, record_session, remove, start
from tests.audit.test_commands import run
from tests.audit.test_export import hmac_of

NEW = "another key, long enough to be one"


def test_key_pair_is_made_from_the_text_of_the_key(settings):
    settings.LQOPS_AUDIT_KEY = "one key"
    first = public_key()
    assert (len(bytes.fromhex(first)), first) == (32, public_key("one key"))
    settings.LQOPS_AUDIT_KEY = "another"
    assert public_key() != first


def test_signature_covers_every_field():
    statement = signed({"n": 1, "at": "now"})
    assert is_signed(statement)
    for name in statement:
        assert not is_signed({**statement, name: "6" * 64})
        assert not is_signed({field: value for field, value in statement.items() if field != name})
    assert not is_signed({**statement, "more": 1})


@pytest.mark.parametrize("change", [{"key": 7}, {"key": "zz"}, {"signature": None}, {"n": float("nan")}])
def test_malformed_statement_is_not_signed(change):
    assert not is_signed({**signed({"n": 1}), **change})


# --- The checkpoint file ---


@pytest.fixture
def head(unguarded, checkpoint_file):
    """Three checkpoints of a chain that runs on."""
    start(RUN)
    for number in range(3):
        call(RUN, "started", call_id=f"call-{number}", second=number)
        write_checkpoint(now=later(number))
    return checkpoint_file


def made_old(head):
    """Lines as older versions wrote them: with an HMAC, and without a key."""
    before, lines = "0" * 64, []
    for line in head.read_text().splitlines():
        old = {name: value for name, value in json.loads(line).items() if name not in {"key", "log", "signature"}}
        old["prev"] = before
        lines.append(canonical({**old, "signature": hmac_of(old)}))
        before = checkpoints._sha256(lines[-1].encode())
    head.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.django_db
def test_lines_of_older_versions_are_continued(head):
    made_old(head)
    assert verify_log(head=head).verified
    assert (write_checkpoint(now=later(9))["n"], last_checkpoint()["n"]) == (4, 4)
    report = verify_log(head=head)
    assert (report.problems, report.checkpoints) == ([], 4)


@pytest.mark.django_db
@pytest.mark.parametrize("line", [0, 1, 2])
def test_changed_line_of_an_older_version_is_found(head, line):
    made_old(head)
    write_checkpoint(now=later(9))
    lines = head.read_text().splitlines()
    lines[line] = canonical({**json.loads(lines[line]), "rows": 1})
    head.write_text("".join(f"{text}\n" for text in lines))
    assert verify_log(head=head).problems[0].line == line + 1


@pytest.mark.django_db
def test_replaced_key_keeps_former_lines_genuine(head, settings):
    made_old(head)
    write_checkpoint(now=later(8))
    old = public_key()
    written = replace_key(NEW, by="command", now=later(9))
    assert (written["n"], written["key"]) == (6, public_key(NEW))
    handed_over = json.loads(head.read_text().splitlines()[4])
    assert (handed_over["key"], handed_over["next_key"]) == (old, public_key(NEW))
    event = AuditEvent.objects.get(kind="audit.key_replaced")
    assert event.details == {"old_key": old, "new_key": public_key(NEW)}

    settings.LQOPS_AUDIT_KEY = NEW
    write_checkpoint(now=later(10))
    report = verify_log(head=head)
    assert (report.problems, report.checkpoints) == ([], 7)

    remove(chain=RUN, seq=4)
    assert {problem.chain for problem in verify_log(head=head).problems} == {RUN}


@pytest.mark.django_db
def test_changed_line_of_a_former_key_is_found(head, settings):
    replace_key(NEW, by="command", now=later(9))
    settings.LQOPS_AUDIT_KEY = NEW
    lines = head.read_text().splitlines()
    lines[2] = canonical({**json.loads(lines[2]), "rows": 1})
    head.write_text("".join(f"{text}\n" for text in lines))
    assert not verify_log(head=head).verified


@pytest.mark.django_db
def test_process_with_the_old_key_writes_nothing_more(head):
    replace_key(NEW, by="command", now=later(9))
    before = head.read_bytes()
    with pytest.raises(ForeignCheckpoint, match="another key"):
        write_checkpoint(now=later(10))
    assert (head.read_bytes(), checkpoint_fault()) == (before, FOREIGN)


@pytest.mark.django_db
def test_lines_of_a_forger_who_names_our_key_as_the_next_are_refused(head):
    """The public key is public: a file of the forger's own may name it, but holds no line signed with it."""
    forged, before = [], "0" * 64
    for line in map(json.loads, head.read_text().splitlines()):
        whole = {name: value for name, value in line.items() if name not in {"key", "signature"}}
        forged.append(canonical(signed({**whole, "prev": before, "next_key": public_key()}, NEW)))
        before = checkpoints._sha256(forged[-1].encode())
    head.write_text("".join(f"{line}\n" for line in forged))
    report = verify_log(head=head)
    assert (report.problems[0].line, report.further, report.checkpoints) == (1, 2, 0)
    assert checkpoint_fault() == FOREIGN


@pytest.mark.django_db
def test_empty_file_holds_nothing(checkpoint_file):
    checkpoint_file.parent.mkdir()
    checkpoint_file.touch()
    assert (verify_log(head=checkpoint_file).verified, last_checkpoint()) == (True, None)


# --- The command ---


@pytest.mark.django_db
def test_key_is_replaced_by_the_command(head, settings, tmp_path):
    file = tmp_path / "audit_key.new"
    code, said, _ = run("replace_audit_key", "--to", str(file))
    assert (code, file.stat().st_mode & 0o777) == (0, 0o600)
    assert public_key(file.read_text()) in said
    settings.LQOPS_AUDIT_KEY = file.read_text()
    assert verify_log(head=head).verified
    code, _, error = run("replace_audit_key", "--to", str(file))
    assert (code, "holds the present key" in error) == (1, True)


@pytest.mark.django_db
@pytest.mark.parametrize(("text", "says"), [("short", "a key needs 32 or more"), (None, "Nothing was replaced")])
def test_key_that_cannot_be_used_is_refused(head, tmp_path, text, says):
    file = tmp_path / "key"
    file.write_text(text) if text else file.mkdir()
    before = head.read_bytes()
    code, _, error = run("replace_audit_key", "--to", str(file))
    assert (code, says in error, head.read_bytes() == before) == (1, True, True)


@pytest.mark.django_db
def test_checkpoint_names_the_audit_log_by_its_first_row(checkpoint_file, unguarded):
    assert write_checkpoint(now=NOW)["log"] == ""
    record_session()
    assert write_checkpoint(now=NOW)["log"] == AuditEvent.objects.get(chain="system", seq=1).hash
    edit("system", 1, hash="6" * 64)
    assert write_checkpoint(now=NOW)["log"] == "6" * 64
