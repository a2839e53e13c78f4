"""Where the data is: in a clone, as an installed package, after an earlier version, and for commands without data."""

import json
import os
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command, get_commands

from lqops.cli import WITHOUT_DATA, needs_data
from lqops.data_folder import SIGNS_OF_DATA, data_folder, holds_data, is_clone
from lqops.env import Env

from .processes import ROOT, command, environment, run


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder of installed packages, with an empty current folder and a home folder beside it."""
    code = tmp_path / "venv/lib/site-packages"
    (code / "lqops-0.1.0.dist-info").mkdir(parents=True)
    for folder in ("home", "current"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return code


def data_in(folder, sign=SIGNS_OF_DATA[0]):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / sign).write_text("kept")
    return folder


def test_clone_keeps_its_data_beside_manage_py_wherever_it_is_started(tmp_path, monkeypatch):
    data_in(tmp_path / "var")
    monkeypatch.chdir(tmp_path)

    assert is_clone(ROOT)
    assert data_folder({}, code=ROOT).path == ROOT / "var"
    assert data_folder({"LQOPS_VAR_DIR": ""}, code=ROOT).path == ROOT / "var"


def test_named_folder_comes_first(installed, tmp_path):
    data_in(Path("var"))

    assert data_folder({"LQOPS_VAR_DIR": "/srv/lqops"}, code=ROOT).path == Path("/srv/lqops")
    assert data_folder({"LQOPS_VAR_DIR": "/srv/lqops"}, code=installed).path == Path("/srv/lqops")
    assert data_folder({"LQOPS_VAR_DIR": "mine"}, code=installed).path == tmp_path / "current/mine"


@pytest.mark.parametrize("sign", SIGNS_OF_DATA)
def test_installed_package_uses_data_in_the_current_folder(installed, tmp_path, sign):
    found = data_in(tmp_path / "current/var", sign)

    assert data_folder({"XDG_DATA_HOME": "/elsewhere"}, code=installed).path == found


@pytest.mark.parametrize("content", [(), ("secret_key",), ("log", "cache")])
def test_other_folder_named_var_is_left_alone(installed, tmp_path, content):
    for name in content:
        data_in(tmp_path / "current/var", name)

    assert data_folder({}, code=installed).path == tmp_path / "home/.local/share/lqops"


def test_installed_package_uses_the_users_data_folder(installed, tmp_path):
    home = tmp_path / "home/.local/share/lqops"

    assert data_folder({}, code=installed).path == home
    assert data_folder({"XDG_DATA_HOME": "/data"}, code=installed).path == Path("/data/lqops")
    assert data_folder({"XDG_DATA_HOME": "relative"}, code=installed).path == home
    assert not home.exists()


def test_data_in_a_folder_of_another_user_is_no_data_of_ours(installed, tmp_path, monkeypatch):
    here = data_in(tmp_path / "current/var")
    monkeypatch.setattr(os, "geteuid", lambda: here.stat().st_uid + 1)

    assert f"{here} holds data of lqops and belongs to another user" in data_folder({}, code=installed).fault
    assert data_folder({"LQOPS_VAR_DIR": str(here)}, code=installed).fault == ""


def test_user_without_a_home_folder_is_told_to_name_one(installed, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)

    assert "set LQOPS_VAR_DIR" in data_folder({}, code=installed).fault


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nname = "lqops"\n'}, True),
        ({"pyproject.toml": '[project]\nname = "lqops"\n', "lqops.egg-info/PKG-INFO": "as an editable one"}, True),
        ({"pyproject.toml": '[project]\nname = "another"\n', "manage.py": ""}, False),
        ({"pyproject.toml": '[project]\nname = "lqops"\n', "lqops-0.1.0.dist-info/RECORD": ""}, False),
        ({"manage.py": "", "var/.keep": ""}, False),
        ({}, False),
    ],
)
def test_clone_is_told_from_installed_packages(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert is_clone(tmp_path) is expected


# --- Data that an earlier version kept beside the installed packages ---


def test_start_refuses_to_begin_anew_beside_data_of_an_earlier_version(installed, tmp_path):
    old, new = data_in(installed / "var"), tmp_path / "home/.local/share/lqops"

    with pytest.raises(ImproperlyConfigured) as refused:
        Env({}).data_folder(code=installed)

    assert f"kept its data in {old}" in str(refused.value)
    assert f"mkdir -p {new} && mv {old}/* {new}/" in str(refused.value)


def test_command_that_moves_the_data_of_an_earlier_version_works(installed, tmp_path):
    data_in(installed / "var", "a b")
    data_in(installed / "var")
    shared = {"XDG_DATA_HOME": str(tmp_path / "with space")}
    told = data_folder(shared, code=installed).fault

    subprocess.run(told.partition("move it: ")[2].partition("  (")[0], shell=True, check=True)

    found = data_folder(shared, code=installed)
    assert (found.fault, found.unused) == ("", None)
    assert {path.name for path in found.path.iterdir()} == {"a b", SIGNS_OF_DATA[0]}


def test_data_of_an_earlier_version_beside_newer_data_is_mentioned(installed, tmp_path):
    old = data_in(installed / "var")
    newer = data_in(tmp_path / "home/.local/share/lqops")

    found = data_folder({}, code=installed)

    assert (found.path, found.unused, found.fault) == (newer, old, "")


def test_data_of_an_earlier_version_does_not_stop_whoever_names_a_folder(installed, tmp_path):
    old = data_in(installed / "var")

    found = data_folder({"LQOPS_VAR_DIR": str(tmp_path / "new")}, code=installed)
    same = data_folder({"LQOPS_VAR_DIR": str(old)}, code=installed)

    assert (found.unused, found.fault) == (old, "")
    assert (same.path, same.unused, same.fault) == (old, None, "")


# --- Every start says where the data is ---


@pytest.mark.django_db
@pytest.mark.usefixtures("durable_commits")
@pytest.mark.parametrize("arguments", [["tick", "--once"], ["doctor"]])
def test_command_says_where_the_data_is(settings, arguments):
    settings.UNUSED_DATA_DIR = Path("/venv/site-packages/var")
    text, facts = StringIO(), StringIO()

    call_command(*arguments, stdout=text)
    call_command(*arguments, "--json", stdout=facts)

    first, second = text.getvalue().splitlines()[:2]
    assert first == f"Data: {settings.VAR_DIR}"
    assert second.startswith("Not used: data of an earlier version in /venv/site-packages/var")
    assert json.loads(facts.getvalue())["data"] == str(settings.VAR_DIR)


def test_up_says_where_the_data_is_before_it_uses_it(tmp_path):
    done = run("up", "--check", env=environment(tmp_path / "var", LQOPS_DATABASE_URL="sqlite:////absent/lqops.sqlite3"))

    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == f"Data: {tmp_path / 'var'}"


# --- Commands that need no data ---


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["--help"], ["-h"], ["--version"], ["help", "up"], ["up", "--help"], ["halt", "run", "-h"]),
        *(["check"], ["check", "--deploy"], ["check_agents", "agents/"], ["spectacular", "--file", "x.yaml"]),
    ],
)
def test_help_and_checks_of_files_need_no_data(arguments):
    assert not needs_data(arguments)


@pytest.mark.parametrize(
    "arguments",
    [["up"], ["halt", "--all"], ["ask", "--", "--help"], ["check", "--database", "default"], ["migrate"], ["unknown"]],
)
def test_other_commands_need_data(arguments):
    assert needs_data(arguments)


def test_commands_without_data_exist():
    options = {"--help", "--version", "-h", "help", "version"}

    assert {*get_commands(), *options} >= WITHOUT_DATA >= options


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["check_agents", "samples/agents"],
        ["spectacular", "--validate", "--file", os.devnull],
        ["up", "--help"],
        ["--version"],
        [],
        ["check", "--deploy"],
        ["makemigrations", "--check", "--dry-run"],
        ["diffsettings"],
        ["findstatic", "lqops/room.css"],
    ],
    ids=" ".join,
)
def test_command_without_data_makes_nothing(tmp_path, arguments):
    var = tmp_path / "new" / "var"

    done = run(*arguments, env=environment(var))

    assert done.returncode == 0, done.stderr
    assert not var.parent.exists()


def test_files_of_agents_that_name_models_are_checked_without_data(tmp_path):
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "one.yaml").write_text("name: One\nmodel: offline\ninstructions: Look.\n")
    (folder / "two.yaml").write_text("name: Two\nmodel: no_such_model\ninstructions: Look.\n")

    done = run("check_agents", str(folder), env=environment(tmp_path / "var"))

    assert done.returncode == 0, done.stderr
    assert "2 files without problems." in done.stdout
    assert done.stdout.count("the name of a declared model") == 1
    assert done.stderr == ""
    assert not (tmp_path / "var").exists()


def test_command_without_data_has_no_database(tmp_path):
    data_in(tmp_path / "var", "lqops.sqlite3")
    code = (
        "import django; from lqops.env import Env; Env.uses_data = False; django.setup(); "
        "from agents.models import Agent; Agent.objects.exists()"
    )
    env = environment(tmp_path / "var", DJANGO_SETTINGS_MODULE="lqops.settings")

    done = subprocess.run([command()[0], "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "settings.DATABASES is improperly configured" in done.stderr
    assert not holds_data(tmp_path)
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["lqops.sqlite3"]


def test_own_keys_are_neither_made_nor_read_without_data(tmp_path, monkeypatch):
    monkeypatch.setattr(Env, "uses_data", False)

    assert len(Env({}).secret("LQOPS_KEY", kept_in=tmp_path)) >= 32
    assert Env({"LQOPS_KEY": "k" * 40}).secret("LQOPS_KEY", kept_in=tmp_path) == "k" * 40
    assert Env({}).has_secret("LQOPS_KEY", kept_in=tmp_path)
    assert list(tmp_path.iterdir()) == []
