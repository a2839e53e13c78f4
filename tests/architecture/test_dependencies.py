"""Dependencies: each has a lower and an upper bound, and the lock file of releases fits them."""

import re
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
EVERY = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *chain(*EXTRAS.values())]
RELEASED = re.search(r"^RELEASED_EXTRAS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[
    1
].split()
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
LOCKED = re.compile(r"^([\w.-]+)==(\S+)(?: ; [^\\]+)? \\$")


def locked():
    """Each locked package with its version and its number of hashes."""
    found = {}
    for line in LOCK.splitlines():
        if entry := LOCKED.match(line):
            name = canonicalize_name(entry[1])
            found[name] = [entry[2], 0]
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
            found[name][1] += 1
    return found


@pytest.mark.parametrize("dependency", sorted(set(EVERY)))
def test_dependency_has_a_lower_and_an_upper_bound(dependency):
    operators = {bound.operator for bound in Requirement(dependency).specifier}

    assert operators == {">=", "<"}, "write name>=oldest,<next"


@pytest.mark.parametrize("extra", ["", *RELEASED])
def test_lock_file_holds_what_a_release_needs(extra):
    found = locked()
    for dependency in EXTRAS[extra] if extra else PROJECT["project"]["dependencies"]:
        required = Requirement(dependency)
        version, hashes = found[canonicalize_name(required.name)]

        assert required.specifier.contains(version), f"{required} is locked to {version}: run make lock"
        assert hashes > 0


def test_lock_file_names_no_server():
    assert not re.search(r"://|--index|--find-links|@ ", LOCK)


def test_released_extras_are_all_but_those_for_developers():
    assert set(RELEASED) == EXTRAS.keys() - {"bench", "docs", "browser", "dev", "lint", "release"}
