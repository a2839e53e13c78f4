"""The system calls that an isolated skill may not make, as a seccomp filter. Made by libseccomp, once per worker.

A call that old libraries do not know by name stands here by its number, which is the same on all machines.
"""

import errno
import fcntl
import mmap
import os
import socket
import stat
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

_CLONE_PARENT: Final = 0x00008000
_CLONE_THREAD: Final = 0x00010000
_CLONE_NEWUSER: Final = 0x10000000
_SOCKET_TYPE: Final = 0xF
# Of sockets that can be given an address later: datagrams, also under the name "raw", and those of other families.
_WITH_ADDRESS: Final = (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM, 6, 10)  # and DCCP and PACKET
_MAP_TYPE: Final = 0x0F
_PR_SET_PDEATHSIG: Final = 1
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1
_ITSELF: Final = 0  # as the id of a process
_INT: Final = 0xFFFFFFFF  # what the kernel reads of an argument that is an int: a program may set the bits above
# Requests of ioctl that change the attributes of an open file; for 32 bits, too.
_FS_IOC_SETFLAGS: Final = (0x40086602, 0x40046602)
_FS_IOC_FSSETXATTR: Final = 0x401C5820
# Requests of ioctl that reserve a part of the disk, as fallocate does.
_FS_IOC_RESERVE: Final = (0x40305828, 0x4030582A, 0x40305839)
_TO_MAKE: Final = (os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY)  # flags with which a file may be made, with a mode
_OF_OTHERS: Final = (stat.S_ISUID, stat.S_ISGID)  # modes with which a program runs as the owner of its file
_NOTHING_DONE: Final = 0

# An error, and the calls that end with it; a call with (argument, comparison, value, value) only if all of them hold.
_Call = tuple[Any, ...]
_REFUSED: Final[Sequence[tuple[int, Sequence[_Call]]]] = (
    # The modes and times of files: Landlock does not know them, and a process may change those of all files of its
    # user. The call is told that it was done: `shutil.copy` and `tar` would fail otherwise. It is refused if a path
    # is given and no times (arguments that are 0): `touch` makes the file when it cannot set the present time.
    (_NOTHING_DONE, [("chmod",), ("fchmod",), ("fchmodat",), (452,)]),  # and fchmodat2
    (_NOTHING_DONE, [("utime", (1, "NE", 0)), ("utimes", (1, "NE", 0)), ("futimesat", (2, "NE", 0))]),
    (_NOTHING_DONE, [("utimensat", (1, "EQ", 0)), ("utimensat", (2, "NE", 0))]),
    (errno.EPERM, [("utime", (1, "EQ", 0)), ("utimes", (1, "EQ", 0)), ("futimesat", (2, "EQ", 0))]),
    (errno.EPERM, [("utimensat", (1, "NE", 0), (2, "EQ", 0))]),
    # Programs that run as their owner, for anybody who can reach them
    (
        errno.EPERM,
        [
            *(
                (name, (at, "MASKED_EQ", flag, flag), (at + 1, "MASKED_EQ", mode, mode))
                for name, at in (("open", 1), ("openat", 2))
                for flag in _TO_MAKE
                for mode in _OF_OTHERS
            ),
            *(
                (name, (at, "MASKED_EQ", mode, mode))
                for name, at in (("creat", 1), ("mknod", 1), ("mknodat", 2))
                for mode in _OF_OTHERS
            ),
        ],
    ),
    (errno.ENOSYS, [(437,)]),  # openat2: its flags and its mode cannot be read here, and libraries fall back
    # Their owners and attributes
    (errno.EPERM, [(name,) for name in ("chown", "fchown", "lchown", "fchownat", 469)]),
    (errno.EPERM, [("ioctl", (1, "MASKED_EQ", _INT, request)) for request in (*_FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR)]),
    (
        errno.ENOTSUP,
        [
            *((f"{kind}{act}xattr",) for act in ("set", "get", "list", "remove") for kind in ("", "l", "f")),
            *((number,) for number in (463, 464, 465, 466)),  # setxattrat and the others
        ],
    ),
    # All of the disk at once, before the worker looks: files grow by what is written to them. Libraries fall back
    (errno.EOPNOTSUPP, [("fallocate",)]),
    (errno.EOPNOTSUPP, [("ioctl", (1, "MASKED_EQ", _INT, request)) for request in _FS_IOC_RESERVE]),
    # Memory that processes share without a file: all of it stays as long as one page of it is mapped
    (
        errno.EPERM,
        [
            (name, (3, "MASKED_EQ", _MAP_TYPE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
            for name in ("mmap", "mmap2")
        ],
    ),
    # Memory that no limit counts, and that outlives the process; messages and semaphores that outlive it, too
    (
        errno.ENOSYS,
        [
            *((name,) for name in ("memfd_create", 447)),  # and memfd_secret
            *((number,) for number in (444, 445, 446)),  # rules of Landlock, which is in force already
            *((name,) for name in ("shmget", "shmat", "shmdt", "shmctl")),
            *((name,) for name in ("msgget", "msgsnd", "msgrcv", "msgctl")),
            *((name,) for name in ("semget", "semop", "semtimedop", "semctl")),
            *((f"mq_{act}",) for act in ("open", "unlink", "timedsend", "timedreceive", "notify", "getsetattr")),
        ],
    ),
    # The network, and sockets of programs on this machine, such as a database. A pair within the process is harmless
    # unless it can be given another address later.
    (errno.ENETDOWN, [("socket",), ("socketpair", (0, "NE", socket.AF_UNIX))]),
    (errno.ENETDOWN, [("socketpair", (1, "MASKED_EQ", _SOCKET_TYPE, kind)) for kind in _WITH_ADDRESS]),
    # A file that is on its way to nobody is open, and nothing shows it
    (errno.EPERM, [("sendmsg",), ("sendmmsg",)]),
    # Ways around this filter
    (errno.ENOSYS, [("io_uring_setup",), ("clone3",)]),  # libraries fall back to clone, whose flags can be read
    # Leaving the group of processes that is killed at the end, outliving the worker, raising limits
    (
        errno.EPERM,
        [
            ("setsid",),
            ("setpgid",),
            ("prctl", (0, "MASKED_EQ", _INT, _PR_SET_PDEATHSIG)),
            ("setrlimit",),
            ("prlimit64", (2, "NE", 0)),
            ("clone", (0, "MASKED_EQ", _CLONE_NEWUSER, _CLONE_NEWUSER)),
            ("clone", (0, "MASKED_EQ", _CLONE_PARENT, _CLONE_PARENT)),  # a child that its worker would have to bury
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
            ("process_madvise",),
            ("process_mrelease",),
            ("pidfd_getfd",),
            ("kcmp",),
            ("move_pages", (0, "NE", _ITSELF)),
            ("migrate_pages", (0, "NE", _ITSELF)),
            ("add_key",),
            ("request_key",),
            ("keyctl",),
            ("bpf",),
            ("perf_event_open",),
            ("userfaultfd",),
            ("inotify_add_watch",),  # tells the names of files that are opened in a folder which cannot be read
            ("fanotify_init",),
        ],
    ),
    # What other processes of the same user get of the machine
    (
        errno.EPERM,
        [
            ("setpriority", (0, "NE", _PRIO_PROCESS)),
            ("setpriority", (1, "NE", _ITSELF)),
            ("ioprio_set", (0, "NE", _IOPRIO_WHO_PROCESS)),
            ("ioprio_set", (1, "NE", _ITSELF)),
            *((name, (0, "NE", _ITSELF)) for name in ("sched_setaffinity", "sched_setattr", "sched_setparam")),
            ("sched_setscheduler", (0, "NE", _ITSELF)),
            ("fcntl", (1, "MASKED_EQ", _INT, fcntl.F_SETLEASE)),  # who opens the file to write waits for its holder
        ],
    ),
    # Of these there is a number for each user, or for the machine
    (errno.ENOSYS, [("inotify_init",), ("inotify_init1",), ("io_setup",)]),
    # File systems: the rights of root are needed, and given up
    (
        errno.EPERM,
        [
            *((name,) for name in ("mount", "umount2", "pivot_root", "chroot", "swapon", "open_by_handle_at")),
            *((number,) for number in (428, 429, 430, 431, 432, 433, 442, 467)),  # open_tree to mount_setattr
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
