"""Invalid arguments of every command: a message and an exit code, never a traceback."""

import pytest
from django.core.management import CommandError, call_command

from lqops import cli
from tests.factories import make_user

pytestmark = pytest.mark.django_db
LONG, NOBODY = "x" * 1_000, "00000000-0000-0000-0000-000000000000"
RUBBISH = ("", " ", "-1", "9" * 400, "nan", "\u202e", "💥", NOBODY, "'; DROP TABLE x; --", "%s", "{}")
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


@pytest.mark.sampled(14)
@pytest.mark.parametrize("arguments", NAMING, ids=" ".join)
def test_unknown_names_are_refused_with_a_message(arguments):
    make_user(username="ada", is_superuser=True)
    for rubbish in RUBBISH:
        filled = [part.replace("{}", rubbish) for part in arguments]
        assert refused(filled), rubbish


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


def test_argument_that_is_not_utf8_is_refused_with_a_message(monkeypatch):
    monkeypatch.setattr(cli, "private_process", lambda: None)
    monkeypatch.setattr(cli.sys, "argv", ["manage.py", "halt", "\udcff"])
    with pytest.raises(SystemExit, match=r"udcff.*is not valid UTF-8"):
        cli.main()
