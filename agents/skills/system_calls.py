"""The system calls that an isolated skill may not make, as a seccomp filter. Made by libseccomp, once per worker."""

import errno
import socket
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

_CLONE_THREAD: Final = 0x00010000
_CLONE_NEWUSER: Final = 0x10000000
_SOCKET_TYPE: Final = 0xF
_PR_SET_PDEATHSIG: Final = 1

# An error, and the calls that end with it; a call with (argument, comparison, value, value) only if all of them hold.
_Call = tuple[Any, ...]
_REFUSED: Final[Sequence[tuple[int, Sequence[_Call]]]] = (
    # The network, and sockets of programs on this machine, such as a database. A pair within the process is harmless
    # unless it can be given another address later.
    (errno.ENETDOWN, [("socket",), ("socketpair", (1, "MASKED_EQ", _SOCKET_TYPE, socket.SOCK_DGRAM))]),
    # Ways around this filter
    (errno.ENOSYS, [("io_uring_setup",), ("clone3",)]),  # libraries fall back to clone, whose flags can be read
    # Leaving the group of processes that is killed at the end, outliving the worker, raising limits
    (
        errno.EPERM,
        [
            ("setsid",),
            ("setpgid",),
            ("prctl", (0, "EQ", _PR_SET_PDEATHSIG)),
            ("setrlimit",),
            ("prlimit64", (2, "NE", 0)),
            ("clone", (0, "MASKED_EQ", _CLONE_NEWUSER, _CLONE_NEWUSER)),
            ("unshare",),
            ("setns",),
        ],
    ),
    # Other processes, keys in the kernel, and the kernel itself
    (
        errno.EPERM,
        [
            ("ptrace",),
            ("process_vm_readv",),
            ("process_vm_writev",),
            ("pidfd_getfd",),
            ("add_key",),
            ("request_key",),
            ("keyctl",),
            ("bpf",),
            ("perf_event_open",),
            ("userfaultfd",),
        ],
    ),
)
_NEW_PROCESSES: Final[Sequence[_Call]] = [("fork",), ("vfork",), ("clone", (0, "MASKED_EQ", _CLONE_THREAD, 0))]


@cache
def filter_of(*, may_start_processes: bool) -> bytes:
    """Return the filter as the kernel takes it; empty where libseccomp is missing or does not know all the calls."""
    try:
        import pyseccomp  # fails without the library
    except (ImportError, RuntimeError):
        return b""
    rules = [*_REFUSED, *([] if may_start_processes else [(errno.EAGAIN, _NEW_PROCESSES)])]
    made = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    try:
        for error, calls in rules:
            for name, *conditions in calls:
                arguments = [pyseccomp.Arg(at, getattr(pyseccomp, how), *values) for at, how, *values in conditions]
                made.add_rule(pyseccomp.ERRNO(error), name, *arguments)
        with tempfile.TemporaryFile() as file:
            made.export_bpf(file)
            file.seek(0)
            return file.read()
    except OSError:
        return b""
