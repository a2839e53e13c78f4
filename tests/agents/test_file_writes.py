"""Writes to a file are told, also those before the wait and those of other processes."""

import subprocess
import sys
import threading

import pytest

from agents.queue.file_writes import FileWrites

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
LONG = 30.0


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"")
    return path


def test_nothing_is_told_without_a_write(file):
    writes = FileWrites(str(file))
    file.read_bytes()
    assert not writes.wait(0.01)


def test_write_before_the_wait_is_told_once(file):
    writes = FileWrites(str(file))
    for _ in range(3):
        file.write_bytes(b"x")
    assert writes.wait(LONG)
    assert not writes.wait(0.01)


def test_write_of_another_process_ends_the_wait(file):
    writes = FileWrites(str(file))
    told = []
    thread = threading.Thread(target=lambda: told.append(writes.wait(LONG)))
    thread.start()
    subprocess.run([sys.executable, "-c", f"open({str(file)!r}, 'w').write('x')"], check=True)
    thread.join(LONG)
    assert told == [True]


def test_absent_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        FileWrites(str(tmp_path / "absent"))
