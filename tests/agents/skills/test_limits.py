"""Limits of isolated skills: declared, set, and named when they are reached."""

import errno
import resource
import socket
from types import ModuleType

import pytest
from django.core.exceptions import ImproperlyConfigured

from agents.skills import limits
from agents.skills.limits import DEFAULT_LIMITS, Limits, hint, hint_of_code, set_limits


@pytest.fixture
def system(monkeypatch):
    """Records the limits instead of setting them; `hard` are those of the installation."""

    class System:
        hard = {}
        refuses = ()
        asked = {}

        def get(self, kind):
            return (0, self.hard.get(kind, resource.RLIM_INFINITY))

        def set(self, kind, pair):
            if kind in self.refuses:
                raise ValueError("not allowed")
            self.asked[kind] = pair

    found = System()
    found.asked = {}
    monkeypatch.setattr(limits.resource, "getrlimit", found.get)
    monkeypatch.setattr(limits.resource, "setrlimit", found.set)
    return found


def test_limits_are_set_in_units_of_the_system(system):
    assert set_limits(Limits(cpu_seconds=5, memory_mb=6, file_mb=7, open_files=8, processes=9)) == ""

    tasks = system.asked.pop(resource.RLIMIT_NPROC)
    assert system.asked == {
        resource.RLIMIT_CPU: (5, 6),  # a signal that says why, and then the end
        resource.RLIMIT_AS: (6 * 1024 * 1024,) * 2,
        resource.RLIMIT_FSIZE: (7 * 1024 * 1024,) * 2,
        resource.RLIMIT_NOFILE: (8, 8),
        resource.RLIMIT_CORE: (0, 0),
    }
    assert tasks[0] == tasks[1] > 9 + limits.THREADS  # with those that are there


def test_limit_of_the_installation_is_not_exceeded(system):
    system.hard = {resource.RLIMIT_CPU: 3, resource.RLIMIT_NOFILE: 4}

    assert set_limits(DEFAULT_LIMITS) == ""

    assert (system.asked[resource.RLIMIT_CPU], system.asked[resource.RLIMIT_NOFILE]) == ((3, 3), (4, 4))


def test_limit_that_the_system_refuses_is_named(system):
    system.refuses = {resource.RLIMIT_AS, resource.RLIMIT_CORE}
    assert set_limits(DEFAULT_LIMITS) == "the system does not take the limits memory_mb, core"


def test_processes_that_end_meanwhile_are_not_counted(system, monkeypatch, tmp_path):
    (tmp_path / "1").mkdir()  # it has no folder of tasks any more
    monkeypatch.setattr(limits, "_PROC", tmp_path)
    set_limits(DEFAULT_LIMITS)
    assert system.asked[resource.RLIMIT_NPROC] == (limits.THREADS, limits.THREADS)


def test_processes_of_others_are_not_counted(system, monkeypatch):
    monkeypatch.setattr(limits.os, "getuid", lambda: 4_000_000_000)
    set_limits(DEFAULT_LIMITS)
    assert system.asked[resource.RLIMIT_NPROC] == (limits.THREADS, limits.THREADS)


def chained(cause):
    try:
        raise RuntimeError("a library fails") from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "it reached its limit memory_mb=2048; declare it with limits=Limits(memory_mb=…) to raise it"),
        (OSError(errno.EFBIG, ""), "file_mb=64"),
        (OSError(errno.EMFILE, ""), "open_files=256"),
        (BlockingIOError(errno.EAGAIN, ""), "processes=0"),
        (OSError(errno.ENOMEM, ""), "memory_mb=2048"),
        (OSError(errno.ENETDOWN, ""), "an isolated skill has no network"),
        (socket.gaierror(socket.EAI_AGAIN, ""), "an isolated skill has no network"),
        (PermissionError(errno.EACCES, ""), "declare others with folders="),
        (chained(OSError(errno.ENETDOWN, "")), "an isolated skill has no network"),
        (ImproperlyConfigured("no settings"), "an isolated skill has no settings and no database"),
        (ImportError("no rows", name="django.db.models"), "an isolated skill has no settings and no database"),
        (AttributeError("no rows", obj=ModuleType("django.db")), "an isolated skill has no settings and no database"),
    ],
)
def test_error_is_traced_to_its_limit(error, words):
    assert words in hint(error, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), OSError("x"), FileNotFoundError(errno.ENOENT, "x"), ImportError("x"), AttributeError("x")],
)
def test_other_errors_have_no_hint(error):
    assert hint(error, DEFAULT_LIMITS) == ""


def test_exit_code_is_traced_to_the_limit_of_time():
    assert hint_of_code(-24, DEFAULT_LIMITS).startswith("it reached its limit cpu_seconds=60; ")
    assert hint_of_code(-9, DEFAULT_LIMITS) == ""


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"memory_mb": 0}, "memory_mb"), ({"processes": -1}, "processes"), ({"cpu_seconds": 1.5}, "cpu_seconds")],
)
def test_limits_are_whole_numbers(wrong, named):
    assert Limits(**wrong).problem.startswith(f"the limits {named} must be whole numbers")
    assert Limits(processes=0).problem == ""
