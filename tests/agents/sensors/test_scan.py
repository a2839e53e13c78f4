"""Scanning files: changes are found by content, and no path leads out of the operator's folders."""

import os
import re
import socket
import threading

import pytest

from agents.sensors import watch
from agents.sensors.paths import PathRefused
from agents.sensors.watch import changes, present, scan


@pytest.fixture
def root(tmp_path):
    """An allowed folder, beside one that is not."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    return tmp_path / "inside"


def look(root, path="", before=None):
    return scan(str(root / path), [root], before or {})


def told(before, after):
    return [(one["name"], one["kind"]) for one in changes({"files": before.files, "whole": before.whole}, after)]


# --- Changes ---


def test_files_are_named_relative_to_the_folder(root):
    (root / "a.txt").write_text("a")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "b.txt").write_text("bb")
    found = look(root)

    assert {name: known[0] for name, known in found.files.items()} == {"a.txt": 1, "deep/er/b.txt": 2}
    assert found.folders == (str(root), str(root / "deep"), str(root / "deep" / "er"))


def test_changes_are_added_modified_and_deleted(root):
    for name in ("kept", "changed", "gone"):
        (root / name).write_text(name)
    before = look(root)
    (root / "changed").write_text("something else")
    (root / "gone").unlink()
    (root / "new").write_text("new")
    os.utime(root / "new", (2_000_000_000, 2_000_000_000))

    assert told(before, look(root, before=before.files)) == [
        ("new", "added"),
        ("changed", "modified"),
        ("gone", "deleted"),
    ]


def test_touched_or_identically_replaced_file_is_unchanged(root):
    (root / "a").write_text("same")
    before = look(root)
    os.utime(root / "a")
    (root / "b").write_text("same")
    (root / "b").replace(root / "a")

    assert told(before, look(root, before=before.files)) == []


def test_change_with_an_old_mtime_is_noticed(root):
    (root / "a").write_text("one")
    before = look(root)
    times = (root / "a").stat()
    (root / "a").write_text("two")
    os.utime(root / "a", ns=(times.st_atime_ns, times.st_mtime_ns))

    assert told(before, look(root, before=before.files)) == [("a", "modified")]


def test_first_scan_lists_present_files_newest_first(root):
    for number, name in enumerate("abc"):
        (root / name).write_text("x")
        os.utime(root / name, (number, number))

    assert [(one["name"], one["kind"]) for one in present(look(root))] == [
        ("c", "present"),
        ("b", "present"),
        ("a", "present"),
    ]


def test_unchanged_file_is_not_read_again(root, monkeypatch):
    (root / "a").write_text("x")
    before = look(root)
    monkeypatch.setattr(watch, "_digest", lambda handle: 1 / 0)

    assert look(root, before=before.files).files == before.files


def test_single_small_file_includes_its_text(root):
    (root / "note.txt").write_text("größe")
    (root / "data.bin").write_bytes(b"\xff\xfe")
    (root / "long.txt").write_text("x" * 20_000)

    assert (look(root, "note.txt").text, list(look(root, "note.txt").files)) == ("größe", ["note.txt"])
    assert look(root, "data.bin").text is None
    assert look(root, "long.txt").text is None


def test_nonexistent_path_is_reported_missing(root):
    assert look(root, "absent").missing
    assert look(root, "absent/deeper").missing


def test_relative_path_is_taken_below_the_first_root(root):
    (root / "a").write_text("x")

    assert list(scan("a", [root], {}).files) == ["a"]
    assert list(scan(".", [root], {}).files) == ["a"]


# --- Limits ---


def test_folder_with_too_many_files_is_tracked_as_a_whole(root, monkeypatch):
    monkeypatch.setattr(watch, "MOST_FILES", 3)
    for name in "abcd":
        (root / name).write_text("x")
    before = look(root)
    assert (before.files, before.count, bool(before.whole)) == ({}, 4, True)
    assert told(before, look(root)) == []
    (root / "b").write_text("other")

    assert told(before, look(root)) == [(".", "changed")]
    (root / "a").unlink()
    (root / "b").unlink()
    assert told(before, look(root)) == [(".", "changed")]


def test_scanned_entries_are_limited(root, monkeypatch):
    monkeypatch.setattr(watch, "MOST_FILES", 3)
    monkeypatch.setattr(watch, "MOST_ENTRIES", 5)
    for number in range(20):
        (root / str(number)).write_text("x")

    assert look(root).count == 6


def test_folder_depth_and_number_are_limited(root, monkeypatch):
    monkeypatch.setattr(watch, "MOST_DEPTH", 2)
    monkeypatch.setattr(watch, "MOST_FOLDERS", 4)
    (root / "a" / "b" / "c" / "d").mkdir(parents=True)
    (root / "a" / "b" / "c" / "deep").write_text("x")
    assert look(root).folders == (str(root), str(root / "a"), str(root / "a" / "b"))
    for name in "efghij":
        (root / name).mkdir()

    assert len(look(root).folders) == 4


def test_large_file_is_compared_by_mtime(root, monkeypatch):
    monkeypatch.setattr(watch, "HASHED_BYTES", 10)
    (root / "a").write_text("x" * 100)
    before = look(root)
    os.utime(root / "a", (1, 1))

    assert told(before, look(root, before=before.files)) == [("a", "modified")]


def test_hashed_bytes_are_limited(root, monkeypatch):
    monkeypatch.setattr(watch, "HASHED_IN_ALL", 10)
    for name in "abc":
        (root / name).write_text("x" * 6)

    hashed = [known[1] for known in look(root).files.values() if known[1][:16] != known[1][16:]]
    assert len(hashed) == 1


def test_growing_file_is_read_up_to_the_limit(root, monkeypatch):
    monkeypatch.setattr(watch, "HASHED_BYTES", 10)
    monkeypatch.setattr(watch, "PIECE", 4)
    (root / "a").write_bytes(b"x" * 100)
    handle = os.open(root / "a", os.O_RDONLY)
    try:
        assert len(watch._digest(handle)) == 16
    finally:
        os.close(handle)


# --- Paths and links ---


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "../outside/secret.txt", ".."])
def test_path_with_dots_is_refused(root, path):
    for given in (path, f"{root}/{path}"):
        with pytest.raises(PathRefused, match=r"contains \.\."):
            scan(given, [root], {})


@pytest.mark.parametrize("path", ["/etc/passwd", "/", "/proc/self/environ", "~/x"])
def test_path_outside_of_the_roots_is_refused(root, path):
    try:
        assert scan(path, [root], {}).missing
    except PathRefused as refused:
        assert "outside" in str(refused)  # noqa: PT017 either may be


def test_sibling_with_the_same_prefix_is_outside(root):
    with pytest.raises(PathRefused, match="outside"):
        scan(f"{root}-side", [root], {})


def test_no_path_is_allowed_without_roots(root):
    with pytest.raises(PathRefused, match="LQOPS_SENSOR_ROOTS"):
        scan(str(root), [], {})


def test_null_in_a_path_is_refused(root):
    with pytest.raises(PathRefused):
        scan("a\0b", [root], {})


def test_symbolic_links_are_not_followed(root):
    (root / "real").mkdir()
    (root / "real" / "a").write_text("x")
    (root / "link.txt").symlink_to(root.parent / "outside" / "secret.txt")
    (root / "link").symlink_to(root.parent / "outside")
    (root / "real" / "link").symlink_to(root.parent / "outside")
    (root / "loop").symlink_to(root)

    assert list(look(root).files) == ["real/a"]
    for path in ("link", "link/secret.txt", "link.txt", "real/link/secret.txt", "loop"):
        with pytest.raises(PathRefused, match="symbolic link"):
            look(root, path)


def test_special_files_are_not_opened(root, monkeypatch):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(root)  # the path of a socket is limited in length
        listener.bind("sock")
        (root / "a").write_text("x")

        assert list(look(root).files) == ["a"]
        with pytest.raises(PathRefused, match="neither a file nor a folder"):
            look(root, "pipe")
        with pytest.raises(PathRefused):
            look(root, "sock")


def test_changes_are_limited_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(watch, "MOST_REPORTED", 3)
    some = [{"name": name, "kind": "added", "size": 1} for name in "abcde"]

    assert watch._limited(some[:3]) == some[:3]
    assert watch._limited(some) == [*some[:2], {"name": "…", "kind": "more", "size": 3}]


def test_name_with_a_secret_is_shown_as_a_digest(root):
    tokens = ["ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7" + end for end in ("R8", "S9")]
    for token in tokens:
        (root / token).write_text("x")
    first = look(root)
    names = list(first.files)

    assert len(set(names)) == 2
    assert all(re.fullmatch("masked-[0-9a-f]{12}", name) for name in names)
    assert told(first, look(root, before=first.files)) == []
    (root / tokens[0]).unlink()
    assert [kind for _, kind in told(first, look(root, before=first.files))] == ["deleted"]
    alone = scan(str(root / tokens[1]), [root], {})
    assert set(alone.files) < set(names)


def test_undecodable_name_is_shown_as_text(root):
    (root / os.fsdecode(b"\xff.txt")).touch()

    assert list(look(root).files) == ["?.txt"]


def test_folder_swapped_for_a_link_during_the_scan_is_not_followed(root):
    """Two hundred scans while the folder is swapped for a link to the outside and back."""
    (root / "box").mkdir()
    (root / "box" / "mine.txt").write_text("mine")
    over = threading.Event()

    def swap():
        while not over.is_set():
            (root / "box").rename(root / "aside")
            (root / "box").symlink_to(root.parent / "outside")
            (root / "box").unlink()
            (root / "aside").rename(root / "box")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for path in ["", "box", "box/secret.txt"] * 70:
            try:
                found = look(root, path)
            except PathRefused:
                continue
            seen |= set(found.files)
            assert found.text != "secret"
    finally:
        over.set()
        thread.join()

    assert not any("secret" in name for name in seen)
