"""Tail sensors: new lines, each once, through rotation, truncation and killed workers."""

import os
import random
import re
import signal
import threading
import time
from multiprocessing import get_context

import pytest
from django.db import connections
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.conf import clock
from agents.models import Sensor
from agents.sensors import tail
from agents.sensors.paths import PathRefused
from agents.sensors.slice import run_slice
from agents.sensors.tail import LOST, new_lines
from tests.agents.sensors.scene import Scene, running_slice, sensor
from tests.flows.processes import until


class Log:
    """A log and a reader that forgets everything but its cursor between two looks."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "app.log"
        self.place, self.problems = None, []

    def write(self, *lines, end="\n"):
        with self.path.open("a") as file:
            file.write("\n".join(lines) + end)

    def rotate(self, name="app.log.1"):
        self.path.rename(self.folder / name)

    def read(self):
        lines, more = [], True
        while more:
            found = new_lines("app.log", [self.folder], self.place)
            self.place, more = vars(found.place), found.has_more
            lines += found.lines
            self.problems += [found.problem] if found.problem else []
        return lines


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


# --- Reading ---


def test_only_lines_after_the_first_look_are_new(log):
    log.write("old")
    assert log.read() == []
    log.write("a", "b")
    assert log.read() == ["a", "b"]
    assert log.read() == []


def test_file_that_appears_later_is_read_from_its_beginning(log):
    assert log.read() == []
    log.write("a")
    assert log.read() == ["a"]


def test_line_counts_when_it_is_complete(log):
    log.write("begun", end="")
    assert log.read() == []
    log.write(" earlier", "new", end="")
    assert log.read() == []
    log.write("er", "\n", end="")
    assert log.read() == ["newer"]


def test_renamed_file_is_read_to_its_end_first(log):
    log.read()
    log.write("a")
    assert log.read() == ["a"]
    log.write("b")
    log.rotate()
    log.write("c")
    assert log.read() == ["b", "c"]
    assert log.problems == []


def test_old_file_is_read_while_the_new_one_is_empty(log):
    log.write("a")
    log.read()
    log.rotate()
    log.path.touch()
    assert log.read() == []
    with (log.folder / "app.log.1").open("a") as file:
        file.write("late\n")
    log.write("b")
    assert log.read() == ["late", "b"]


def test_several_rotations_between_two_looks_lose_nothing(log):
    log.write("0")
    log.read()
    for number in range(1, 5):
        log.write(f"{number}")
        log.rotate(f"app.log-{number}")
        os.utime(log.folder / f"app.log-{number}", ns=(number, time.time_ns() + number))
    log.write("5")
    assert log.read() == ["1", "2", "3", "4", "5"]


def test_copied_and_truncated_file_is_read_to_its_end_in_the_copy(log):
    log.write("a" * 20)
    log.read()
    log.write("b")
    (log.folder / "app.log.1").write_bytes(log.path.read_bytes())
    log.path.write_text("c\n")
    assert log.read() == ["b", "c"]


def test_truncated_file_is_read_from_its_beginning(log):
    log.write("a", "b")
    log.read()
    log.path.write_text("c\n")
    assert log.read() == ["c"]
    log.path.write_text("a much longer beginning than before, in the same file\n")
    assert log.read() == ["a much longer beginning than before, in the same file"]
    assert log.problems == []


def test_lost_file_is_reported(log):
    log.write("a")
    log.read()
    log.path.rename(log.folder / "gone")  # keeps the inode
    (log.folder / "gone").rename(log.folder / "elsewhere")
    log.write("b")
    assert log.read() == ["b"]
    assert log.problems == [LOST]


def test_file_that_is_rotated_during_a_look_is_read_once(log, monkeypatch):
    log.write("old")
    log.read()
    log.write("a")
    log.rotate("app.log.1")
    log.write("b")
    real = tail._siblings

    def rotated_first(*given):
        monkeypatch.setattr(tail, "_siblings", real)
        log.rotate("app.log.2")
        log.write("c")
        return real(*given)

    monkeypatch.setattr(tail, "_siblings", rotated_first)
    assert log.read() + log.read() == ["a", "b", "c"]
    assert log.problems == []


def test_last_line_of_a_rotated_file_needs_no_line_break(log):
    log.path.touch()
    log.read()
    log.write("a", end="")
    log.rotate()
    log.write("b")
    assert log.read() == ["a", "b"]


def test_long_line_is_cut_and_memory_stays_bounded(log, monkeypatch):
    monkeypatch.setattr(tail, "READ_BYTES", 1000)
    monkeypatch.setattr(tail, "LINE_BYTES", 100)
    log.read()
    log.write("x" * 5_000, "next", "y" * 950, "end")
    assert log.read() == ["x" * 100, "next", "y" * 100, "end"]


def test_bytes_that_are_not_text_are_replaced(log):
    log.read()
    log.path.write_bytes(b"a\xff\r\n\n\nb\x00\n")
    assert log.read() == ["a\ufffd", "b\x00"]


def test_symbolic_links_and_other_folders_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "in" / "link.log").symlink_to(tmp_path / "secret")
    for path in ("link.log", "../secret", str(tmp_path / "secret"), "."):
        with pytest.raises(PathRefused):
            new_lines(path, [tmp_path / "in"], None)
    (tmp_path / "in" / "folder").mkdir()
    with pytest.raises(PathRefused):
        new_lines("folder", [tmp_path / "in"], None)


ACTS = st.lists(st.sampled_from(["write", "read", "rotate"]), max_size=30)


@given(ACTS, st.integers(20, 2_000))
@settings(max_examples=60, deadline=None)
def test_every_line_is_read_once_in_any_order_of_acts(tmp_path_factory, acts, size):
    log = Log(tmp_path_factory.mktemp("log"))
    log.path.touch()
    log.read()
    written, found = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "READ_BYTES", size)
        patch.setattr(tail, "LINE_BYTES", 5_000)
        for number, act in enumerate([*acts, "write", "read"]):
            if act == "write":
                written.append(f"line {number} of this log")
                log.write(written[-1])
            elif act == "rotate" and log.path.exists() and log.path.stat().st_size:
                log.rotate(f"app.log.{number}")
                os.utime(log.folder / f"app.log.{number}", ns=(number, number))
            elif act == "read":
                found += log.read()
    assert found == written
    assert log.problems == []


# --- At work ---


def tailing(**more):
    signal_by_pattern = {"name": "errors", "when": {"matches": "ERROR"}}
    return sensor("feed", "watch", {"tail": "app.log"}, ["lines"], [signal_by_pattern], **more)


FIELDS = {"lines": {"type": "array", "max_items": 5}}


@pytest.mark.django_db(transaction=True)
def test_matching_lines_alert_and_new_lines_are_appended(log, monkeypatch):
    monkeypatch.setattr(tail.Tail, "pause", 0.05)
    log.write("ERROR before")
    scene = Scene(tailing(), fields=FIELDS)
    with running_slice():
        until(lambda: scene.sensor().read_at)
        log.write("fine", "ERROR one", "ERROR two")
        until(scene.alerts)
        log.rotate()
        log.write("ERROR three")
        until(lambda: len(scene.alerts()) == 2)

    assert scene.value("lines") == ["fine", "ERROR one", "ERROR two", "ERROR three"]
    assert "2 judged together: ERROR one | ERROR two" in scene.alerts()[0].text
    assert scene.sensor().signals["errors"]["fired"] == 3
    assert scene.sensor().state == "fine"


def _slice():
    connections.close_all()
    run_slice(0, seconds=60)


def _write_log(folder, total, per_second, stop):
    """Write numbered lines at a pace, and rotate every few of them."""
    path, start, rotated = folder / "app.log", time.monotonic(), 0
    for number in range(0, total, 50):
        lines = (f"{'ERROR' if n % 50 == 0 else 'info'} number {n};" for n in range(number, number + 50))
        with path.open("a") as file:
            file.write("\n".join(lines) + "\n")
        if number and number % (per_second // 2) == 0:
            rotated += 1
            path.rename(folder / f"app.log.{rotated}")
        time.sleep(max(0.0, start + number / per_second - time.monotonic()))
    stop.set()


def _run_with_kills(folder, scene, *, total, per_second, kills):
    """Write lines while slices are killed; return the numbers of matching lines in alerts, and in the state."""
    (folder / "app.log").touch()
    written, context = threading.Event(), get_context("fork")
    expected = total // 50
    for number in range(kills + 1):
        Sensor.objects.update(lease_owner="", lease_until=None)
        connections.close_all()
        process = context.Process(target=_slice)
        process.start()
        if number == 0:
            until(lambda: scene.sensor().read_at)
            threading.Thread(target=_write_log, args=(folder, total, per_second, written)).start()
        if number < kills:
            before = scene.sensor().signals.get("errors", {}).get("fired", 0)
            until(lambda before=before: scene.sensor().signals.get("errors", {}).get("fired", 0) > before, seconds=30)
            time.sleep(random.uniform(0, 0.3))
        else:
            until(lambda: written.is_set() and scene.sensor().signals["errors"]["fired"] >= expected, seconds=60)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    numbers = [int(found) for alert in scene.alerts() for found in re.findall(r"ERROR number (\d+);", alert.text)]
    return numbers, scene.sensor().signals["errors"]["fired"]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_every_line_counts_once_although_workers_are_killed(tmp_path):
    scene = Scene(tailing(), fields=FIELDS)
    numbers, fired = _run_with_kills(tmp_path, scene, total=3_000, per_second=2_000, kills=2)

    assert (numbers, fired) == (list(range(0, 3_000, 50)), 60)
    assert clock() >= scene.sensor().read_at


@pytest.mark.stress
@pytest.mark.django_db(transaction=True)
def test_5000_lines_a_second_count_once_although_workers_are_killed(tmp_path):
    scene = Scene(tailing(), fields=FIELDS)
    numbers, fired = _run_with_kills(tmp_path, scene, total=100_000, per_second=5_000, kills=8)

    assert fired == 2_000
    assert len(set(numbers)) == len(numbers), "no line alerted twice"
