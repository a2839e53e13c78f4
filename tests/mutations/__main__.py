"""`make mutants`: change the guard, the policy, the ledger and the approvals in small ways; a test must fail each time.

A sample of the mutants by seed, which is printed. First the tests of their rooms run once, and every function notes
which of them call it. Then each mutant runs in a process of its own, forked from the one that has loaded everything, on
a copy of one database, against the tests that call its function; the first failure ends it and is printed. A test that
fails counts only if it passes in such a process without the change.
"""

import argparse
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import closing
from importlib import import_module
from pathlib import Path

from tests.mutations.mutants import mutants_of, note_calls

ROOMS = {
    "agents/guard": "tests/agents/guard tests/agents/sessions tests/agents/skills tests/agents/test_runner.py"
    " tests/agents/test_tracing.py",
    "agents/policy": "tests/agents/policy tests/agents/guard tests/agents/loop/test_guardrails.py tests/agents/engine"
    " tests/agents/people tests/lqops/test_model_catalogue.py",
    "agents/ledger": "tests/agents/ledger tests/agents/guard tests/agents/sessions tests/agents/test_runner.py"
    " tests/flows/test_books.py tests/agents/triggers/test_inputs.py tests/agents/triggers/test_trigger_life.py"
    " tests/agents/management/test_models_command.py",
    "agents/sessions/approvals.py": "tests/agents/sessions tests/agents/skills/test_guarded_skills.py",
    "agents/sessions/second_eyes.py": "tests/agents/sessions",
    "agents/people/delegations.py": "tests/agents/people/test_delegations.py tests/agents/sessions/test_second_eyes.py",
}
SLOWER = 5  # times the tests without a change: a mutant that takes longer hangs, and is found out by that
GRACE = 120  # seconds more: a failing property is searched for a short example, and the machine may be busy
BAR = 90
LEAST = 10  # mutants below which a share says nothing, unless fewer were asked for
BROKEN = 99  # the exit code of a mutant that changed nothing, or could not be put in place
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "--reuse-db", "--no-header", "-m", "not stress"]


class FirstFailure:
    """A plugin of pytest: the first test that fails is written to a file, for the parent."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.file.exists():
            crash = getattr(report.longrepr, "reprcrash", None)
            message = (crash.message if crash else report.longreprtext).strip().partition("\n")[0]
            self.file.write_text(f"{report.nodeid}\n{message[:150]}")


class Callers:
    """A plugin of pytest: which tests call a function of the files, and how long they take."""

    def __init__(self, files):
        self.files, self.called = files, set()
        self.tests, self.seconds = defaultdict(dict), Counter()

    def pytest_collection_finish(self):
        for file in self.files:
            import_module(".".join(file.with_suffix("").parts))
            note_calls(file, self.called)

    def pytest_runtest_logstart(self):
        self.called.clear()

    def pytest_runtest_logreport(self, report):
        self.seconds[_test(report.nodeid)] += report.duration

    def pytest_runtest_logfinish(self, nodeid):
        for function in self.called:
            self.tests[function][_test(nodeid)] = True

    def of(self, mutant):
        """The tests of a mutant, and how many seconds they may take."""
        tests = list(self.tests[str(mutant.path), mutant.function])
        return tests, GRACE + SLOWER * sum(self.seconds[test] for test in tests)


def main():
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--minutes", type=float, default=600, help="Stop after the mutant that is under way then.")
    parser.add_argument("--only", default="", help="A regular expression: only mutants whose printed line it finds.")
    parser.add_argument("--tests", default="", help="Files or folders, instead of the tests of the rooms.")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lqops-mutants-"))
    os.environ |= {"LQOPS_TEST_VAR_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    try:
        return judge(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(options, folder):
    import pytest

    files = {file: room for room in ROOMS for file in _files(Path(room))}
    if empty := sorted(ROOMS.keys() - files.values()):
        print(f"There is nothing to change in {', '.join(empty)}: correct ROOMS.")
        return 1
    every = [mutant for file in files for mutant in mutants_of(file) if re.search(options.only, str(mutant))]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    print(f"seed {options.seed}: {len(chosen)} of {len(every)} mutants", flush=True)
    print("every test passes before anything is changed:", flush=True)
    callers = Callers(sorted({mutant.path for mutant in chosen}))
    tests = options.tests or " ".join({ROOMS[files[mutant.path]]: True for mutant in chosen})
    if pytest.main([*PYTEST, "--create-db", *dict.fromkeys(tests.split())], plugins=[callers]) != 0:
        return 1
    _copy_database(folder / "test.sqlite3", folder / "kept.sqlite3")
    end, tried, survivors, trusted = time.monotonic() + 60 * options.minutes, Counter(), [], set()
    for mutant in chosen:
        if time.monotonic() > end:
            break
        failure = _failure(mutant, *callers.of(mutant), folder)
        test = failure.partition("\n")[0]
        if "::" in test and test not in trusted:
            if again := _failure(None, [_test(test)], 600, folder):
                print(f"This test fails without a change, too; its verdict on mutants would mean nothing.\n{again}")
                return 1
            trusted.add(test)
        tried[files[mutant.path]] += 1
        survivors += [] if failure else [(mutant, files[mutant.path])]
        verdict = "killed" if failure else "SURVIVED"
        print(f"{tried.total():4} {verdict} {mutant}", *failure.splitlines(), sep="\n          ", flush=True)
    return _report(options.seed, tried, survivors, len(chosen))


def _report(seed, tried, survivors, chosen):
    """Print how many mutants a test has found, and return 1 if that were too few, or too few were tried."""
    lived = Counter(room for _, room in survivors)
    for room, count in tried.items():
        print(f"{room}: {count - lived[room]} of {count} killed")
    share = 100 * (1 - len(survivors) / max(tried.total(), 1))
    print(f"seed {seed}: {tried.total()} mutants, {share:.1f} % killed; survivors:")
    print("\n".join(f"  {mutant}" for mutant, _ in survivors))
    if tried.total() < min(LEAST, chosen) or not chosen:
        print(f"FAILED: {tried.total()} mutants were tried, and at least {min(LEAST, chosen) or 1} are expected.")
        return 1
    return 0 if share >= BAR else 1


def _files(room):
    return [room] if room.suffix else [one for one in sorted(room.glob("*.py")) if one.name != "__init__.py"]


def _test(nodeid):
    """A test with all its rows."""
    return nodeid.partition("[")[0]


def _copy_database(source, target):
    """Copy a database, if the tests have one, with what its log holds; the log of the target is not to be read."""
    if not source.exists():
        return
    for old in target.parent.glob(f"{target.name}*"):
        old.unlink()
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def _failure(mutant, tests, seconds, folder):
    """Return the first test that fails and its message, or nothing."""
    if not tests:
        return ""
    _copy_database(folder / "kept.sqlite3", folder / "test.sqlite3")
    file = folder / "failure"
    file.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _try(mutant, tests, file)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, 1) or (code == 1) != file.exists():
                raise RuntimeError(f"{mutant}: the tests could not be run (exit code {code})")
            return file.read_text() if code else ""
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"the time: more than {seconds:.0f} seconds"


def _try(mutant, tests, file):
    """In the child: change the product, run the tests, and leave with their result."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    code = BROKEN
    try:
        if mutant is None or mutant.put_in_place():
            code = int(pytest.main([*PYTEST, *tests], plugins=[FirstFailure(file)]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
