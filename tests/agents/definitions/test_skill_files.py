"""Reading a skill's folder: what is read, what is refused, and that nothing outside of the folder ever is."""

import hashlib
import os
from threading import Event, Thread

import pytest

from agents.definitions import skill_files
from agents.definitions.skill_files import MAX_BYTES, MAX_FILES, MAX_SKILL_BYTES, read_skill, skill_names
from agents.exceptions import Invalid
from tests.table import every_row

FULL = """---
name: reader
description: >-
  Reads reports
  and says what is missing.
license: Apache-2.0
compatibility: Needs no network.
metadata:
  version: 1.10
  draft: no
allowed-tools: Read Grep
---
# Read

---

Body.
"""


def refusal(root, name="reader"):
    with pytest.raises(Invalid) as refused:
        read_skill(root, name)
    return str(refused.value)


def test_skill_folder_is_read(root, write_skill):
    folder = write_skill(text="\ufeff" + FULL.replace("\n", "\r\n"))

    skill = read_skill(root, "reader")

    assert (skill.name, skill.folder) == ("reader", str(folder))
    assert skill.description == "Reads reports and says what is missing."
    assert skill.body == "# Read\n\n---\n\nBody."
    assert skill.front_matter == {
        "name": "reader",
        "description": "Reads reports and says what is missing.",
        "license": "Apache-2.0",
        "compatibility": "Needs no network.",
        "metadata": {"version": "1.10", "draft": "no"},
        "allowed-tools": ["Read", "Grep"],
    }


def test_tools_may_be_a_list_and_empty_keys_are_dropped(root, write_skill):
    write_skill(**{"allowed-tools": "[Read, 'Bash(git *)']", "metadata": "", "license": ""})

    front = read_skill(root, "reader").front_matter

    assert front == {"name": "reader", "description": "Reads reports.", "allowed-tools": ["Read", "Bash(git *)"]}


def test_metadata_may_be_without_a_value(root, write_skill):
    write_skill(metadata="{author: }")

    assert read_skill(root, "reader").front_matter["metadata"] == {"author": ""}


def test_digest_covers_sorted_paths_and_contents(root, write_skill):
    folder = write_skill(files={"refs/b.md": b"two", "refs/a.md": b"one", "Z": b""})

    paths = [b"SKILL.md", b"Z", b"refs/a.md", b"refs/b.md"]
    lines = [
        path + b"\0" + hashlib.sha256((folder / os.fsdecode(path)).read_bytes()).hexdigest().encode() + b"\n"
        for path in paths
    ]
    assert read_skill(root, "reader").digest == hashlib.sha256(b"".join(lines)).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "SKILL.md").write_bytes((folder / "SKILL.md").read_bytes() + b" "),
        lambda folder: (folder / "refs/a.md").write_bytes(b"One"),
        lambda folder: (folder / "refs/a.md").rename(folder / "refs/b.md"),
        lambda folder: (folder / "refs/a.md").unlink(),
        lambda folder: (folder / ".hidden").write_bytes(b""),
    ],
)
def test_any_file_change_changes_the_digest(root, write_skill, change):
    folder = write_skill(files={"refs/a.md": b"one"})
    before = read_skill(root, "reader").digest

    change(folder)

    assert read_skill(root, "reader").digest != before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# Just text", "SKILL.md: must start with front matter between two lines of --- (line 1)."),
        ("---\nname: reader\n", "must start with front matter between two lines of ---"),
        ("\n---\nname: reader\n---\nx", "must start with front matter between two lines of ---"),
        ("---\nname: reader\ndescription: d\n---\n \n", "has no text after its front matter (line 4)"),
        ("---\n---\nx", "expected a map with the keys name, description"),
        ("---\n- a\n---\nx", "got a list (line 2)"),
        ("---\ndescription: d\n---\nx", "name: expected a value: name is required; got nothing (line 2)"),
        ("---\nname: reader\n---\nx", "description: expected a value: description is required"),
        ("---\nname: reader\ndescription:\n---\nx", "description is required; got nothing (line 3)"),
        (
            "---\nname: reader\ndescription: ' '\n---\nx",
            'description: expected text that is not empty; got " " (line 3)',
        ),
        ("---\nname: reader\ndescription: [d]\n---\nx", "description: expected text; got a list (line 3)"),
        (
            f"---\nname: reader\ndescription: {'d' * 1025}\n---\nx",
            "description: expected text of at most 1024 characters",
        ),
        ("---\nname: other\ndescription: d\n---\nx", "name: 'other' is not the name of its folder, 'reader' (line 2)"),
        (f"---\nname: reader\ndescription: d\ncompatibility: {'c' * 501}\n---\nx", "at most 500 characters, not 501"),
        (
            "---\nname: reader\ndescription: d\nversion: x\n---\nx",
            "version: expected one of the keys name, description,",
        ),
        (
            "---\nname: reader\ndescription: d\nmetadata: x\n---\nx",
            'metadata: expected a map of names and values; got "x" (line 4)',
        ),
        (
            "---\nname: reader\ndescription: d\nmetadata:\n  a: [b]\n---\nx",
            "metadata.a: expected text; got a list (line 5",
        ),
        (
            "---\nname: reader\ndescription: d\nallowed-tools: {a: b}\n---\nx",
            "allowed-tools: expected a list of tools; got a map",
        ),
        (
            "---\nname: reader\ndescription: d\nallowed-tools: [[a]]\n---\nx",
            "allowed-tools[0]: expected the name of a tool; got a list",
        ),
        (
            "---\nname: reader\ndescription: d\nallowed-tools: [Read, null]\n---\nx",
            "allowed-tools[1]: expected the name of a tool; got nothing (line 4)",
        ),
        ("---\nname: !!python/name:os.system\n---\nx", "SKILL.md: Tags (!) are not read (line 2)"),
        ("---\nname: &a reader\ndescription: *a\n---\nx", "Anchors (&) and aliases (*) are not read (line 2)"),
        ("---\nname: 'reader\n---\nx", "SKILL.md: This is not YAML: found unexpected end of stream"),
        ("---\nname: reader\ndescription: d\n---\na\nb\x00", "the character U+0000 cannot be stored (line 6)"),
        (f"---\nname: reader\ndescription: d\n---\n{'x' * MAX_SKILL_BYTES}", f"the limit is {MAX_SKILL_BYTES}"),
    ],
)
def test_invalid_skill_file_is_refused_with_its_line(root, write_skill, text, says):
    folder = write_skill(text=text)

    reason = refusal(root)

    assert reason.startswith(f"{folder / 'SKILL.md'}: ")
    assert says in reason


def test_invalid_utf8_is_refused(root, write_skill):
    (write_skill() / "SKILL.md").write_bytes(b"---\n\xff")

    assert "SKILL.md: is not UTF-8 text: byte 4" in refusal(root)


@every_row("name", ["..", ".", "a/b", "Reader", "a_b", "-a", "a-", "a--b", "", "x" * 65, "a\nb", "á", "/etc"])
def test_name_must_not_be_a_path(root, name):
    assert "is not a skill name" in refusal(root, name)


def test_limits_of_a_skill_folder_are_enforced(root, write_skill):
    write_skill(files={f"f{number}": b"" for number in range(MAX_FILES)})
    assert f"more than {MAX_FILES} files" in refusal(root)
    write_skill("large", files={"a": b"x" * (MAX_BYTES // 2), "b": b"x" * (MAX_BYTES // 2)})
    assert f"more than {MAX_BYTES} bytes" in refusal(root, "large")
    write_skill("deep", files={"/".join("abcdefghi"): b""})
    assert "8 deep" in refusal(root, "deep")
    folder = write_skill("wide")
    for number in range(100):
        (folder / f"d{number}").mkdir()
    assert "at most 100 folders" in refusal(root, "wide")


def test_folder_without_a_skill_file_is_refused(root):
    (root / "reader").mkdir()

    assert refusal(root) == f"{root / 'reader'}: there is no SKILL.md."
    assert "cannot be opened: No such file or directory" in refusal(root, "absent")


@pytest.mark.parametrize("place", ["SKILL.md", "refs", "refs/a.md", "more"])
def test_no_link_is_followed(root, write_skill, tmp_path, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    folder = write_skill(files={"refs/a.md": b"one"})
    if (folder / place).is_dir():
        (folder / "refs/a.md").unlink()
        (folder / place).rmdir()
    else:
        (folder / place).unlink(missing_ok=True)
    (folder / place).symlink_to(outside if place in {"refs", "more"} else outside / "secret.md")

    assert refusal(root).startswith(f"{folder / place}: cannot be opened: ")
    assert "Symbolic links are not followed." in refusal(root)


def test_linked_folder_is_refused(root, write_skill, tmp_path):
    write_skill().rename(tmp_path / "reader")
    (root / "reader").symlink_to(tmp_path / "reader")

    assert skill_names(root) == ["reader"]
    assert "Symbolic links are not followed." in refusal(root)


def test_pipe_is_refused_without_blocking(root, write_skill):
    os.mkfifo(write_skill() / "pipe")

    assert "pipe: is not a plain file." in refusal(root)


def test_file_name_that_is_not_utf8_is_refused(root, write_skill):
    folder = write_skill()
    (folder / os.fsdecode(b"a\xff")).write_bytes(b"")

    assert r"the file name 'a\udcff' cannot be stored" in refusal(root)


def test_read_error_is_a_refusal(root, write_skill, monkeypatch):
    write_skill()

    def fail(file, most):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(skill_files.os, "read", fail)

    assert refusal(root) == f"{root / 'reader'}: cannot be read: Input/output error."


def test_only_visible_folders_are_listed(root, write_skill):
    write_skill("b")
    write_skill("a")
    (root / ".git").mkdir()
    (root / "README.md").write_text("x")

    assert skill_names(root) == ["a", "b"]
    with pytest.raises(Invalid, match="absent: cannot be read: No such file"):
        skill_names(root / "absent")


def test_file_swapped_during_reading_never_leads_outside(root, write_skill, tmp_path):
    """A file is swapped for a link to a secret, over and over; no reading ever takes the secret in."""
    secret = tmp_path / "secret.md"
    secret.write_bytes(b"secret")
    folder = write_skill(files={"refs.md": b"plain"})
    honest = read_skill(root, "reader").digest
    (tmp_path / "plain.md").write_bytes(b"plain")
    stop = Event()

    def swap():
        while not stop.is_set():
            (tmp_path / "link").symlink_to(secret)
            (tmp_path / "link").replace(folder / "refs.md")
            os.link(tmp_path / "plain.md", tmp_path / "copy")
            (tmp_path / "copy").replace(folder / "refs.md")
            (tmp_path / "copy").unlink(missing_ok=True)

    thread = Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(200):
            try:
                seen.add(read_skill(root, "reader").digest)
            except Invalid:
                seen.add("refused")
    finally:
        stop.set()
        thread.join()

    assert seen <= {honest, "refused"}
    assert honest in seen
