"""The two ends of the pipe: what the process of a call writes, and what its worker does with it."""

import base64
import json
import logging
import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from uuid import uuid4

import pytest

from agents.skills import isolated, process
from agents.skills.limits import DEFAULT_LIMITS
from agents.skills.process import own_folder
from agents.text.no_database import stand_in

SAMPLES = "tests.agents.skills.samples"
CONTEXT = {"session_pk": 1, "session_id": str(uuid4()), "owner_id": 1, "call_id": str(uuid4())}
CONTEXT |= {"idempotency_key": "a:1", "now": "2026-01-01 00:00:00+00:00"}


@pytest.fixture
def answer(monkeypatch):
    """Runs the program of the process here, without confining this process."""
    asked = {}

    def run(skill, *, faults=None, unlimited="", strict=False, module=SAMPLES, **arguments):
        job = {"module": module, "skill": skill, "arguments": arguments, "context": CONTEXT, "strict": strict}
        job |= {"limits": vars(DEFAULT_LIMITS), "reads": ["/usr"], "writes": ["/dev/null"]}
        job |= {"system_calls": base64.b64encode(b"filter").decode()}
        connection = os.open(os.devnull, os.O_RDWR)
        monkeypatch.setattr("sys.argv", ["-c", "17", str(connection)])
        monkeypatch.setattr(isolated, "end_with_parent", lambda parent: asked.update(parent=parent))
        monkeypatch.setattr("sys.stdin", StringIO(json.dumps(job)))
        monkeypatch.setattr(isolated, "set_limits", lambda limits: unlimited)
        monkeypatch.setattr(isolated, "confine", lambda **given: asked.update(given) or faults or {})
        into, out = os.pipe()
        monkeypatch.setattr(isolated.os, "dup", lambda number: out)
        monkeypatch.setattr(isolated.os, "dup2", lambda *numbers: None)
        isolated.main()
        os.close(out)
        os.close(connection)
        with os.fdopen(into) as written:
            return [json.loads(line) for line in written]

    run.asked = asked
    return run


def test_process_writes_two_lines(answer):
    assert answer("alone", text="hello") == [{"started": {}}, {"output": {"text": "hello", "key": "a:1"}}]
    assert answer.asked == {"parent": 17, "reads": ["/usr"], "writes": ["/dev/null"], "system_calls": b"filter"}


@pytest.mark.parametrize(
    ("how", "said"),
    [("exit", "SystemExit: 3"), ("cancel", "CancelledError: over"), ("interrupt", "KeyboardInterrupt: ")],
)
def test_process_reports_how_its_skill_exited(answer, how, said):
    assert answer("quit_apart", how=how) == [{"started": {}}, {"error": said, "hint": ""}]


def test_module_that_cannot_be_imported_is_reported(answer):
    [told] = answer("anything", module="no_such_module")
    assert told["error"] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_skill_of_another_module_is_not_found(answer):
    [told] = answer("nothing")
    assert told["error"] == f"LookupError: the module {SAMPLES} holds no skill nothing"


def test_lacking_protection_is_reported_and_strict_refuses(answer):
    lacking = {"faults": {"files": "no Landlock"}, "unlimited": "no limits"}

    assert answer("alone", text="", **lacking)[0] == {"started": {"limits": "no limits", "files": "no Landlock"}}
    [told] = answer("alone", text="", strict=True, **lacking)
    assert told["error"] == "NotConfined: limits: no limits; files: no Landlock"
    assert answer("alone", text="", strict=True)[0] == {"started": {}}


def test_long_result_and_model_are_refused(answer, monkeypatch):
    [_, told] = answer("ask_a_model", module="tests.agents.skills.hostile")
    assert told["error"].startswith("RuntimeError: an isolated skill cannot ask a model")
    monkeypatch.setattr(isolated, "MAX_RESULT_BYTES", 10)
    [_, told] = answer("alone", text="hello")
    assert told["error"] == "TooLong: its result has 43 characters; 10 are allowed"


def test_text_that_is_no_unicode_comes_back(answer):
    [_, told] = answer("alone", text="half \ud800")
    assert told["output"]["text"] == "half \ud800"


def test_database_layer_is_replaced_by_its_choices(monkeypatch):
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    stand_in()

    assert sys.modules["django.db"].models.TextChoices("Fruit", {"PEAR": "pear"}).choices == [("pear", "Pear")]
    assert not hasattr(sys.modules["django.db.models"], "Model")
    assert "django.utils.deprecation" not in sys.modules, "whoever needs the real one loads it"


# --- The folder ---


def test_folder_is_private_and_removed():
    with own_folder() as folder:
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        (Path(folder) / "file").write_text("")
    assert not Path(folder).exists()


def test_folder_that_python_cannot_remove_is_removed(monkeypatch):
    monkeypatch.setattr(process.shutil, "rmtree", lambda folder: (_ for _ in ()).throw(RecursionError))
    with own_folder() as folder:
        (Path(folder) / "closed").mkdir(mode=0)
    assert not Path(folder).exists()


def test_folder_that_stays_is_logged(monkeypatch, caplog):
    rmtree = shutil.rmtree
    monkeypatch.setattr(process.shutil, "rmtree", lambda folder: (_ for _ in ()).throw(OSError))
    monkeypatch.setattr(process.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 1))
    with caplog.at_level(logging.ERROR), own_folder() as folder:
        pass
    assert caplog.messages == [f"the folder {folder} of an isolated skill cannot be removed; remove it"]
    rmtree(folder)
