"""Confinement by the kernel: what is asked of it, by its version, and kernels that allow less."""

import ctypes
import errno
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.skills import confinement, system_calls
from agents.skills.confinement import confine
from agents.skills.system_calls import filter_of
from tests.flows.processes import Program

FILTER = b"12345678" * 3
BY_FILTER = ("metadata", "memory", "network", "processes")


class Kernel:
    """Stands in for the C library: the version of Landlock, and which steps fail."""

    def __init__(self, version, *, failing=()):
        self.version = version
        self.failing = failing
        self.rules = []
        self.ruleset = None
        self.filters = []
        self.capset = lambda *_: 0
        self.syscall = self.Function(self._syscall)
        self.prctl = self.Function(self._prctl)

    class Function(SimpleNamespace):
        def __init__(self, act):
            super().__init__(act=act)

        def __call__(self, *given):
            return self.act(*given)

    def _syscall(self, number, *given):
        if number == 444 and given[0] is None:
            ctypes.set_errno(errno.ENOSYS)
            return self.version
        if number == 444:
            asked = given[0]._obj
            self.ruleset = (asked.files, asked.network, asked.scopes)
            return os.open(os.devnull, os.O_RDONLY)
        if number == 445:
            rule = given[2]._obj
            self.rules.append((str(Path(f"/proc/self/fd/{rule.folder}").readlink()), rule.rights))
            return 0
        ctypes.set_errno(errno.E2BIG)
        return -1 if "restrict" in self.failing else 0

    def _prctl(self, option, *given):
        if option == 22:
            self.filters.append(given)
            return -1 if "filter" in self.failing else 0
        return 0


@pytest.fixture
def kernel(monkeypatch):
    def choose(version, **how):
        found = Kernel(version, **how)
        monkeypatch.setattr(confinement.ctypes, "CDLL", lambda *_, **__: found)
        return found

    return choose


@pytest.mark.parametrize(
    ("version", "files", "network", "scopes"),
    [
        (1, 2**13 - 1, 0, 0),
        (2, 2**14 - 1, 0, 0),
        (3, 2**15 - 1, 0, 0),
        (4, 2**15 - 1, 3, 0),
        (5, 2**16 - 1, 3, 0),
        (6, 2**16 - 1, 3, 3),
        (9, 2**16 - 1, 3, 3),
    ],
)
def test_everything_that_the_kernel_knows_is_taken_away(kernel, tmp_path, version, files, network, scopes):
    found = kernel(version)

    faults = confine(reads=["/usr"], writes=[str(tmp_path), os.devnull, "/no/such/place"], system_calls=FILTER)

    assert found.ruleset == (files, network, scopes)
    to_read, to_write, to_device = found.rules
    assert to_read == ("/usr", 0b1101)
    assert to_write == (str(tmp_path), files & 0b0111_0111_1011_1111)  # no devices
    assert to_device == (os.devnull, files & 0b0100_0000_0000_0111)
    assert len(found.filters) == 1
    signals = f"Landlock is of version {version}; signals are held back since version 6 (Linux 6.12)"
    assert faults == ({} if scopes else {"processes": signals})


@pytest.mark.parametrize(
    ("version", "failing", "system_calls", "faults"),
    [
        (-1, (), FILTER, {"files": "no Landlock (Function not implemented)", "processes": "no Landlock"}),
        (6, ("restrict",), FILTER, {"files": "Landlock failed (Arg", "processes": "Landlock failed"}),
        (6, ("filter",), FILTER, dict.fromkeys(BY_FILTER, "takes no seccomp filter")),
        (6, (), b"", dict.fromkeys(BY_FILTER, "libseccomp is not installed")),
        (-1, (), b"", {"files": "no Landlock", **dict.fromkeys(BY_FILTER, "libseccomp")}),
    ],
)
def test_missing_protection_is_named_with_its_reason(kernel, version, failing, system_calls, faults):
    kernel(version, failing=failing)

    found = confine(reads=[], writes=[], system_calls=system_calls)

    assert found.keys() == faults.keys()
    for name, words in faults.items():
        assert words in found[name]


def test_other_systems_protect_nothing(monkeypatch):
    monkeypatch.setattr(confinement.ctypes, "CDLL", lambda *_, **__: object())
    found = confine(reads=[], writes=[], system_calls=FILTER)
    assert found == dict.fromkeys(["files", *BY_FILTER], "this system is not Linux")


# --- The filter ---


def test_filter_is_empty_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    assert filter_of.__wrapped__(may_start_processes=False) == b""


def test_filter_is_empty_if_the_library_does_not_know_a_call(monkeypatch):
    monkeypatch.setattr(system_calls, "_NEW_PROCESSES", [("no_such_call",)])
    assert filter_of.__wrapped__(may_start_processes=False) == b""
    assert filter_of.__wrapped__(may_start_processes=True)


def test_filter_without_processes_refuses_more():
    fewer, more = (filter_of.__wrapped__(may_start_processes=may) for may in (True, False))
    assert 0 < len(fewer) < len(more)


# --- Real kernels that refuse: a filter around the worker makes them ---


WORKER = """
import errno, json, sys
import pyseccomp
from agents.skills.isolation_report import isolation_report
around = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
name, *conditions = json.loads(sys.argv[1])
arguments = [pyseccomp.Arg(at, pyseccomp.EQ, value) for at, value in conditions]
around.add_rule(pyseccomp.ERRNO(errno.EOPNOTSUPP), name, *arguments)
around.load()
print(json.dumps(isolation_report()))
"""


@pytest.mark.sampled(1)
@pytest.mark.skipif(not filter_of(may_start_processes=False), reason="libseccomp is not installed")
@pytest.mark.parametrize(
    ("refused", "off", "words"),
    [
        (["landlock_create_ruleset"], {"files", "processes"}, "the kernel has no Landlock (Operation not supported)"),
        (["landlock_restrict_self"], {"files", "processes"}, "Landlock failed (Operation not supported)"),
        (["prctl", [0, 22]], set(BY_FILTER), "the kernel takes no seccomp filter"),
    ],
)
def test_report_names_what_a_container_does_not_allow(refused, off, words):
    with closing(Program(WORKER, json.dumps(refused))) as program:
        printed, errors = program.communicate()
    assert program.returncode == 0, errors

    report = json.loads(printed)

    assert {name for name, reason in report.items() if reason} == off
    for name in off:
        assert report[name].startswith(f"{words}; a skill can ")
