"""`make mutants`: change the guard, the policy, the ledger and the approvals in small ways; a test must fail each time.

A sample of the mutants by seed, which is printed. Each runs in a process of its own, forked from one that has loaded
everything, on a copy of one database, against the tests of its room; the first failure ends it.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOMS = {
    "agents/guard": "tests/agents/guard tests/agents/sessions tests/agents/skills tests/agents/test_runner.py",
    "agents/policy": "tests/agents/policy tests/agents/guard tests/agents/loop/test_guardrails.py tests/agents/engine",
    "agents/ledger": "tests/agents/ledger tests/agents/guard tests/agents/test_runner.py tests/flows/test_books.py",
    "agents/sessions/approvals.py": "tests/agents/sessions tests/agents/skills/test_guarded_skills.py",
}
SECONDS = 240  # for the tests of one mutant; one that takes longer hangs, and is found out by that
BAR = 90
NOWHERE = 99  # the exit code of a mutant that changed nothing
PYTEST = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--reuse-db", "--no-header", "-m", "not stress"]


def main():
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--minutes", type=float, default=600, help="Stop after the mutant that is under way then.")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lqops-mutants-"))
    os.environ |= {"LQOPS_TEST_VAR_DIR_alone": str(folder), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    try:
        return judge(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(options, folder):
    import pytest

    from tests.mutations.mutants import mutants_of

    files = [(path, room) for room in ROOMS for path in _files(Path(room))]
    tests = sorted({one for room in ROOMS.values() for one in room.split()})
    print("every test passes before anything is changed:", flush=True)
    if pytest.main([*PYTEST, "--create-db", *tests]) != 0:
        return 1
    kept = folder / "kept.sqlite3"
    shutil.copy(folder / "test.sqlite3", kept)
    every = [(mutant, ROOMS[room].split()) for path, room in files for mutant in mutants_of(path)]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    print(f"seed {options.seed}: {len(chosen)} of {len(every)} mutants", flush=True)
    control = ["tests/agents/policy", "tests/agents/ledger"]
    if not _survives(None, control):
        print("The tests fail in a forked process without any change; their verdict on mutants would mean nothing.")
        return 1
    end, survivors, tried = time.monotonic() + 60 * options.minutes, [], 0
    for mutant, room in chosen:
        if time.monotonic() > end:
            break
        shutil.copy(kept, folder / "test.sqlite3")
        tried += 1
        survived = _survives(mutant, room)
        survivors += [mutant] if survived else []
        print(f"{tried:4} {'SURVIVED' if survived else 'killed  '} {mutant}", flush=True)
    share = 100 * (tried - len(survivors)) / max(tried, 1)
    print(f"seed {options.seed}: {tried} mutants, {tried - len(survivors)} killed ({share:.1f} %)")
    print("\n".join(f"  {mutant}" for mutant in survivors))
    return 0 if share >= BAR else 1


def _files(room):
    return [room] if room.suffix else [one for one in sorted(room.glob("*.py")) if one.name != "__init__.py"]


def _survives(mutant, room):
    """Whether all tests of its room pass; without a mutant they have to."""
    pid = os.fork()
    if pid == 0:
        _try(mutant, room)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            assert code != NOWHERE, f"{mutant}: no function of the product has this code"
            return code == 0
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _try(mutant, room):
    """In the child: change the product, run the tests, and leave with their result."""
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    code = 1
    try:
        if mutant is not None and mutant.put_in_place() == 0:
            os._exit(NOWHERE)
        code = int(pytest.main([*PYTEST, *room]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
