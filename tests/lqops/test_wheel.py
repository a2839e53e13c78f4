"""The wheel: what it holds, and an installation of it that is started from an empty folder."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .processes import ROOT

pytestmark = pytest.mark.long  # tests/lqops/test_data_folder.py has the decisions

KEPT_FOLDERS = ("lqops", "audit", "agents", "docs", "samples", "templates")
KEPT_FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "manage.py", "requirements.lock")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
NOT_SHIPPED = ("lqops/docs/decisions/", "lqops/docs/images/")


def start(*arguments, cwd, env):
    return subprocess.run(
        arguments, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this source; built from a copy, for building writes beside it."""
    folder = tmp_path_factory.mktemp("source")
    for name in KEPT_FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in KEPT_FILES:
        shutil.copy(ROOT / name, folder)
    done = start(sys.executable, "-c", BUILD, str(folder), cwd=folder, env=None)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("lqops-*.whl")
    return built


@pytest.fixture(scope="module")
def packages(wheel, tmp_path_factory):
    """The folder into which pip has installed the wheel, with its command in bin/."""
    folder = tmp_path_factory.mktemp("site-packages")
    pip = ("-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-deps", "--no-index")
    done = start(sys.executable, *pip, "--target", str(folder), str(wheel), cwd=folder, env=None)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def lqops(packages, tmp_path, monkeypatch):
    """Run the installed command from an empty folder. What it depends on comes from the environment of the tests."""
    home, empty = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    empty.mkdir()
    shutil.rmtree(packages / "var", ignore_errors=True)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(packages),
        "LQOPS_WORKERS": "1",
        "LQOPS_SQLITE_SYNCHRONOUS": "NORMAL",
    }
    command = (sys.executable, str(packages / "bin/lqops"))
    return lambda *arguments: start(*command, *arguments, cwd=empty, env=env)


def test_wheel_holds_everything_that_an_installation_reads(wheel):
    shipped = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        f"{prefix}{path.relative_to(ROOT)}"
        for folder, prefix in {
            "templates": "lqops/",
            "samples": "lqops/",
            "docs": "lqops/",
            "audit": "",
            "agents": "",
        }.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert len(needed) > 600
    assert {name for name in needed - shipped if not name.startswith(NOT_SHIPPED)} == set()
    for part in (
        "lqops/templates/admin/",
        "lqops/samples/agents/",
        "agents/static/",
        "agents/migrations/",
        "lqops/docs/",
    ):
        assert any(name.startswith(part) for name in needed), part


def test_wheel_puts_nothing_beside_its_packages(wheel):
    beside = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {name for name in beside if not name.endswith(".dist-info")} == {"lqops", "audit", "agents"}


def test_installed_wheel_passes_its_check_from_an_empty_folder(lqops, packages, tmp_path):
    done = lqops("up", "--check")
    data = tmp_path / "home/.local/share/lqops"
    summary = json.loads(done.stdout.splitlines()[-1])

    assert done.returncode == 0, done.stdout + done.stderr
    assert summary["ok"] is True
    assert summary["walk"]["findings"] > 0  # of the samples
    assert set(summary["pages"].values()) == {200}
    assert len(summary["pages"]) > 2  # the sign-in page and its style sheets
    assert done.stdout.splitlines()[0] == f"Data: {data}"
    assert {"lqops.sqlite3", "secret_key", "audit_key", "webhook_key", "media"} <= {
        path.name for path in data.iterdir()
    }
    assert {path for path in data.rglob("*") if path.stat().st_mode & 0o077} == set()
    assert not data.stat().st_mode & 0o077
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (packages / "var").exists()


def test_commands_of_an_installed_wheel_share_one_folder(lqops, tmp_path):
    migrated = lqops("migrate", "--verbosity", "0")
    moved = tmp_path / "empty/var"
    (tmp_path / "home/.local/share/lqops").rename(moved)
    checked = lqops("doctor")

    assert migrated.returncode == 0, migrated.stderr
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.splitlines()[0] == f"Data: {moved}"
    assert not (tmp_path / "home/.local/share/lqops").exists()


def test_installed_wheel_does_not_begin_anew_beside_the_data_of_an_earlier_version(lqops, packages, tmp_path):
    old = packages / "var"
    old.mkdir()
    (old / "lqops.sqlite3").touch()

    refused = lqops("up", "--check")
    harmless = lqops("up", "--help")

    assert refused.returncode != 0
    assert f"kept its data in {old}" in refused.stderr
    assert json.loads(refused.stdout.splitlines()[-1])["ok"] is False
    assert harmless.returncode == 0
    assert list((tmp_path / "home").iterdir()) == []
