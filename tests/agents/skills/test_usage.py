"""What an isolated skill takes of disk and memory, as its worker counts it."""

import errno
import mmap
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from agents.skills import usage
from agents.skills.limits import DEFAULT_LIMITS, MEGABYTE, THREADS, Limits
from agents.skills.usage import Usage

FULL = os.urandom(MEGABYTE)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problem(limits, pid=None):
    found = Usage(pid or os.getpid(), ".", limits)
    found.look()
    return found.problem


def test_files_count_in_all_folders_and_links_are_not_followed(folder):
    (folder / "deep" / "deeper").mkdir(parents=True)
    for name in ("one", "deep/two", "deep/deeper/three"):
        (folder / name).write_bytes(FULL)
    (folder / "all").symlink_to("/")
    assert problem(Limits(folder_mb=4, files=6)) == ""
    assert problem(Limits(folder_mb=2)).startswith("it reached its limit folder_mb=2; declare it with limits=")
    assert problem(Limits(files=5)).startswith("it reached its limit files=5; ")


def test_file_with_a_hole_counts_with_what_it_takes(folder):
    with (folder / "sparse").open("wb") as file:
        file.truncate(50 * MEGABYTE)
    assert problem(Limits(folder_mb=1)) == ""


def test_deleted_files_count_while_they_are_open():
    with tempfile.TemporaryFile(dir=".") as one, tempfile.TemporaryFile(dir=".") as two:
        one.write(FULL)
        two.write(FULL)
        two.flush()
        assert "folder_mb=1;" in problem(Limits(folder_mb=1))
        assert problem(Limits(folder_mb=3)) == ""
    assert problem(Limits(folder_mb=1)) == ""


def test_deleted_file_that_is_only_mapped_counts_as_a_full_one(folder):
    with (folder / "mapped").open("w+b") as file:
        file.write(b"x")
        file.flush()
        kept = mmap.mmap(file.fileno(), 1)  # it has a descriptor of its own
        (folder / "mapped").unlink()
    assert problem(Limits(file_mb=5, folder_mb=4)) == ""
    with patch.object(usage, "_deleted_and_open", lambda pid: iter(())):
        assert "folder_mb=4;" in problem(Limits(file_mb=5, folder_mb=4))
        assert problem(Limits(file_mb=5, folder_mb=6)) == ""
    kept.close()


def test_memory_of_a_group_is_counted_together():
    code = f"import os, time; os.fork(); kept = os.urandom({40 * MEGABYTE}); os.write(1, b'taken\\n'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as leader:
        try:
            for _ in range(2):
                assert leader.stdout.readline() == b"taken\n"
            assert "memory_mb=70;" in problem(Limits(processes=1, memory_mb=70), leader.pid)
            assert problem(Limits(processes=1, memory_mb=200), leader.pid) == ""
            assert problem(Limits(memory_mb=70), leader.pid) == "", "the system limits a single process"
        finally:
            os.killpg(leader.pid, 9)


def test_threads_of_all_processes_are_counted_together():
    """The system counts them, too, unless they are root's."""
    each = THREADS * 3 // 4
    code = "import os, threading, time; os.fork()\n"
    code += f"for _ in range({each - 1}): threading.Thread(target=time.sleep, args=(60,)).start()\n"
    code += "os.write(1, b'started\\n'); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as leader:
        try:
            for _ in range(2):
                assert leader.stdout.readline() == b"started\n"
            beside = 2 * each - THREADS - 1
            assert problem(Limits(processes=beside), leader.pid) == ""
            assert f"processes={beside - 1};" in problem(Limits(processes=beside - 1), leader.pid)
            assert problem(Limits(), leader.pid) == ""
        finally:
            os.killpg(leader.pid, 9)


def test_process_that_has_ended_uses_nothing():
    with subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with refused("fd"):
            assert problem(Limits(processes=1), child.pid) == ""
        with refused("smaps_rollup"):
            assert problem(Limits(processes=1), child.pid) == ""
    assert problem(Limits(processes=1), child.pid) == ""


def test_process_whose_files_cannot_be_seen_is_ended():
    with refused("fd"):
        assert problem(DEFAULT_LIMITS) == "what it has on disk cannot be counted: Permission denied"


def test_folder_that_cannot_be_read_ends_the_call(folder):
    (folder / "closed").mkdir()
    with refused("closed"):
        assert problem(DEFAULT_LIMITS) == "what it has on disk cannot be counted: Permission denied"


@contextmanager
def refused(name):
    """The system refuses to show what has this name, as it does to users who are not root."""
    listed, read = os.scandir, Path.read_text

    def scandir(path):
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(path)

    def read_text(path, *given, **options):
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path, *given, **options)

    with patch("os.scandir", scandir), patch.object(Path, "read_text", read_text):
        yield


def test_what_goes_away_meanwhile_is_not_counted(folder):
    assert usage._entries(str(folder / "gone")) == []
    (folder / "file").write_bytes(FULL)
    [entry] = usage._entries(str(folder))
    (folder / "file").unlink()
    with patch.object(usage, "_entries", lambda path: [entry] if path == str(folder) else []):
        assert problem(Limits(folder_mb=1)) == ""


def test_looking_takes_a_tenth_of_the_time(monkeypatch):
    times = iter([0.0, 0.0, 0.2, 0.3, 0.5, 2.3, 2.3, 2.4])
    monkeypatch.setattr(usage, "monotonic", lambda: next(times))
    looks = []
    monkeypatch.setattr(Usage, "_limit_reached", lambda self: looks.append(1) or "")
    found = Usage(1, ".", DEFAULT_LIMITS)
    found.look()  # from 0.0 to 0.2
    assert found.seconds_until_look == pytest.approx(1.9)
    found.look()
    assert len(looks) == 1
    found.look()
    assert len(looks) == 2
