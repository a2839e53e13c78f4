"""Skills that try to get out of their process, to take all there is, or to deceive their worker."""

import array
import ctypes
import json
import mmap
import os
import pickle
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from agents.enums import Level
from agents.skills.limits import Limits
from agents.skills.skill import SkillContext, skill

APART = {"level": Level.SAFE, "side_effects": False, "isolation": "process"}
NEW_SYSTEM_CALLS = {"io_uring_setup": 425, "clone3": 435, "pidfd_getfd": 438}  # alike on all machines
MEGABYTE = 1024 * 1024
ABOVE_AN_INT = 1 << 32  # the kernel does not read it where it reads an int


@skill(**APART, variables=("SKILL_SHOWN",))
def show_environment() -> dict[str, str]:
    """Returns the environment."""
    return dict(os.environ)


@skill(**APART)
def show_process() -> dict[str, Any]:
    """Says what its process has."""
    os.umask(mask := os.umask(0))
    return {
        "folder": str(Path.cwd()),
        "entries": [path.name for path in Path.cwd().iterdir()],
        "umask": mask,
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "pipes": [number for number in range(256) if is_of(stat.S_ISFIFO, number)],
        "sockets": [number for number in range(256) if is_of(stat.S_ISSOCK, number)],
        "open": [number for number in range(256) if is_open(number)],
        "django": "django.apps" in sys.modules and sys.modules["django.apps"].apps.ready,
        "asyncio": "asyncio" in sys.modules,
        "limits": {
            name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
            for name in ("CPU", "AS", "FSIZE", "NOFILE", "CORE", "NPROC")
        },
        "capabilities": ctypes.CDLL(None).prctl(23, 21, 0, 0, 0) and can_administer(),
    }


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def is_of(kind: Any, number: int) -> bool:
    return is_open(number) and kind(os.fstat(number).st_mode)


def can_administer() -> bool:
    return ctypes.CDLL(None).sethostname(socket.gethostname().encode(), len(socket.gethostname())) == 0


@skill(**APART)
def try_all(acts: list[list[Any]]) -> list[Any]:
    """Tries the acts of other skills here, one after the other; returns what each returned or raised."""
    found: list[Any] = []
    for name, *arguments in acts:
        try:
            found.append(globals()[name].function(*arguments))
        except Exception as error:  # noqa: BLE001 it is returned
            found.append(f"{type(error).__name__}: {error}")
    return found


@skill(**APART, limits=Limits(processes=4))
def try_all_with_processes(acts: list[list[Any]]) -> list[Any]:
    """Tries the acts of other skills here, where processes may be started."""
    return try_all.function(acts)


@skill(**APART)
def read(path: str) -> str:
    """Reads a file, or lists a folder."""
    place = Path(path)
    return " ".join(map(str, place.iterdir())) if place.is_dir() else place.read_bytes()[:100].decode(errors="replace")


@skill(**APART)
def read_of_parent(name: str) -> str:
    """Reads a file that the system keeps about the worker."""
    with Path(f"/proc/{os.getppid()}/{name}").open("rb") as file:
        return file.read(10).decode(errors="replace")


@skill(**APART)
def read_by_link(path: str) -> str:
    """Reads a file through a link in its own folder."""
    Path("link").symlink_to(path)
    return Path("link").read_text()


@skill(**APART)
def write(path: str) -> str:
    """Writes a file."""
    Path(path).write_text("written")
    return Path(path).read_text()


@skill(**APART)
def reach(how: str, place: str) -> str:
    """Connects to a server."""
    match how:
        case "tcp":
            socket.create_connection(("127.0.0.1", int(place)), timeout=5).close()
        case "udp":
            socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(place)))
        case "unix":
            socket.socket(socket.AF_UNIX).connect(place)
        case "name":
            socket.getaddrinfo("example.org", 443)
        case "pair":
            socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b"x", place)
        case "raw pair":  # another name of the same
            socket.socketpair(type=socket.SOCK_RAW)[0].sendto(b"x", place)
    return "reached"


@skill(**APART)
def change(how: str, path: str) -> int:
    """Changes what the system keeps about a file, and returns the error."""
    name, libc = os.fsencode(path), ctypes.CDLL(None, use_errno=True)
    opened = libc.open(name, os.O_RDONLY)
    here, mode, times, flags = -100, 0o777, (ctypes.c_long * 4)(1, 0, 1, 0), ctypes.c_int(0x80)  # not to be dumped
    value = (ctypes.c_char_p(b"user.lqops"), ctypes.c_char_p(b"x"), ctypes.c_size_t(1), 0)
    acts = {
        "chmod": lambda: libc.chmod(name, mode),
        "fchmod": lambda: libc.fchmod(opened, mode),
        "fchmodat": lambda: libc.fchmodat(here, name, mode, 0),
        "fchmodat2": lambda: libc.syscall(452, here, name, mode, 0),
        "utimensat": lambda: libc.utimensat(here, name, times, 0),
        "futimens": lambda: libc.futimens(opened, times),
        "utimensat now": lambda: libc.utimensat(here, name, None, 0),
        "utimes now": lambda: libc.utimes(name, None),
        "futimens now": lambda: libc.futimens(opened, None),
        "utimes": lambda: libc.utimes(name, times),
        "chown": lambda: libc.chown(name, os.getuid(), os.getgid()),
        "lchown": lambda: libc.lchown(name, os.getuid(), os.getgid()),
        "fchown": lambda: libc.fchown(opened, os.getuid(), os.getgid()),
        "fchownat": lambda: libc.fchownat(here, name, os.getuid(), os.getgid(), 0),
        "setxattr": lambda: libc.setxattr(name, *value),
        "lsetxattr": lambda: libc.lsetxattr(name, *value),
        "fsetxattr": lambda: libc.fsetxattr(opened, *value),
        "setxattrat": lambda: libc.syscall(463, here, name, 0, value[0], None, 0),
        "file_setattr": lambda: libc.syscall(469, here, name, None, 0, 0),
        "flags": lambda: libc.ioctl(opened, ctypes.c_ulong(0x40086602), ctypes.byref(flags)),
        "flags above": lambda: libc.syscall(
            {"x86_64": 16}.get(os.uname().machine, 29), opened, ctypes.c_ulong(ABOVE_AN_INT | 0x40086602), flags
        ),
    }
    return 0 if acts[how]() == 0 else ctypes.get_errno()


@skill(**APART)
def take_at_once(how: str) -> int:
    """Takes something that nobody counts before it is taken, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    opened = os.open("file", os.O_RDWR | os.O_CREAT)
    much, keep_size, shared = ctypes.c_long(8 * MEGABYTE), 1, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    reserved = struct.pack("hhqqi20x", 0, 0, 0, 8 * MEGABYTE, 0)
    clone = {"x86_64": 56}.get(os.uname().machine, 220)
    acts = {
        "disk": lambda: libc.fallocate(opened, 0, ctypes.c_long(0), much),
        "disk beyond the end": lambda: libc.fallocate(opened, keep_size, ctypes.c_long(0), much),
        "disk by ioctl": lambda: libc.ioctl(opened, ctypes.c_ulong(0x40305828), reserved),
        "disk by ioctl of 64 bits": lambda: libc.ioctl(opened, ctypes.c_ulong(0x4030582A), reserved),
        "shared memory": lambda: -((libc.mmap(None, much, 3, shared, -1, 0) or 0) == ctypes.c_void_p(-1).value),
        "rules": lambda: libc.syscall(444, (ctypes.c_uint64 * 2)(0, 3), ctypes.c_size_t(16), 0),
        "requests": lambda: libc.syscall(
            {"x86_64": 206}.get(os.uname().machine, 0), 1000, ctypes.byref(ctypes.c_ulong(0))
        ),
        "watches": lambda: libc.inotify_init1(0),
        "lease": lambda: libc.fcntl(os.open(__file__, os.O_RDONLY), 1024, 0),
        "child of the worker": lambda: libc.syscall(clone, ctypes.c_long(0x8000 | 17), 0, 0, 0, 0) or os._exit(0),
        "program": lambda: libc.open(b"a", os.O_CREAT | os.O_WRONLY, 0o4700),
        "program of a group": lambda: libc.openat(-100, b"b", os.O_CREAT | os.O_WRONLY, 0o2700),
        "program without a name": lambda: libc.open(b".", os.O_TMPFILE | os.O_WRONLY, 0o4700),
        "program by creat": lambda: libc.creat(b"c", 0o4700),
        "program as a node": lambda: libc.mknod(b"d", 0o104700, 0),
        "openat2": lambda: libc.syscall(437, -100, b"e", (ctypes.c_uint64 * 3)(0o101, 0o4700), ctypes.c_size_t(24)),
    }
    ctypes.set_errno(0)
    done = acts[how]()
    return 0 if done >= 0 else ctypes.get_errno()


@skill(**APART)
def reserve_as_libraries_do() -> int:
    """Gives a file its size before it is written, which is allowed."""
    opened = os.open("file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(opened, 0, MEGABYTE)
    return os.fstat(opened).st_size


@skill(**APART)
def leave_in_the_kernel(how: str) -> int:
    """Makes something that outlives its process, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    key, create = 0x1C905, 0o1600
    acts = {
        "shm": lambda: libc.shmget(key, ctypes.c_size_t(MEGABYTE), create),
        "msg": lambda: libc.msgget(key, create),
        "sem": lambda: libc.semget(key, 1, create),
        "mq": lambda: libc.mq_open(b"/lqops-test", os.O_CREAT, 0o600, None),
        "memfd": lambda: libc.memfd_create(b"x", 0),
        "memfd_secret": lambda: libc.syscall(447, 0),
    }
    ctypes.set_errno(0)
    done = acts[how]()
    return 0 if done >= 0 else ctypes.get_errno()


@skill(**APART)
def hold_back_parent(how: str) -> int:
    """Takes time of the processor from its worker, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    worker, user = os.getppid(), os.getuid()
    only_the_first = ctypes.c_ulong(1)
    lowest = ctypes.c_int(0)
    acts = {
        "priority": lambda: libc.setpriority(0, worker, 0),
        "priority of a user": lambda: libc.setpriority(2, user, 0),
        "priority of own user": lambda: libc.setpriority(2, 0, 0),
        "processors": lambda: libc.sched_setaffinity(worker, ctypes.c_size_t(8), ctypes.byref(only_the_first)),
        "plan": lambda: libc.sched_setscheduler(worker, 3, ctypes.byref(lowest)),
        "disk": lambda: libc.syscall({"x86_64": 251}.get(os.uname().machine, 30), 1, worker, 0x6007),
    }
    return 0 if acts[how]() == 0 else ctypes.get_errno()


@skill(**APART)
def step_aside() -> int:
    """Lowers its own priority, which is allowed."""
    return os.nice(1)


@skill(**APART)
def send_a_file() -> int:
    """Sends an open file to itself."""
    one, _ = socket.socketpair()
    with Path("file").open("wb") as file:
        return one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])


@skill(**APART, timeout_seconds=60, limits=Limits(file_mb=8, folder_mb=16), folders=(tempfile.gettempdir(),))
def fill_folder(how: str, progress: str) -> str:
    """Writes 3 GB in files of 8 MB, and the megabytes so far; waits to be ended."""
    kept: list[Any] = []
    with Path(progress).open("w", buffering=1) as told:
        for number in range(400):
            written = b"".join(os.urandom(MEGABYTE) for _ in range(8))
            kept.append(keep(how, number, written))
            told.write(f"{8 * (number + 1)}\n")
            if number > 4:
                time.sleep(0.1)
    return "filled"


def keep(how: str, number: int, written: bytes) -> Any:
    """Keep a file in the folder, or open and deleted, or mapped and deleted."""
    file = Path(f"file-{number}").open("w+b", buffering=0)  # noqa: SIM115 it is kept open
    file.write(written)
    if how != "named":
        Path(f"file-{number}").unlink()
    if how != "mapped":
        return file
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    file.close()
    return place


@skill(**APART, timeout_seconds=60, limits=Limits(files=100))
def make_many_files() -> int:
    """Makes more files than it may."""
    for number in range(101):
        Path(str(number)).touch()
    time.sleep(30)
    return 101


@skill(**APART, timeout_seconds=60, limits=Limits(processes=3, memory_mb=300))
def take_memory_together() -> int:
    """Takes 200 MB in each of three processes, and waits to be ended."""
    for _ in range(3):
        if os.fork() == 0:
            kept = os.urandom(200 * MEGABYTE)
            time.sleep(30)
            os._exit(len(kept) % 2)
    time.sleep(30)
    return 3


@skill(**APART)
def watch_folder() -> int:
    """Asks to be told of what happens in a folder, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.inotify_add_watch(0, b"/", 0xFFF) >= 0 else ctypes.get_errno()


@skill(**APART)
def pair() -> str:
    """Talks to itself, which is allowed."""
    one, other = socket.socketpair()
    one.send(b"hello")
    return other.recv(5).decode()


@skill(**APART)
def call_system(name: str) -> int:
    """Makes a system call and returns its error."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    done = libc.syscall(NEW_SYSTEM_CALLS[name], 0, None, 0)
    return 0 if done >= 0 else ctypes.get_errno()


@skill(**APART)
def trace_parent() -> int:
    """Attaches to the worker as a debugger does, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.ptrace(ctypes.c_long(0x4206), ctypes.c_long(os.getppid()), None, None)
    return 0 if done == 0 else ctypes.get_errno()


@skill(**APART)
def signal_parent(number: int) -> str:
    """Sends a signal to the worker."""
    os.kill(os.getppid(), number)
    return "sent"


@skill(**APART)
def raise_limits() -> str:
    """Raises its own limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "raised"


@skill(**APART)
def outlive() -> int:
    """Asks not to be ended with its worker, and returns the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.prctl(1, 0, 0, 0, 0) == 0 else ctypes.get_errno()


@skill(**APART)
def outlive_by_more_bits() -> int:
    """Asks the same in a number that the kernel cuts."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 157}.get(os.uname().machine, 167)
    done = libc.syscall(ctypes.c_long(number), ctypes.c_ulong(ABOVE_AN_INT | 1), *[ctypes.c_ulong(0)] * 4)
    return 0 if done == 0 else ctypes.get_errno()


@skill(**APART, timeout_seconds=60)
def fork_bomb() -> int:
    """Starts processes, as many as it can up to fifty."""
    for _ in range(50):
        if os.fork() == 0:
            time.sleep(600)
    return 50


@skill(**APART, timeout_seconds=60, limits=Limits(processes=4), folders=(tempfile.gettempdir(),))
def fork_bomb_with_leave(path: str) -> int:
    """Starts processes, as many as it can up to a hundred, and writes down which."""
    with Path(path).open("w", buffering=1) as file:
        for _ in range(100):
            if (child := os.fork()) == 0:
                time.sleep(600)
            file.write(f"{child}\n")
    time.sleep(30)
    return 100


@skill(**APART, timeout_seconds=60)
def start_threads() -> int:
    """Starts a hundred threads that need little, and waits to be ended."""
    threading.stack_size(65_536)
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    time.sleep(30)
    return 100


@skill(**APART, timeout_seconds=60, limits=Limits(processes=4))
def leave_children(how: str) -> list[int]:
    """Leaves processes behind that do not end by themselves."""
    code = "import os, signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code += "print(os.getpid(), flush=True)\nif sys.argv[1] == 'deep' and os.fork() == 0:\n"
    code += "    print(os.getpid(), flush=True)\ntime.sleep(600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code, how], stdout=subprocess.PIPE, text=True)
    return [int(child.stdout.readline()) for _ in range(2 if how == "deep" else 1)]


@skill(**APART, timeout_seconds=60, limits=Limits(processes=4))
def leave_session() -> str:
    """Starts a process in a session of its own."""
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    return "left"


@skill(**APART, timeout_seconds=60)
def take_memory(megabytes: int) -> int:
    """Takes memory in one piece."""
    return len(bytearray(megabytes * 1024 * 1024))


@skill(**APART, timeout_seconds=60, limits=Limits(memory_mb=512))
def take_memory_by_and_by() -> int:
    """Takes memory until there is none."""
    kept = []
    while True:
        kept.append(bytearray(1024 * 1024))


@skill(**APART, timeout_seconds=60, limits=Limits(file_mb=1))
def write_without_end() -> int:
    """Writes a file of ten gigabytes."""
    with Path("much").open("wb", buffering=0) as file:
        return sum(file.write(b"x" * 1024 * 1024) for _ in range(10 * 1024))


@skill(**APART, timeout_seconds=60, limits=Limits(open_files=40))
def open_without_end() -> int:
    """Opens files without closing them."""
    return len([Path("some").open("a") for _ in range(1_000)])


@skill(**APART, timeout_seconds=60, limits=Limits(cpu_seconds=1))
def calculate_without_end() -> None:
    """Never ends."""
    while True:
        pass


@skill(**APART, timeout_seconds=3, folders=(tempfile.gettempdir(),))
def wait_without_end(path: str) -> None:
    """Says who it is, and never ends."""
    Path(path).write_text(str(os.getpid()))
    threading.Event().wait()


@skill(**APART, timeout_seconds=60)
def disorder(how: str) -> str:
    """Leaves a folder that is hard to remove."""
    match how:
        case "deep":
            for _ in range(2_100):  # longer than a path may be
                Path("d").mkdir()
                os.chdir("d")
        case "closed":
            Path("closed/inner").mkdir(parents=True)
            Path("closed/inner/file").write_text("x")
            os.mkdir("closed/inner/none", 0)  # noqa: PTH102 a mode with which nobody may look in
        case "linked":
            Path("out").symlink_to(os.environ["HOME"] + "/..")
    return os.environ["HOME"]


class Hostile:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch unpickled",)


GARBAGE = {
    "bytes": b"\xff\x00\xfe" * 1_000 + b"\n",
    "pickle": pickle.dumps(Hostile()) + b"\n",
    "deep": b"[" * 100_000 + b"\n",
    "number": b"1" * 10_000 + b"\n",
    "list": b'["output"]\n',
    "object": b'{"outputs": 1}\n',
    "error": json.dumps({"error": ["x" * 1_000_000], "hint": {"a": 1}}).encode() + b"\n",
}


@skill(**APART, timeout_seconds=60)
def write_back(what: str) -> str:
    """Writes into the pipe that its result goes through."""
    [pipe] = [number for number in range(3, 256) if is_of(stat.S_ISFIFO, number)]
    if what == "gigabyte":
        for _ in range(1024):
            os.write(pipe, b"x" * 1024 * 1024)
    os.write(pipe, GARBAGE[what])
    return "a result"


@skill(**APART)
def return_much() -> str:
    """Returns more than is passed on."""
    return "x" * 5_000_000


@skill(**APART)
def fail_at_length() -> None:
    """Fails with more words than are passed on."""
    raise ValueError("x" * 10_000_000)


@skill(**APART)
def return_odd() -> object:
    """Returns what is no JSON."""
    return Hostile()


@skill(**APART)
def use_database(how: str) -> str:
    """Uses the database of lqops."""
    match how:
        case "rows":
            from agents.models import AgentSession

            return str(AgentSession.objects.count())
        case "connection":
            from django.db import connection

            return str(connection)
        case "part":
            from django.db.models.functions import Lower

            return str(Lower)
    from django.conf import settings

    return str(settings.DATABASES)


@skill(**APART)
def ask_a_model(context: SkillContext) -> str:
    """Asks a model."""
    return context.infer().text


# --- The way to the web ---


@skill(level=Level.SAFE, isolation="process", addresses=("url",))
def send_apart(context: SkillContext, url: str, method: str = "GET", body: str = "", also: str = "") -> Any:
    """Sends a request through the worker, and another one to another address."""
    answer = context.fetch(url, method=method, headers={"X-Kind": "test"}, content=body)
    if also:
        context.fetch(also)
    return [answer.status, answer.url, answer.headers["content-type"], answer.text, answer.json()]


@skill(level=Level.SAFE, isolation="process", addresses=("url",))
def survive_a_refusal(context: SkillContext, url: str) -> str:
    """Goes on without an answer."""
    try:
        context.fetch(url, method="POST")
    except Exception as error:  # noqa: BLE001 whatever it is
        return f"{type(error).__name__}: {error}"
    return "answered"


@skill(level=Level.SAFE, isolation="process", addresses=("url",))
def talk_nonsense(context: SkillContext, url: str, what: str) -> str:
    """Writes something else to the connection."""
    web = context.fetch.__self__
    os.write(web._requests.fileno(), what.encode() + b"\n")
    try:
        return web._answers.readline().decode()
    except ConnectionResetError:  # it was closed before all of it had been read
        return ""
