"""The reference in docs/agents.md: its example loads, every key stands in it, and every default is the real one."""

import re
from pathlib import Path

import pytest
from django.core.management import call_command
from pydantic_core import PydanticUndefined

from agents.definitions.loader import read_definition
from agents.definitions.schema import (
    ActiveHours,
    Autonomy,
    FieldSpec,
    Heartbeat,
    HotState,
    SensorSpec,
    Signal,
    Source,
    TriggerSpec,
    Update,
    Written,
)
from tests.table import every_row

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SECTIONS = [
    Written,
    Autonomy,
    ActiveHours,
    HotState,
    FieldSpec,
    SensorSpec,
    Source,
    Update,
    Signal,
    Heartbeat,
    TriggerSpec,
]


def test_the_example_loads_and_names_nothing_of_its_own_that_is_missing():
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    definition = read_definition(example)

    assert definition.is_autonomous
    assert (definition.broken_sensors, definition.notes) == ((), ())


def test_the_sample_agents_can_be_checked_without_a_database(capsys):
    call_command("check_agents", str(ROOT / "samples" / "agents"))
    assert re.fullmatch(r"\d+ files without problems\.\n", capsys.readouterr().out)


@every_row("section", SECTIONS)
def test_every_key_stands_in_the_reference(section):
    assert [key for key in section.model_fields if f"`{key}`" not in PAGE] == []


@pytest.mark.parametrize("section", [Autonomy, FieldSpec], ids=lambda section: section.__name__)
def test_every_default_is_the_real_one(section):
    rows = dict(
        re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", PAGE.partition(f"### `{NAMES[section]}`")[2], re.MULTILINE)
    )
    for key, field in section.model_fields.items():
        assert rows[key] == WORDS.get((section, key), _word(field)), key


NAMES = {Autonomy: "autonomy", FieldSpec: "hot_state"}
WORDS = {(FieldSpec, "refresh_params"): "`{}`", (FieldSpec, "auto_refresh"): "yes, if there is a `refresh_tool`"}


def _word(field):
    if field.default is PydanticUndefined:
        return "needed"
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    return "none" if field.default is None else str(field.default)
