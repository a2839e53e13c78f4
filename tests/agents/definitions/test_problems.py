"""Errors of an agent.yaml name file, line, key, what was expected and what was found."""

import json

import pytest

from agents.definitions.loader import read_definition
from agents.definitions.schema import DefinitionError
from tests.table import every_row

AMOUNT = "expected an amount of US dollars from 0 to 9223372036854, with at most 4 places"
KNOWN = "name, description, instructions, project, model, mode"


def problems(text, file="agent.yaml"):
    with pytest.raises(DefinitionError) as caught:
        read_definition(text, file=file)
    return [str(problem) for problem in caught.value.problems]


def problem(text):
    [found] = problems(text)
    return found


def test_error_names_line_key_and_expected_value():
    text = "name: x\nautonomy:\n  enabled: true\n  idle_timeout: soon\n"

    expected = 'expected a whole number of seconds, 0 or more; got "soon"'
    assert problems(text, file="night.yaml") == [f"night.yaml:4: autonomy.idle_timeout: {expected}"]


def test_all_errors_are_listed_in_file_order():
    text = """\
name: 5
mode: fast
autonomy:
  max_consecutive_turns: 0
  renew: hourly
hot_state:
  fields:
    "a b": {type: array}
    cash: {type: money}
triggers:
  - kind: watch
    max_cost_usd: 0.00001
"""
    assert problems(text) == [
        "agent.yaml:1: name: expected a name on one line, in quotes; got 5",
        'agent.yaml:2: mode: expected one of auto, semi, manual; got "fast"',
        "agent.yaml:4: autonomy.max_consecutive_turns: expected a whole number of turns from 1 to 100000; got 0",
        'agent.yaml:5: autonomy.renew: expected one of daily; got "hourly"',
        'agent.yaml:8: hot_state.fields.a b: expected a name of at most 64 letters, digits, _, . and -; got "a b"',
        'agent.yaml:9: hot_state.fields.cash.type: expected one of object, number, string, array, boolean; got "money"',
        "agent.yaml:11: triggers[0].collection: expected a collection: a watch needs it; got nothing",
        "agent.yaml:11: triggers[0].name: expected a value: name is required; got nothing",
        f"agent.yaml:12: triggers[0].max_cost_usd: {AMOUNT}; got 0.00001",
    ]


def test_error_is_available_as_json():
    with pytest.raises(DefinitionError) as caught:
        read_definition("zone: Mars/Olympus", file="a.yaml")

    [found] = caught.value.problems
    assert json.loads(json.dumps(found.to_json())) == {
        "file": "a.yaml",
        "line": 1,
        "key": "zone",
        "expected": "an IANA time zone, such as Europe/Paris or UTC",
        "got": '"Mars/Olympus"',
        "message": 'a.yaml:1: zone: expected an IANA time zone, such as Europe/Paris or UTC; got "Mars/Olympus"',
    }


@every_row(
    ("text", "place", "meant"),
    [
        ("autonomi: {}", "agent.yaml:1: autonomi", "autonomy"),
        ("autonomy:\n  idle_timout: 3", "agent.yaml:2: autonomy.idle_timout", "idle_timeout"),
        ("autonomy:\n  active_hours: {edn: 1}", "agent.yaml:2: autonomy.active_hours.edn", "end"),
        ("hot_state: {fields: {a: {type: array, tll: 3}}}", "agent.yaml:1: hot_state.fields.a.tll", "ttl"),
        ("loop: {max_step: 3}", "agent.yaml:1: loop.max_step", "max_steps"),
        ("triggers: [{name: a, kind: manual, colection: c}]", "agent.yaml:1: triggers[0].colection", "collection"),
    ],
)
def test_misspelt_key_is_refused_with_a_suggestion(text, place, meant):
    found = problem(text)

    assert found.startswith(f"{place}: expected one of the keys ")
    assert found.endswith(f"; did you mean {meant}?")


def test_derived_keys_are_refused():
    assert problem("broken_sensors: []").startswith(f"agent.yaml:1: broken_sensors: expected one of the keys {KNOWN}")


@every_row(
    ("text", "expected"),
    [
        ("- a\n- b", f"1: expected a map with the keys {KNOWN}"),
        ("just words", f"1: expected a map with the keys {KNOWN}"),
        ("autonomy: 3", "1: autonomy: expected a map with the keys enabled, max_consecutive_turns"),
        ("hot_state: {fields: [a]}", "1: hot_state.fields: expected a map of names and fields; got a list"),
        ("hot_state: {fields: {a: }}", "1: hot_state.fields.a: expected a map with the keys type, ttl"),
        ("sensors: {a: 1}", "1: sensors: expected a list of sensors; got a map"),
        ("skills: web", '1: skills: expected a list of names of skills; got "web"'),
        ("skills: [Bad Name]", "1: skills[0]: expected the name of a skill"),
        ("loop: 3", "1: loop: expected a map of names and values; got 3"),
        ("loop: {max_steps: -1}", "1: loop.max_steps: expected a whole number from 0 to 1000000000000; got -1"),
        ("loop: {max_steps: {a: 1}}", "1: loop.max_steps: expected a whole number from 0 to 1000000000000; got a map"),
        ("guardrails: {reserve_cost_fraction: 2}", "1: guardrails.reserve_cost_fraction: expected a number"),
        ("heartbeat: {interval: 60}", "1: heartbeat.prompt: expected a value: prompt is required"),
        ("heartbeat: {prompt: ''}", "1: heartbeat.prompt: expected the prompt that is not empty"),
        ("enabled: maybe", '1: enabled: expected true or false; got "maybe"'),
        ('name: "two\\nlines"', "1: name: expected a name on one line"),
        (f"description: {'x' * 2001}", "1: description: expected text of at most 2000 characters, not 2001"),
        ("max_cost_usd: -1", "1: max_cost_usd: expected an amount of US dollars"),
        ("max_cost_usd: .inf", f'1: max_cost_usd: {AMOUNT}'),
        ("autonomy: {active_hours: {start: '08:00', end: '8:00'}}", "1: autonomy.active_hours.end: expected"),
        ("hot_state: {fields: {a: {type: number, max_items: 3}}}", "1: hot_state.fields.a.max_items"),
        ("hot_state: {fields: {a: {type: number, auto_refresh: on}}}", "1: hot_state.fields.a.auto_refresh"),
        ("hot_state: {fields: {a: {type: number, refresh_params: {a: 1}}}}", "1: hot_state.fields.a.refresh_p"),
        ("hot_state: {fields: {" + ", ".join(f"f{n}: {{type: number}}" for n in range(101)) + "}}", "1: hot"),
        ("triggers: [{name: a, kind: manual, loop: {max_steps: x}}]", "1: triggers[0].loop.max_steps"),
        ("triggers: [{name: a, kind: watch}]", "1: triggers[0].collection: expected a collection"),
        ("triggers: [{name: a, kind: schedule, skill: s, query: q}]", "1: triggers[0].cron: expected five fields"),
        ("triggers: [{name: a, kind: schedule, cron: '1 * * * *', query: q}]", "1: triggers[0].playbook: expected"),
        ("triggers: [{name: a, kind: schedule, cron: '1 * * * *', skill: b}]", "1: triggers[0].collection"),
        (
            "triggers: [{name: a, kind: schedule, cron: '0 0 30 2 *', skill: b, query: c}]",
            "1: triggers[0].cron: expected a schedule that can be due",
        ),
        ("triggers: [{name: a, kind: event, cron: '1 * * * *'}]", "1: triggers[0].cron: expected nothing"),
        (
            "triggers:\n- {name: a, kind: manual}\n- {name: a, kind: event}",
            "3: triggers[1].name: expected a name that no other trigger of this agent has",
        ),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(text, expected):
    assert problem(text).startswith(f"agent.yaml:{expected}")


@every_row(
    ("text", "expected"),
    [
        ("name: ]", "1: this is not YAML: "),
        ("name: a\nname: b", "2: 'name' stands twice (lines 1 and 2)"),
        ("a: &x 1\nb: *x", "1: anchors (&) and aliases (*) are not read"),
        ("\nname: !!python/name:os.system", "2: tags (!) are not read"),
        ("a\0b", "1: the character U+0000 cannot be kept"),
        ("a: \ud800", "1: the character U+D800 cannot be kept"),
        ('a: "\\ud800"', "1: "),
        (
            "name: a\n---\nname: b",
            "2: a second document begins; one is read",
        ),
        ("<<: {name: a}", "1: merge keys (<<) are not read"),
        ("%YAML 1.1\n---\nname: a", "1: directives (%) are not read"),
        ("true: 1", "1: a key is text of at most 100 characters"),
        ("x" * 262_145, ": the YAML is 262145 bytes long; at most 262144"),
        ("a: " + "[" * 20 + "]" * 20, "1: the YAML is nested more than 12"),
        ("skills: [" + "a," * 10_001 + "]", "1: the YAML holds more than"),
    ],
)
def test_unreadable_yaml_is_refused_with_its_line(text, expected):
    line, _, said = expected.partition(": ")
    place = f"agent.yaml:{line}" if line else "agent.yaml"
    assert problem(text).startswith(f"{place}: expected YAML that can be read: {said}")


def test_alias_bombs_are_refused():
    laughs = "a: &a [x]\n" + "".join(f"{c}: &{c} [{', '.join([f'*{chr(ord(c) - 1)}'] * 9)}]\n" for c in "bcdefghi")
    assert "aliases (*) are not read" in problem(laughs)


def test_shown_values_are_short_and_redacted():
    assert len(problem(f"mode: {'x' * 1_000}")) < 200
    assert "sk-abcdefghijklmnopqrstuvwxyz123456" not in problem("mode: sk-abcdefghijklmnopqrstuvwxyz123456")
