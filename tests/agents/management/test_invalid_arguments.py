"""Invalid arguments of every command: a short message and an exit code, never a traceback."""

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

from audit.management.base import brief
from lqops import cli
from tests.factories import make_user

pytestmark = pytest.mark.django_db
LONG, NOBODY = "x" * 100_000, "00000000-0000-0000-0000-000000000000"
BRIEF = 3_000  # the options of a command are told with what is wrong
RUBBISH = ("", " ", LONG, "-1", "9" * 400, "nan", "\u202e", "💥", NOBODY, "'; DROP TABLE x; --", "%s", "{}")
FILES = {
    "bytes.yaml": b"\xff\xfe\x00\x80",
    "latin.yaml": "name: Müller".encode("cp1252"),
    "empty.yaml": b"",
    "nul.yaml": b"a: \0",
}
NAMING = [
    ["add_document", "--owner", "ada", "--collection={}", "file"],
    ["add_document", "--owner={}", "--collection=x", "file"],
    ["agent", "start", "--", "{}"],
    ["answer", "--user", "ada", "--", NOBODY, "{}"],
    ["api_key", "create", "--name", "x", "--", "{}"],
    ["api_key", "revoke", "--", "{}"],
    ["approve", "--user", "ada", "--", "{}"],
    ["ask", "--user={}", "hello"],
    ["ask", "--user", "ada", "--chat={}", "hello"],
    ["audit", "--limit={}"],
    ["audit", "--receipt={}"],
    ["deny", "--user", "ada", "--", "{}"],
    ["export_agent", "--", "{}"],
    ["export_audit", "--chain={}"],
    ["export_audit", "--since={}"],
    ["export_playbook", "--owner", "ada", "--", "{}"],
    ["halt", "--", "{}"],
    ["halt", "--agent={}"],
    ["opt_in", "--", "{}"],
    ["release", "--user={}"],
    ["run_now", "--owner", "ada", "--playbook={}"],
    ["run_now", "--owner", "ada", "--goal", "x", "--document={}"],
    ["run_now", "--owner", "ada", "--goal", "x", "--collection={}"],
    ["run_now", "--owner", "ada", "--goal", "x", "--agent={}"],
    ["run_now", "--owner", "ada", "--goal", "x", "--max-cost={}"],
    ["skills", "set", "--user", "ada", "--disabled", "--", "{}"],
    ["triggers", "--owner={}"],
]
READING = [["add_document", "--owner", "ada", "--collection", "x", "--create"], ["check_agents"], ["load_agents"],
           ["import_playbook", "--owner", "ada"]]  # fmt: skip


def refused(arguments):
    """The error of the command; anything but a CommandError would be a traceback."""
    with pytest.raises(CommandError) as caught:
        call_command(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("arguments", NAMING, ids=" ".join)
def test_unknown_names_are_refused_with_a_message(arguments):
    make_user(username="ada", is_superuser=True)
    for rubbish in RUBBISH:
        filled = [part.replace("{}", rubbish) for part in arguments]
        assert 0 < len(refused(filled)) < BRIEF, rubbish


def test_invalid_option_is_quoted_shortened(capsys):
    for given in (
        ["audit", f"--limit={LONG}"],
        ["api_key", "list", "ada", LONG],
        ["api_key", "create", "ada", "--name", "x", "--scope", LONG],
        ["up", "--port", LONG],
    ):
        with pytest.raises(SystemExit):
            execute_from_command_line(["manage.py", *given])
        error_text = capsys.readouterr().err
        assert "xxx…" in error_text
        assert len(error_text) < BRIEF, given


@pytest.mark.parametrize(
    "arguments", [["check_agents"], ["add_document", "--owner", "ada", "--collection", "x", "--create"]]
)
def test_too_long_file_name_is_quoted_shortened(arguments, capsys):
    make_user(username="ada", is_superuser=True)
    assert refused([*arguments, LONG])
    assert len(capsys.readouterr().out) < BRIEF


@pytest.mark.parametrize(
    ("odd", "error_text"), [("\n" * 300, "\\n\\n…"), ("x" * 200, "x'"), (["y" * 300], "yyy…"), (7, "has nothing")]
)
def test_every_form_of_quoting_is_shortened(odd, error_text):
    quoted = odd[0] if isinstance(odd, list) else odd
    message = brief(f"There is no {quoted!r}: 7 has nothing of it", [odd])
    assert error_text in message
    assert len(message) < 300


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_unreadable_files_are_refused_with_a_message(arguments, tmp_path):
    make_user(username="ada", is_superuser=True)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "circle.yaml").symlink_to(tmp_path / "circle.yaml")
    for name in (*FILES, "folder.yaml", "circle.yaml", "absent.yaml", LONG):
        if arguments[0] != "add_document" or name not in FILES:  # which takes texts of any kind
            assert refused([*arguments, str(tmp_path / name)]), name


@pytest.mark.parametrize(
    ("given", "raised"), [("\udcff", SystemExit), ("ada", UnicodeEncodeError)], ids=["no text", "text"]
)
def test_only_undecodable_arguments_are_blamed(monkeypatch, given, raised):
    monkeypatch.setattr(cli, "execute_from_command_line", lambda argv: "\udcff".encode())
    monkeypatch.setattr(cli, "private_process", lambda: None)
    monkeypatch.setattr(cli.gc, "freeze", lambda: None)
    monkeypatch.setattr(cli.sys, "argv", ["manage.py", "halt", given])

    with pytest.raises(raised, match=r"udcff"):
        cli.main()
