"""Hostile skills in real processes: they see and reach nothing, each ends with a clear error, and the worker goes on.

Where the system does not allow a protection, its tests are skipped with the words of the doctor's report.
"""

import errno
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest
from django.conf import settings as django_settings

from agents.exceptions import OutcomeUnknown
from agents.skills import isolation, usage
from agents.skills.isolation import SkillFailed
from agents.skills.isolation_report import isolation_report
from agents.skills.limits import DEFAULT_LIMITS, MAX_ERROR_CHARS, MEGABYTE
from agents.skills.probe import FILLED, fill, probe
from agents.skills.process import own_folder
from agents.skills.running import SkillStopped, SkillTimeout, perform, run_isolated
from tests.agents.skills import hostile, samples
from tests.agents.skills.contexts import make_context
from tests.flows.processes import Program, is_alive, until


@pytest.fixture(scope="module")
def report():
    return isolation_report()


@pytest.fixture
def needs(report):
    def need(*protections):
        """Skip where the system lacks what these stand on; `network` is on wherever a filter of system calls is."""
        for name in protections:
            if report[name]:
                pytest.skip(f"doctor: isolated skills, {name}: off: {report[name]}")

    return need


@pytest.fixture
def secret(tmp_path, settings):
    """A key in the var folder."""
    settings.VAR_DIR = tmp_path / "var"
    settings.VAR_DIR.mkdir()
    key = settings.VAR_DIR / "key"
    key.write_text("the key")
    return key


def call(skill, *, stopped=lambda: False, **arguments):
    return run_isolated(skill, make_context(stopped=stopped), arguments, strict=False).output


# --- The environment and the process ---


def test_environment_holds_no_settings_and_keys(monkeypatch):
    monkeypatch.setenv("LQOPS_SECRET_KEY", "a-very-secret-key")
    monkeypatch.setenv("LQOPS_DATABASE_URL", "postgresql://lqops:password@db/lqops")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    monkeypatch.setenv("SKILL_HIDDEN", "of another skill")
    monkeypatch.setenv("SKILL_SHOWN", "declared")
    monkeypatch.setenv("TZ", "Europe/Vienna")

    seen = call(hostile.show_environment)

    allowed = {"PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "HOME", "TMPDIR", "SKILL_SHOWN"}
    assert set(seen) <= allowed | {"LD_LIBRARY_PATH", "PYTHONHOME"}
    assert (seen["SKILL_SHOWN"], seen["TZ"]) == ("declared", "Europe/Vienna")


@pytest.fixture(scope="module")
def seen():
    return call(hostile.show_process)


def test_process_has_a_folder_a_group_one_pipe_and_one_connection_of_its_own(seen):
    assert seen["entries"] == []
    assert (seen["umask"], seen["leads"], seen["django"]) == (0o077, True, False)
    assert not seen["asyncio"], "loading it takes a fifth of the time of a short call"
    assert len(seen["pipes"]) == len(seen["sockets"]) == 1
    assert set(seen["open"]) == {0, 1, 2, *seen["pipes"], *seen["sockets"]}
    assert not Path(seen["folder"]).exists()


def test_limits_are_set_in_the_process(seen):
    limits = dict(seen["limits"])
    tasks = limits.pop("NPROC")
    assert limits == {
        "CPU": DEFAULT_LIMITS.cpu_seconds,
        "AS": DEFAULT_LIMITS.memory_mb * MEGABYTE,
        "FSIZE": DEFAULT_LIMITS.file_mb * MEGABYTE,
        "NOFILE": DEFAULT_LIMITS.open_files,
        "CORE": 0,
    }
    assert tasks > 32


def test_rights_of_root_are_given_up(seen):
    assert not seen["capabilities"]


def test_isolated_skill_cannot_ask_a_model():
    with pytest.raises(SkillFailed, match="an isolated skill cannot ask a model; declare it with isolation='thread'"):
        call(hostile.ask_a_model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["rows", "connection", "part", "settings"])
def test_database_and_settings_are_not_there(how):
    with pytest.raises(SkillFailed, match="an isolated skill has no settings and no database; declare it with"):
        call(hostile.use_database, how=how)


def test_what_skills_use_works():
    assert call(samples.work_as_usual) == [1, 2, 3, 4, "1:00:00", True]


def test_files_can_be_copied_packed_and_unpacked_in_the_own_folder():
    assert call(samples.copy_as_usual) == [
        "copied",
        "copied-with-times",
        "first",
        "folder/moved",
        "touched",
        "unpacked/copied",
        "untarred/tree/moved",
    ]


# --- Files ---


def test_keys_database_and_documents_cannot_be_read(needs, secret):
    needs("files")
    database = secret.parent / "lqops.sqlite3"
    database.write_text("rows")
    with pytest.raises(SkillFailed, match=r"Permission denied.*declare others with folders="):
        call(hostile.read, path=str(secret))
    tried = [["read", str(database)], ["read", str(secret.parent)], ["read_by_link", str(secret)]]
    assert all("Permission denied" in found for found in call(hostile.try_all, acts=tried))


def test_other_files_of_the_machine_and_its_worker_cannot_be_read(needs):
    needs("files", "processes")
    files = ("/proc/self/environ", "/etc/shadow", "/root", str(django_settings.VAR_DIR))
    tried = [["read", file] for file in files]
    tried += [["read_of_parent", name] for name in ("environ", "mem", "maps", "fd")]
    assert all("Permission denied" in found for found in call(hostile.try_all, acts=tried))


def test_only_its_own_folder_can_be_written(needs, tmp_path):
    needs("files")
    others = (tmp_path / "file", Path(hostile.__file__).with_name("written.py"))
    own, *found = call(hostile.try_all, acts=[["write", str(path)] for path in ("file", *others)])
    assert own == "written"
    assert all("Permission denied" in one for one in found)
    assert not any(path.exists() for path in others)


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/var/tmp"])
def test_folders_that_all_programs_write_to_are_closed(needs, folder):
    needs("files")
    place = Path(folder) / f"lqops-test-{os.getpid()}"
    with pytest.raises(SkillFailed, match=r"Permission denied|No such file"):
        call(hostile.write, path=str(place))
    assert not place.exists()


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["deep", "closed", "linked"])
def test_folder_is_removed_whatever_is_in_it(how, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        folder = call(hostile.disorder, how=how)
        assert folder.startswith(f"{tmp_path}/lqops-skill-")
    except OutcomeUnknown as unknown:  # the worker has looked at it meanwhile
        if how == "linked" or "what it has on disk cannot be counted: " not in str(unknown):
            raise
    assert tmp_path.exists()
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys, tempfile
from agents.skills.process import own_folder
tempfile.tempdir = sys.argv[1]
with own_folder() as folder:
    open(f"{folder}/file", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folder_of_a_worker_that_was_killed_is_removed_by_the_next_call(tmp_path, monkeypatch):
    folders = tmp_path / "folders"
    folders.mkdir()
    with closing(Program(KILLED, str(folders))) as program:
        program.communicate()
    assert program.returncode == -signal.SIGKILL
    [left] = folders.iterdir()
    assert (left / "file").exists()
    (folders / "lqops-skill-file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    with own_folder() as own:
        assert left.exists(), "it may be that of a call which begins just now"
        for place in folders.iterdir():
            os.utime(place, (1, 1))
        with own_folder() as other:
            assert {Path(own), Path(other), folders / "lqops-skill-file"} == set(folders.iterdir())
    assert [place.name for place in folders.iterdir()] == ["lqops-skill-file"]


# --- What the system keeps about files ---

DONE, NOT_PERMITTED, NOT_SUPPORTED = 0, errno.EPERM, errno.EOPNOTSUPP
CHANGES = {
    **dict.fromkeys(("chmod", "fchmod", "fchmodat", "fchmodat2"), DONE),
    **dict.fromkeys(("utimensat", "utimes", "futimens", "futimens now"), DONE),
    **dict.fromkeys(("utimensat now", "utimes now"), NOT_PERMITTED),
    **dict.fromkeys(("chown", "lchown", "fchown", "fchownat", "file_setattr", "flags", "flags above"), NOT_PERMITTED),
    **dict.fromkeys(("setxattr", "lsetxattr", "fsetxattr", "setxattrat"), NOT_SUPPORTED),
}


def test_modes_times_owners_and_attributes_of_files_stay_as_they_are(needs, secret):
    """Those of a library, which a skill may open, and of a key. It is told that modes and times were changed."""
    needs("network")
    readable = Path(hostile.__file__)
    not_opened = dict.fromkeys(("futimens", "futimens now"), errno.EBADF)
    for path, answers in ((secret, CHANGES | not_opened), (readable, CHANGES)):
        before = _kept(path)
        try:
            found = call(hostile.try_all, acts=[["change", how, str(path)] for how in CHANGES])
            assert _kept(path) == before
        finally:
            path.chmod(before[0])
        assert dict(zip(CHANGES, found, strict=True)) == answers


def _kept(path):
    found = path.stat()
    return found.st_mode, found.st_mtime_ns, found.st_uid, found.st_ctime_ns, os.listxattr(path)


def test_nothing_is_left_in_the_kernel_and_no_memory_is_beside_the_limit(needs):
    needs("network")
    hows = ("shm", "msg", "sem", "mq", "memfd", "memfd_secret")
    assert call(hostile.try_all, acts=[["leave_in_the_kernel", how] for how in hows]) == [errno.ENOSYS] * len(hows)
    for kind in ("shm", "msg", "sem"):
        listed = (Path("/proc/sysvipc") / kind).read_text()
        assert str(0x1C905) not in listed.split()


TAKEN_AT_ONCE = {
    **dict.fromkeys(("disk", "disk beyond the end", "disk by ioctl", "disk by ioctl of 64 bits"), NOT_SUPPORTED),
    **dict.fromkeys(("shared memory", "lease", "child of the worker"), NOT_PERMITTED),
    **dict.fromkeys(("rules", "requests", "watches", "openat2"), errno.ENOSYS),
    **dict.fromkeys(
        ("program", "program of a group", "program without a name", "program by creat", "program as a node"),
        NOT_PERMITTED,
    ),
}


def test_nothing_is_taken_at_once_that_is_counted_too_late_or_by_nobody(needs):
    """A disk that is reserved, shared memory of which one page is kept, what a user has a number of, setuid."""
    needs("network", "processes")
    found = call(hostile.try_all_with_processes, acts=[["take_at_once", how] for how in TAKEN_AT_ONCE])
    assert dict(zip(TAKEN_AT_ONCE, found, strict=True)) == TAKEN_AT_ONCE
    assert call(hostile.reserve_as_libraries_do) == MEGABYTE


# --- The network ---


@pytest.fixture
def servers(tmp_path):
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        local.bind(str(tmp_path / "socket"))
        local.listen()
        port = str(tcp.getsockname()[1])
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
            log.bind(to := str(tmp_path / "log"))
            yield {"tcp": port, "udp": port, "unix": str(tmp_path / "socket"), "pair": to, "raw pair": to, "name": ""}
            with pytest.raises(BlockingIOError):
                log.recv(1, socket.MSG_DONTWAIT)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["tcp", "udp", "unix", "pair", "raw pair", "name"])
def test_error_says_that_there_is_no_network(needs, servers, how):
    needs("network")
    with pytest.raises(SkillFailed, match=r"\(an isolated skill has no network\)"):
        call(hostile.reach, how=how, place=servers[how])


def test_no_server_can_be_reached_and_sockets_within_the_process_work(needs, servers):
    needs("network")
    own, *found = call(hostile.try_all, acts=[["pair"], *(["reach", how, place] for how, place in servers.items())])
    assert own == "hello"
    assert len(found) == len(servers)
    assert "reached" not in found


# --- Other processes ---


def test_worker_cannot_be_signalled_traced_or_outlived_and_limits_cannot_be_raised(needs):
    needs("processes")
    tried = [["signal_parent", 0], ["signal_parent", signal.SIGURG], ["raise_limits"], ["trace_parent"], ["outlive"]]
    *signalled, raised, traced, outlived = call(hostile.try_all, acts=tried)
    assert all(found.startswith("PermissionError") for found in signalled)
    assert "not allowed to raise maximum limit" in raised or "Operation not permitted" in raised
    assert (traced, outlived) == (errno.EPERM, errno.EPERM)


def test_worker_cannot_be_held_back(needs):
    needs("processes")
    hows = ("priority", "priority of a user", "priority of own user", "processors", "plan", "disk")
    before = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)
    tried = [["hold_back_parent", how] for how in hows]
    *found, aside = call(hostile.try_all, acts=[*tried, ["step_aside"]])
    assert found == [errno.EPERM] * len(hows)
    assert aside == before[0] + 1
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)) == before


def test_neither_files_are_sent_nor_folders_watched(needs):
    needs("processes")
    sent, watched = call(hostile.try_all, acts=[["send_a_file"], ["watch_folder"]])
    assert sent.startswith("PermissionError")
    assert watched == errno.EPERM


def test_numbers_that_the_kernel_cuts_are_no_way_around_the_filter(needs):
    needs("processes")
    assert call(hostile.outlive_by_more_bits) == errno.EPERM


def test_ways_around_the_filter_are_closed(needs):
    needs("network", "processes")
    tried = [["call_system", name] for name in ("io_uring_setup", "clone3", "pidfd_getfd")]
    assert call(hostile.try_all, acts=tried) == [errno.ENOSYS, errno.ENOSYS, errno.EPERM]


def test_fork_bomb_starts_nothing(needs):
    needs("processes")
    with pytest.raises(SkillFailed, match=r"BlockingIOError.*reached its limit processes=0; declare it with limits="):
        call(hostile.fork_bomb)


@pytest.mark.long
def test_fork_bomb_of_a_skill_that_may_start_processes_is_bounded_and_ended(tmp_path):
    started = tmp_path / "started"
    # The system does not count the processes of root; then its worker does.
    ends, words = (OutcomeUnknown, "ended with") if os.getuid() == 0 else (SkillFailed, "BlockingIOError")
    with pytest.raises(ends, match=rf"{words}.*reached its limit processes=4; declare it"):
        call(hostile.fork_bomb_with_leave, path=str(started))
    numbers = [int(number) for number in started.read_text().split()]
    assert 0 < len(numbers) <= 100
    until(lambda: not any(map(is_alive, numbers)))


@pytest.mark.long
def test_threads_are_bounded():
    words = "ended with" if os.getuid() == 0 else "can't start new thread"
    with pytest.raises((OutcomeUnknown, SkillFailed), match=words):
        call(hostile.start_threads)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["deep", "plain"])
def test_processes_left_behind_are_killed(how):
    left = call(hostile.leave_children, how=how)

    assert len(left) == (2 if how == "deep" else 1)
    until(lambda: not any(map(is_alive, left)))


def test_process_cannot_leave_its_session(needs):
    needs("processes")
    with pytest.raises(SkillFailed, match="PermissionError"):
        call(hostile.leave_session)


# --- Limits ---


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("skill", "arguments", "limit"),
    [
        (hostile.take_memory, {"megabytes": 4_096}, "memory_mb=2048"),
        (hostile.take_memory_by_and_by, {}, "memory_mb=512"),
        (hostile.write_without_end, {}, "file_mb=1"),
        (hostile.open_without_end, {}, "open_files=40"),
    ],
)
def test_error_names_the_limit_and_how_to_raise_it(skill, arguments, limit):
    with pytest.raises(SkillFailed) as failed:
        call(skill, **arguments)
    name = limit.partition("=")[0]
    assert f"it reached its limit {limit}; declare it with limits=Limits({name}=…) to raise it" in str(failed.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["deleted", "mapped", "named"])
def test_all_files_of_a_call_together_are_limited(how, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "folders"))
    (tmp_path / "folders").mkdir()
    progress = tmp_path / "progress"
    skill = replace(hostile.fill_folder, folders=(str(tmp_path),))

    with pytest.raises(
        OutcomeUnknown, match=r"ended with .* \(it reached its limit folder_mb=16; declare it with limits="
    ):
        call(skill, how=how, progress=str(progress))

    written = [int(line) for line in progress.read_text().split()]
    assert max(written) >= 16, "it was able to write"
    assert max(written) < 400, "of 3,200: what it writes in a twentieth of a second, and more where others work, too"
    assert list((tmp_path / "folders").iterdir()) == []


def test_number_of_files_is_limited():
    with pytest.raises(
        OutcomeUnknown, match=r"ended with .* \(it reached its limit files=100; declare it with limits="
    ):
        call(hostile.make_many_files)


def test_memory_of_all_processes_of_a_call_is_limited(needs):
    needs("limits", "processes")
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match=r"ended with .* \(it reached its limit memory_mb=300; declare it with"):
        call(hostile.take_memory_together)
    assert time.monotonic() - started < 25, "ended before it ended by itself"


def test_endless_calculation_ends_at_its_limit():
    with pytest.raises(OutcomeUnknown, match=r"ended with code -24 \(it reached its limit cpu_seconds=1; declare it"):
        call(hostile.calculate_without_end)


def test_process_is_killed_at_its_timeout(tmp_path):
    with pytest.raises(SkillTimeout, match="exceeded its timeout of 3 s"):
        call(hostile.wait_without_end, path=str(tmp_path / "pid"))
    pid = (tmp_path / "pid").read_text()
    assert not is_alive(int(pid))


def test_process_is_killed_at_a_halt(tmp_path):
    written = tmp_path / "pid"
    with pytest.raises(SkillStopped):
        call(hostile.wait_without_end, path=str(written), stopped=written.exists)
    assert not is_alive(int(written.read_text() or 0))


# --- The way back ---


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", sorted(hostile.GARBAGE.keys() - {"error"}))
def test_garbage_in_the_pipe_is_no_result(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutcomeUnknown, match="write_back wrote something that is not a result"):
        call(hostile.write_back, what=what)
    assert list(tmp_path.iterdir()) == []  # nothing was unpickled


@pytest.mark.long
def test_gigabyte_in_the_pipe_is_not_read():
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="write_back wrote something that is not a result"):
        call(hostile.write_back, what="gigabyte")
    assert time.monotonic() - started < hostile.write_back.timeout_seconds / 2


def test_error_of_a_process_is_cut():
    with pytest.raises(SkillFailed) as failed:
        call(hostile.write_back, what="error")
    assert len(str(failed.value)) == MAX_ERROR_CHARS


def test_long_error_is_cut():
    with pytest.raises(SkillFailed, match="ValueError: xxx") as failed:
        call(hostile.fail_at_length)
    assert len(str(failed.value)) == MAX_ERROR_CHARS


def test_result_that_is_too_long_fails():
    with pytest.raises(SkillFailed, match=r"TooLong: its result has 5,000,\d{3} characters; 4,000,000 are allowed"):
        call(hostile.return_much)


def test_result_that_is_no_json_fails():
    with pytest.raises(SkillFailed, match="TypeError: Object of type Hostile is not JSON serializable"):
        call(hostile.return_odd)


def test_long_arguments_arrive():
    with pytest.raises(SkillFailed, match="File name too long"):
        call(hostile.read, path="x" * 1_000_000)


def test_process_that_ends_before_it_starts_the_skill_fails(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SkillFailed, match="read did not start: its process ended with code 1"):
        call(hostile.read, path="x" * 1_000_000)


def test_skill_that_is_not_in_its_module_fails():
    with pytest.raises(SkillFailed, match=r"LookupError: the module tests\..*samples holds no skill read"):
        call(replace(hostile.read, module="tests.agents.skills.samples"), path="")


# --- Systems that allow less ---


def test_probe_is_able_to_do_everything_where_nothing_confines_it(tmp_path, servers):
    (tmp_path / "file").write_text("")
    files = [str(tmp_path / "file"), str(tmp_path / "missing")]

    less = patch("agents.skills.probe.DEFAULT_LIMITS", replace(DEFAULT_LIMITS, memory_mb=64))  # it is really taken
    with less, patch("os.getppid", os.getpid):  # the parent of a test may be anybody's
        able = probe.run(
            variables=[], files=files, port=int(servers["tcp"]), path=servers["unix"], file=str(tmp_path / "file")
        )

    assert len(able["environment"]) > 1
    assert able["files"] == [f"open {tmp_path / 'file'}", f"open /proc/{os.getpid()}/environ"]
    assert able["network"] == [
        "connect by TCP",
        "send by UDP",
        "connect to a program of this machine",
        "have a socket with an address",
    ]
    assert able["processes"] == ["send signals to its worker", "start processes"]
    assert "write more than its limit" in able["limits"]
    assert able["memory"] == ["have memory beside its limit", "leave memory behind", "share memory without a file"]
    assert able["metadata"][:3] == ["change modes of files", "change times of files", "change owners of files"]
    with patch("agents.skills.probe.LEFT_SECONDS", 0):
        assert fill.run() is None


def test_probe_is_not_taken_in_by_calls_that_do_nothing(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    nothing, no_memory = MagicMock(), MagicMock()
    no_memory.return_value.shmget.return_value = -1
    with (
        patch("agents.skills.probe.DEFAULT_LIMITS", replace(DEFAULT_LIMITS, memory_mb=64)),
        patch.object(Path, "chmod", nothing),
        patch("os.utime", nothing),
        patch("ctypes.CDLL", no_memory),
    ):
        able = probe.run(variables=[], files=[], port=1, path="", file=str(file))

    assert nothing.call_count == 2
    assert not {"change modes of files", "change times of files"} & set(able["metadata"])
    assert able["memory"] == ["have memory beside its limit", "share memory without a file"]


def test_report_tells_of_a_skill_that_fills_the_disk(monkeypatch):
    monkeypatch.setattr(usage.Usage, "look", lambda self: None)
    assert isolation_report()["disk"] == f"a skill can {FILLED}"


def test_report_fails_if_the_disk_cannot_be_tried():
    def run(skill, *given, **options):
        if skill is fill:
            raise OutcomeUnknown("it ended otherwise")
        return run_isolated(skill, *given, **options)

    trying = patch(f"{isolation_report.__module__}.run_isolated", side_effect=run)
    with trying, pytest.raises(SkillFailed, match="it ended otherwise"):
        isolation_report()


@pytest.mark.parametrize("failure", [SkillTimeout(probe), OutcomeUnknown("it ended")])
def test_report_fails_with_one_error(failure):
    failing = patch(f"{isolation_report.__module__}.run_isolated", side_effect=failure)
    with failing, pytest.raises(SkillFailed, match=r"exceeded its timeout|it ended"):
        isolation_report()


def test_missing_filter_is_reported_and_strict_refuses(monkeypatch, settings):
    monkeypatch.setattr(isolation, "filter_of", lambda *, may_start_processes: b"")

    report = isolation_report()

    assert report["environment"] == report["limits"] == report["files"] == report["disk"] == ""
    assert "a skill can change modes of files" in report["metadata"]
    assert report["memory"].startswith("libseccomp is not installed; a skill can have memory beside its limit")
    assert report["network"].startswith("libseccomp is not installed; a skill can ")
    assert "connect to a program of this machine" in report["network"]
    assert "a skill can start processes" in report["processes"]
    assert call(hostile.write, path="file") == "written"
    settings.LQOPS_SKILL_ISOLATION = "STRICT"
    with pytest.raises(SkillFailed, match="NotConfined: metadata: libseccomp is not installed; memory: libsecc"):
        perform(hostile.write, make_context(), {"path": "file"})
