"""Takes files, network and other processes away from this process, for good, as far as the kernel allows.

Files, signals and the memory of other processes are taken by Landlock; what it does not know, such as sockets, modes of
files and new sessions, by a seccomp filter (agents.skills.system_calls). Neither needs root or another program. Both
hold for every program that the process starts. Called in a process with one thread.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

_CREATE_RULESET: Final = 444  # the same numbers on every kind of machine
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_FILTER: Final = 2
_INSTRUCTION_BYTES: Final = 8
_CAPABILITY_VERSION: Final = 0x20080522

# Rights to files, by the version of Landlock that knows them.
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_RIGHTS_SINCE: Final = {1: _REFER - 1, 2: _REFER, 3: _TRUNCATE, 5: _IOCTL}
_TO_READ: Final = _EXECUTE | _READ | _READ_DIR
_TO_WRITE: Final = (_IOCTL - 1) & ~(_MAKE_CHAR | _MAKE_BLOCK)
_OF_A_FILE: Final = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_TCP: Final = 3  # to listen and to connect
_NETWORK_SINCE: Final = 4
_SIGNALS_AND_SOCKETS: Final = 3  # to processes outside
_SCOPES_SINCE: Final = 6
_BY_FILTER: Final = ("metadata", "memory", "network", "processes")


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def confine(*, reads: Iterable[str], writes: Iterable[str], system_calls: bytes) -> Mapping[str, str]:
    """Confine this process. Return what is not protected and why: nothing if all is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "prctl"):
        reason = "this system is not Linux"
        return {"files": reason, **dict.fromkeys(_BY_FILTER, reason)}
    libc.syscall.restype = ctypes.c_long
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities(libc)
    faults = _confine_files(libc, reads, writes)
    if not system_calls or not _load_filter(libc, system_calls):
        reason = "the kernel takes no seccomp filter" if system_calls else "libseccomp is not installed"
        faults = {**faults, **dict.fromkeys(_BY_FILTER, reason)}
    return faults


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up the rights of root, if this is root."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _confine_files(libc: ctypes.CDLL, reads: Iterable[str], writes: Iterable[str]) -> dict[str, str]:
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        reason = f"the kernel has no Landlock ({os.strerror(ctypes.get_errno())})"
        return {"files": reason, "processes": reason}
    handled = sum(rights for since, rights in _RIGHTS_SINCE.items() if since <= version)
    ruleset = _Ruleset(
        handled,
        _TCP if version >= _NETWORK_SINCE else 0,
        _SIGNALS_AND_SOCKETS if version >= _SCOPES_SINCE else 0,
    )
    descriptor = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0)
    for paths, rights in ((reads, _TO_READ), (writes, _TO_WRITE)):
        for path in paths:
            _allow(libc, descriptor, path, rights & handled)
    if libc.syscall(_RESTRICT_SELF, descriptor, 0):
        reason = f"Landlock failed ({os.strerror(ctypes.get_errno())})"
        return {"files": reason, "processes": reason}
    os.close(descriptor)
    needed = f"Landlock is of version {version}; signals are held back since version {_SCOPES_SINCE} (Linux 6.12)"
    return {} if version >= _SCOPES_SINCE else {"processes": needed}


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow a file, or a folder with all that is in it. What cannot be opened stays closed."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = _Rule(rights if is_folder else rights & _OF_A_FILE, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _load_filter(libc: ctypes.CDLL, system_calls: bytes) -> bool:
    program = _Filter(len(system_calls) // _INSTRUCTION_BYTES, system_calls)
    return not libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(program), 0, 0)
