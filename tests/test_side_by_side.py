"""Workers run each test once; one that breaks off, fails or is interrupted leaves nothing unsaid."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from tests import databases
from tests.side_by_side import _files

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
COMMAND = [sys.executable, "-m", "pytest", "-p", "tests.side_by_side", "--workers", "2", "-c", os.devnull, "-rA"]


@pytest.fixture
def folder(tmp_path):
    def written(**files):
        for name, text in files.items():
            (tmp_path / f"test_{name}.py").write_text(f"import os, signal, time\nimport pytest\n{text}")
        return tmp_path

    return written


def run(folder, *options):
    command = [*COMMAND, "--rootdir", folder, *options]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_reports_of_all_workers_are_summed_up(folder):
    code, text = run(
        folder(
            some="def test_good(tmp_path): pass\ndef test_bad():\n    print('seen')\n    assert 1 == 2\n",
            skipped="@pytest.mark.skip(reason='no need')\ndef test_no(): pass\n",
        )
    )
    assert code == 1, text
    assert "1 failed, 1 passed, 1 skipped in" in text
    assert "assert 1 == 2" in text
    assert text.count("seen") == 2  # once in the line of source, once as what the test has printed
    assert "no need" in text


@pytest.mark.long
def test_record_of_a_log_set_up_before_is_shown(folder):
    there = folder(logs="import logging\ndef test_bad():\n    logging.warning('told')\n    assert False\n")
    (there / "conftest.py").write_text(
        "import logging\nlogging.basicConfig(format='%(levelname)s by itself: %(message)s')\n"
    )
    code, text = run(there)
    assert code == 1, text
    assert "WARNING by itself: told" in text
    assert "Logging error" not in text


def test_worker_that_ends_fails_its_test_and_those_it_leaves(folder):
    code, text = run(
        folder(
            killed="def test_one(): pass\ndef test_two(): os.kill(os.getpid(), 9)\ndef test_three(): pass\n",
            left="def test_exit(): pytest.exit('at once')\n",
        )
    )
    assert code == 1, text
    assert "test_killed.py::test_two ended with exit code -9" in text
    assert "Exit: at once" in text
    assert "It was not run: the worker that had its file ended before." in text
    assert "3 failed, 1 passed" in text


@pytest.mark.long
def test_process_that_a_test_leaves_behind_holds_nobody_up(folder):
    left = "import subprocess\ndef test_leaves(): subprocess.Popen(['sleep', '60'], close_fds=False)\n"
    code, text = run(folder(left=left, other="def test_other(): pass\n"))
    assert code == 0, text
    assert re.search(r"2 passed in \d\.", text)


@pytest.mark.long
def test_first_failure_ends_the_other_worker_too(folder):
    waiting = "def test_waits():\n    for _ in range(600): time.sleep(0.1)\n"
    code, text = run(folder(failing="def test_bad(): assert False\n", waiting=waiting), "-x")
    assert code == 1, text
    assert "stopping after 1 failures" in text
    assert re.search(r"1 failed in \d\.", text)


@pytest.mark.long
def test_interrupt_tears_down_and_is_told(folder):
    there = folder(
        waiting="""
@pytest.fixture
def made():
    open("made", "w").close()
    yield
    os.remove("made")
    open("removed", "w").close()

def test_waits(made):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
"""
    )
    code, text = run(there)
    assert code == 2
    assert "KeyboardInterrupt" in text
    assert (there / "removed").exists()


def test_worker_has_a_folder_of_its_own_wherever_it_is_named():
    old, (reading, writing) = str(settings.VAR_DIR), os.pipe()
    if not (pid := os.fork()):
        databases.own_files("gw9")
        named = [settings.VAR_DIR, settings.MEDIA_ROOT, settings.LQOPS_SENSOR_ROOTS[0], os.environ["LQOPS_VAR_DIR"]]
        os.write(writing, "\n".join(map(str, named)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    new, *places = os.read(reading, 10_000).decode().split("\n")
    os.close(reading)
    assert new == f"{old}-gw9"
    assert len(places) == 3
    assert all(place.startswith(new) for place in places)
    assert {path.name for path in Path(new).iterdir()} == {path.name for path in Path(old).iterdir()}
    shutil.rmtree(new)


class Item:
    def __init__(self, nodeid):
        self.nodeid = nodeid


def test_tests_of_a_file_and_those_that_share_an_installation_stay_together():
    names = ("browser/test_a.py::x", "b.py::x", "browser/test_jobs.py::x", "browser/test_c.py::x", "d.py::x", "b.py::y",
             "browser/test_narrow.py::x")  # fmt: skip
    groups = [
        [item.nodeid.removeprefix("tests/") for item in group]
        for group in _files([Item(f"tests/{name}") for name in names])
    ]
    assert groups == [
        ["browser/test_a.py::x", "browser/test_c.py::x"],
        ["b.py::x", "b.py::y"],
        ["browser/test_jobs.py::x", "browser/test_narrow.py::x"],
        ["d.py::x"],
    ]
