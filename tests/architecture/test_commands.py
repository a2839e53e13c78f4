"""Every command has help texts, and a test that runs it."""

import re

import pytest
from django.core.management import get_commands, load_command_class

from .source import ROOT, source_files

OURS = {name: app for name, app in get_commands().items() if app in {"audit", "agents"}}


@pytest.fixture(scope="module")
def texts_of_tests():
    elsewhere = (path for path in source_files(folders=("tests",)) if ROOT / "tests/architecture" not in path.parents)
    return "\n".join(path.read_text(encoding="utf-8") for path in elsewhere)


def test_commands_are_found():
    assert {"up", "verify_audit"} <= OURS.keys()


@pytest.mark.parametrize("name", OURS)
def test_command_and_its_options_have_help(name):
    command = load_command_class(OURS[name], name)

    assert len(command.help.split()) >= 4
    for action in command.create_parser("manage.py", name)._actions:
        assert action.help, f"{name} {action.dest} has no help"


@pytest.mark.parametrize("name", OURS)
def test_command_is_run_by_a_test(name, texts_of_tests):
    assert re.search(rf"""["']{name}["']""", texts_of_tests), f"no test runs {name}"
