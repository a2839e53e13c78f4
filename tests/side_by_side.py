"""Run the collected tests in several processes: `--workers 3`.

The tests are collected once, and each worker is a fork of the process that collected them. A worker asks for a file,
runs its tests and reports them, until no file is left. Files are given out in the order of their first tests.
"""

import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace

import pytest

# One worker runs the files of a group: they share an installation, furnished or otherwise, or need much of a server.
TOGETHER = (
    tuple(f"tests/browser/test_{name}" for name in ("accessibility", "jobs", "narrow")),
    ("tests/browser/test_levers",),  # has installations of its own, as long as the others together take
    ("tests/browser/",),
    # Up to fifty threads have a connection to PostgreSQL each: side by side they would need more than it gives.
    ("tests/flows/test_races", "tests/flows/test_skills", "tests/flows/test_spawn_races"),
)


class Hooks:
    """The hook that this plugin adds."""

    def pytest_worker_started(self, worker):
        """Give this worker, which is called gw0 or so, files and databases of its own."""


def pytest_addhooks(pluginmanager):
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser):
    parser.addoption("--workers", type=int, default=0, help="Run the tests in so many processes. Default: in this one.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:  # pytest says what cannot be collected
        return None
    if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
        reporter.showfspath = False  # names of files would come in turns
    run = _Run(session)
    try:
        run.start(min(options.workers, len(run.files)))
        run.follow()
    except BaseException:
        run.stop()
        run.follow()
        raise
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    run.fail_unfinished()
    return True


class _Run:
    """The side of the process that collected the tests: it gives out files and passes reports on."""

    def __init__(self, session):
        self.session, self.hook = session, session.config.hook
        self.files = _files(session.items)
        self._left = iter(range(len(self.files)))
        self._unfinished = {item.nodeid: item for item in session.items}
        self._workers: dict[Connection, int] = {}
        self._current: dict[Connection, str] = {}
        self._causes: dict[str, str] = {}
        self._statuses: dict[Connection, int] = {}  # of workers that have ended

    def start(self, count):
        folder = self.session.config._tmp_path_factory.getbasetemp()
        for number in range(count):
            ours, theirs = Pipe()
            if not (pid := os.fork()):
                for other in (ours, *self._workers):
                    other.close()  # or nobody would see the end of another process
                _work(self.session, self.files, theirs, folder / f"gw{number}")
            theirs.close()
            self._workers[ours] = pid

    def follow(self):
        """Pass on what the workers report, until the last of them has ended."""
        while self._workers:
            for connection in wait(self._workers, timeout=1):
                try:
                    kind, *content = connection.recv()
                except (EOFError, ConnectionError):
                    kind, content = "end", []
                getattr(self, f"_on_{kind}")(connection, *content)
            for connection in filter(self._has_ended, [*self._workers]):
                self._on_end(connection)
            if self.session.shouldfail:
                self.stop()

    def stop(self):
        """Interrupt the workers. They tear down what their tests have made."""
        self._left = iter(())
        for connection, pid in self._workers.items():
            if connection not in self._statuses:
                os.kill(pid, signal.SIGINT)

    def fail_unfinished(self):
        """Report each test that a worker did not finish: one that broke off must not look like one that passed."""
        for nodeid, item in self._unfinished.items():
            early = self._causes.get("", "It was not run: the worker that had its file ended before.")
            cause = self._causes.get(nodeid, early)
            report = pytest.TestReport(nodeid, item.location, {}, "failed", cause, "call")
            self.hook.pytest_runtest_logreport(report=report)

    def _has_ended(self, connection):
        """A process that a test has left behind may keep the connection of an ended worker open."""
        if connection not in self._statuses:
            pid, status = os.waitpid(self._workers[connection], os.WNOHANG)
            self._statuses |= {connection: status} if pid else {}
        return connection in self._statuses and not connection.poll()

    def _on_more(self, connection):
        with suppress(ConnectionError):  # it has ended meanwhile, which is told next
            connection.send(next(self._left, None))

    def _on_logstart(self, connection, nodeid, location):
        self._current[connection] = nodeid
        self.hook.pytest_runtest_logstart(nodeid=nodeid, location=location)

    def _on_logfinish(self, connection, nodeid, location, reports):
        for data in reports:
            report = self.hook.pytest_report_from_serializable(config=self.session.config, data=data)
            self.hook.pytest_runtest_logreport(report=report)
        del self._unfinished[self._current.pop(connection)]
        self.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    def _on_error(self, connection, text):
        self._causes[self._current.get(connection, "")] = text

    def _on_end(self, connection):
        pid = self._workers.pop(connection)
        status = self._statuses[connection] if connection in self._statuses else os.waitpid(pid, 0)[1]
        connection.close()
        if nodeid := self._current.pop(connection, None):
            code = os.waitstatus_to_exitcode(status)
            self._causes.setdefault(nodeid, f"The worker that ran {nodeid} ended with exit code {code}.")


def _files(items):
    """Group the tests by file, in the order of the first test of each."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        files.setdefault(next((names[0] for names in TOGETHER if file.startswith(names)), file), []).append(item)
    return [*files.values()]


# --- The side of a worker ---


class _Reports:
    """Sends what pytest reports: the beginning of a test, and the rest at its end."""

    def __init__(self, config, connection):
        self._config, self._send, self._reports = config, connection.send, []
        self._needs_all = config.option.durations is not None

    def pytest_runtest_logstart(self, nodeid, location):
        self._send(("logstart", nodeid, location))

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "call" and not (report.sections or self._needs_all):
            return  # it would change nothing that is shown
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self, nodeid, location):
        self._send(("logfinish", nodeid, location, self._reports))
        self._reports = []


def _work(session, files, connection, folder):
    """Run tests in this process, which is a worker, and end it."""
    code = 1
    try:
        _become_worker(session.config, connection, folder)
        tests = _given(files, connection)
        item = next(tests, None)
        while item:
            following = next(tests, None)  # what the two share is not torn down between them
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        code = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):  # or the process that reads the reports is gone
        session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 it is reported as the failure of its test
        connection.send(("error", traceback.format_exc()))
    finally:
        if "coverage" in sys.modules and (measured := sys.modules["coverage"].Coverage.current()):
            measured.stop()
            measured.save()
        os._exit(code)


def _become_worker(config, connection, folder):
    def interrupt(*_):
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal interrupts the workers, and so does `stop`
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    config.workerinput = {"workerid": folder.name}  # by which pytest and pytest-django know that they are in a worker
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder
    plugins = config.pluginmanager
    if capture := plugins.get_plugin("capturemanager"):  # it writes into a file that all workers would share
        capture.stop_global_capturing()
        capture.start_global_capturing()
        for handler in logging.getLogger().handlers:  # or each record would be a traceback of the closed file
            if getattr(getattr(handler, "stream", None), "closed", False):
                handler.stream = sys.stderr
    if reporter := plugins.get_plugin("terminalreporter"):
        plugins.unregister(reporter)
        plugins.register(SimpleNamespace(_tw=reporter._tw), "terminalreporter")  # a timeout writes to it
    plugins.register(_Reports(config, connection))
    config.hook.pytest_worker_started(worker=folder.name)


def _given(files, connection):
    """Yield the tests of the files that this worker is given."""
    connection.send(("more",))
    while (number := connection.recv()) is not None:
        yield from files[number]
        connection.send(("more",))
