"""The JSON schema for editors: made from the definitions that check_agents uses, and as strict where it can be."""

import json
import re
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from jsonschema import Draft202012Validator

from agents.definitions.loader import plain_values, read_definition
from agents.definitions.schema import AgentKeys, DefinitionError, agent_json_schema
from agents.text.strict_yaml import read_yaml
from tests.table import every_row

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = [
    *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "samples" / "agents").glob("*.yaml"))),
    *(
        example
        for page in sorted((ROOT / "docs").glob("*.md"))
        for example in re.findall(r"```yaml\n(name: .*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if "positions:" not in example  # a playbook
    ),
]
WRONG = [
    ("nam: a", "nam"),
    ("mode: fast", "fast"),
    ("autonomy: {idle_timeout: soon}", "soon"),
    ("autonomy: {max_tool_rounds: 101}", "101"),
    ("autonomy: {active_hours: {start: '25:00'}}", "25:00"),
    ("loop: {context_strategy: forget}", "forget"),
    ("loop: {streaming: 3}", "3"),
    ("guardrails: {reserve_cost_fraction: 2}", "2"),
    ("max_cost_usd: -1", "-1"),
    ("skills: every", "every"),
    ("skills: [Fly]", "Fly"),
    ("hot_state: {fields: {a: {type: money}}}", "money"),
    ("sensors: [{name: a, type: poll, source: {imap: {host: h, user: u, password: open}}}]", "open"),
    ("sensors: [{name: a, type: poll, source: {url: u, headers: {A: {secret: x}}}}]", "secret"),
    ("sensors: [{name: a, type: poll, source: {url: u}, signals: [{name: s, when: []}]}]", "when"),
    ("triggers: [{name: a, kind: never}]", "never"),
    ("triggers: [{name: a, kind: manual, pause_after: 1001}]", "1001"),
]


def values(text):
    """The values of a text as an editor sees them."""
    return json.loads(json.dumps(plain_values(read_yaml(text)), default=lambda number: float(Decimal(number))))


def errors(text):
    return list(Draft202012Validator(agent_json_schema()).iter_errors(values(text)))


def test_there_are_examples_in_docs_and_samples():
    assert len(EXAMPLES) >= 7


@every_row("text", EXAMPLES)
def test_examples_fit_the_schema(text):
    assert errors(text) == []


@every_row("text", ["{}", "enabled:", "sensors:", "autonomy: {enabled: , max_sleep: }", "skills: all"])
def test_optional_keys_may_be_missing_or_empty(text):
    assert errors(text) == []
    read_definition(text)


@every_row(("text", "named"), WRONG)
def test_values_that_are_refused_do_not_fit_the_schema(text, named):
    assert named in str(errors(text)[0])
    with pytest.raises(DefinitionError):
        if read_definition(text).broken_sensors:
            raise DefinitionError(())


def test_every_key_is_in_the_schema():
    made = agent_json_schema()
    sections = {"": made, **made["$defs"]}
    assert set(made["properties"]) == set(AgentKeys.known_keys())
    assert "for" in sections["When"]["properties"]
    assert all(section["additionalProperties"] is False for section in sections.values() if "properties" in section)


def test_command_prints_the_schema():
    out = StringIO()
    call_command("check_agents", "--schema", stdout=out)
    assert json.loads(out.getvalue()) == agent_json_schema()


def test_command_without_a_file_says_what_to_name():
    with pytest.raises(CommandError, match="Name files or folders to check, or --schema"):
        call_command("check_agents")
