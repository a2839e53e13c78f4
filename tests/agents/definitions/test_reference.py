"""The reference docs/agents.md: its example loads, every key is listed, and the defaults are right."""

import re
from dataclasses import fields
from pathlib import Path

from django.core.management import call_command
from pydantic_core import PydanticUndefined

from agents.definitions.loader import read_definition
from agents.definitions.schema import (
    ActiveHours,
    AgentKeys,
    Autonomy,
    FieldSpec,
    Heartbeat,
    HotState,
    Mailbox,
    SensorSpec,
    Signal,
    Source,
    TriggerSpec,
    Update,
    When,
)
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from tests.table import every_row

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SECTIONS = {
    "Agent": AgentKeys,
    "`autonomy`": Autonomy,
    "`autonomy.active_hours`": ActiveHours,
    "`hot_state`": HotState,
    "`hot_state.fields`": FieldSpec,
    "`sensors`": SensorSpec,
    "`sensors.source`": Source,
    "`sensors.source.imap`": Mailbox,
    "`sensors.updates`": Update,
    "`sensors.signals`": Signal,
    "`sensors.signals.when`": When,
    "`heartbeat`": Heartbeat,
    "`triggers`": TriggerSpec,
}
ROW = re.compile(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \| [A-Z`][^|]+\. \|$", re.MULTILINE)
# Defaults that the schema leaves to the installation, to the agent or to other keys.
ELSEWHERE = {
    ("Agent", "name"): "the file's name",
    ("Agent", "model"): "the installation's main model",
    ("Agent", "mode"): "`semi`",
    ("Agent", "max_cost_usd"): "the installation's",
    ("Agent", "skills"): "lqops' own local skills",
    ("Agent", "loop"): "the installation's",
    ("Agent", "guardrails"): "the installation's",
    ("Agent", "hot_state"): "none",
    ("`hot_state.fields`", "auto_refresh"): "`true` with a `refresh_tool`",
    ("`sensors`", "interval"): "required for `poll`",
    ("`sensors.signals`", "each"): "by the source",
    ("`sensors.signals`", "model"): "the installation's small model",
    ("`triggers`", "cron"): "required for `schedule`",
    ("`triggers`", "zone"): "the agent's",
    ("`triggers`", "max_cost_usd"): "the installation's",
    ("`triggers`", "loop"): "the agent's",
    ("`triggers`", "guardrails"): "the agent's",
}


def rows(heading):
    """Each key of a section's table, with its default. Every row has a type, a default and a sentence."""
    return dict(ROW.findall(PAGE.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]))


def test_example_in_the_reference_loads():
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    definition = read_definition(example)

    assert definition.is_autonomous
    assert (definition.broken_sensors, definition.notes) == ((), ())


def test_sample_agents_are_checked_without_a_database(capsys):
    call_command("check_agents", str(ROOT / "samples" / "agents"))
    assert re.fullmatch(r"\d+ files without problems\.\n", capsys.readouterr().out)


@every_row("heading", SECTIONS)
def test_reference_has_a_row_for_every_key(heading):
    assert rows(heading).keys() == set(SECTIONS[heading].known_keys())


@every_row("heading", SECTIONS)
def test_reference_states_the_real_defaults(heading):
    for key, field in zip(SECTIONS[heading].known_keys(), SECTIONS[heading].model_fields.values(), strict=True):
        assert rows(heading)[key] == ELSEWHERE.get((heading, key), default_of(field)), key


def test_reference_has_a_row_for_every_loop_setting():
    defaults = {
        **{f"loop.{field.name}": field.default for field in fields(LoopConfig)},
        **{f"guardrails.{field.name}": field.default for field in fields(GuardrailsConfig)},
    }
    found = rows("`loop` and `guardrails`")
    assert found.pop("loop.streaming") == "`false`; `true` in chats"
    assert found == {key: written(value) for key, value in defaults.items() if key != "loop.streaming"}


def default_of(field):
    if field.default_factory is dict:
        return "`{}`"
    return "required" if field.default is PydanticUndefined else written(field.default)


def written(value):
    """A value as the reference states it."""
    if value is None or value == ():
        return "none"
    if value == "":
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    is_word = isinstance(value, str) and not re.fullmatch(r"\d\d:\d\d", value)
    return f"`{value}`" if is_word else str(value)
