"""A broken sensor is skipped; the agent starts without it."""

import pytest

from agents.definitions.loader import read_definition
from agents.definitions.schema import DefinitionError
from agents.enums import SensorKind
from tests.table import every_row

GOOD = "{name: good, type: poll, interval: 5, source: {tool: look}}"


def broken(sensor):
    definition = read_definition(f"name: a\nsensors:\n- {GOOD}\n- {sensor}\n")
    assert [sensor.name for sensor in definition.sensors] == ["good"]
    [found] = definition.broken_sensors
    return found


@every_row(
    ("sensor", "expected"),
    [
        ("{name: s, type: poll, source: {tool: t}}", "interval: expected a whole number of seconds, 1 or more"),
        ("{name: s, type: poll, interval: 0, source: {tool: t}}", "interval: expected a whole number of"),
        ("{name: s, type: pull, interval: 5, source: {tool: t}}", "type: expected one of poll, watch, stream"),
        ("{name: s, type: poll, interval: 5}", "source: expected a value: source is required"),
        ("{name: s, type: poll, interval: 5, source: {}}", "source: expected one of tool, url, items, q"),
        ("{name: s, type: poll, interval: 5, source: {tool: t, url: 'http://a'}}", "source: expected one of"),
        ("{name: s, type: poll, interval: 5, source: {path: /a}}", "source: expected a tool, a url, items"),
        ("{name: s, type: poll, interval: 5, source: {url: 'file:///a'}}", "source.url: expected an address"),
        ("{name: s, type: watch, source: {url: 'http://a'}}", "source: expected a path"),
        ("{name: s, type: stream, source: {tool: t}}", "source: expected a url"),
        ("{name: s, type: stream, source: {url: 'ftp://a'}}", "source.url: expected an address that starts"),
        ("{name: s, type: watch, source: {path: a, params: {b: 1}}}", "source.params: expected a tool or url or"),
        ("{name: s, type: watch, source: {path: a}, updates: [{field: f, path: 'a..b'}]}", "updates[0].path"),
        ("{name: s, type: watch, source: {path: a}, updates: [{field: f}, {field: f}]}", "updates: expected"),
        ("{name: s, type: watch, source: {path: a}, updates: [{field: f, gated_by: g}]}", "updates[0].gated_b"),
        ("{name: s, type: watch, source: {path: a}, signals: [{name: g}]}", "signals[0].prompt: expected"),
        (
            "{name: s, type: watch, source: {path: a}, signals: [{name: g, prompt: p, threshold: 1.1}]}",
            "signals[0].threshold: expected a number from 0 to 1; got 1.1",
        ),
        (
            "{name: s, type: watch, source: {path: a}, signals: [{name: g, prompt: p}, {name: g, prompt: q}]}",
            "signals: expected signals with different names",
        ),
        ("{name: s, type: watch, source: {path: a}, signals: [{name: g, prompt: p, when: {above: 1}}]}", "signals[0]"),
        *[
            (f"{{name: s, type: watch, source: {{path: a}}, signals: [{{name: g, {keys}}}]}}", f"signals[0].{expected}")
            for keys, expected in [
                ("when: {}", "when[0]: expected one of above, below, between, changed, matches, absent_for, not none"),
                ("when: []", "when: expected a list of at least 1 conditions"),
                ("when: 3", "when: expected a list of conditions"),
                ("when: {above: 1, below: 2}", "when[0]: expected one of"),
                ("when: {above: high}", "when[0].above: expected a number"),
                ("when: {between: [2, 1]}", "when[0].between: expected two numbers, the lower one first"),
                ("when: {changed: false}", "when[0].changed: expected true"),
                ("when: {matches: '('}", "when[0].matches: expected a pattern that RE2 understands: missing ): ("),
                ("when: {matches: '(?=a)'}", "when[0].matches: expected a pattern that RE2 understands"),
                ("when: {above: 5, clear: 6}", "when[0].clear: expected a number of at most 5"),
                ("when: {below: 5, clear: 4}", "when[0].clear: expected a number of at least 5"),
                ("when: {between: [1, 2], clear: [1.5, 3]}", "when[0].clear: expected two numbers around 1 and 2"),
                ("when: {matches: a, clear: 1}", "when[0].clear: expected nothing"),
                ("when: {changed: true, for: 5}", "when[0].for: expected nothing"),
                ("when: {above: 1, path: 'a..b'}", "when[0].path: expected a path such as"),
                ("when: {above: 1}, model: m", "model: expected nothing: it belongs to a prompt"),
                ("when: {above: 1}, threshold: 0.5", "threshold: expected nothing: it belongs to a prompt"),
                ("when: {changed: true}, each: true", "when[0].changed: expected nothing: with each: true"),
                ("prompt: p, each: true", "each: expected nothing: it belongs to conditions"),
            ]
        ],
        *[
            (f"{{name: s, type: poll, interval: 5, source: {source}}}", f"source{expected}")
            for source, expected in [
                ("{url: 'http://a.b', headers: {Host: a}}", ".headers.Host: expected the name of a header that lqops"),
                ("{url: 'http://a.b', headers: {a b: c}}", ".headers.a b: expected the name of a header"),
                ("{url: 'http://a.b', headers: {a: 5}}", ".headers.a: expected text in quotes"),
                ("{url: 'http://a.b', headers: {a: {secret: b}}}", ".headers.a: expected text in quotes"),
                ("{url: 'http://a.b', params: {a: [1]}}", ".params.a: expected text, a number, true, false"),
                ("{tool: t, headers: {a: b}}", ".headers: expected a url or items as well"),
                ("{items: 'ftp://a.b'}", ".items: expected an address that starts with http://"),
                ("{query: select 1}", ".database: expected the name of a database"),
                ("{query: drop table a, database: d}", ".query: expected one statement that reads"),
                ("{query: 'select 1; drop table a', database: d}", ".query: expected one statement that reads"),
                ("{imap: {host: a.b, user: u, password: p}}", ".imap.password: expected a secret by its name"),
                ("{tail: a.log}", ": expected a tool, a url, items, a query or imap"),
                ("{tool: t, into: c}", ".into: expected a path as well"),
            ]
        ],
        ("{name: s, type: watch, source: {path: a}, sigals: []}", "sigals: expected one of the keys name"),
    ],
)  # fmt: skip
def test_broken_sensor_is_skipped_with_its_errors(sensor, expected):
    found = broken(sensor)

    assert found.problem.startswith(f"agent.yaml:4: sensors[1].{expected}")
    assert found.name == "s"


def test_broken_sensor_keeps_its_kind_and_all_errors():
    found = broken("{name: s, type: stream, source: {url: 5}, updates: 3}")

    assert found.kind == SensorKind.STREAM
    assert found.problem.count("agent.yaml:4: ") == 2


@every_row("sensor", ["3", "[]", "{name: '', type: 5}", "{name: 'a b'}", ""])
def test_broken_sensor_without_a_name_is_named_by_its_index(sensor):
    assert broken(sensor).name == "sensor#2"


def test_second_sensor_of_the_same_name_is_broken():
    found = broken(GOOD)
    assert found.name == "good#2"
    assert found.problem == 'agent.yaml:4: sensors[1].name: expected a name that no other sensor has; got "good"'


def test_duplicate_sensor_lists_its_other_errors():
    assert [problem.key for problem in broken("{name: good, type: poll}").problems] == [
        "sensors[1].name",
        "sensors[1].source",
    ]


def test_generated_name_does_not_clash_with_a_sensor():
    definition = read_definition("sensors:\n- 3\n- {name: sensor-1, type: watch, source: {path: a}}\n")
    assert [one.name for one in definition.broken_sensors] == ["sensor#1"]
    assert [one.name for one in definition.sensors] == ["sensor-1"]


def test_too_many_sensors_are_refused():
    with pytest.raises(DefinitionError, match="sensors: expected a list of at most 50 sensors, not 51"):
        read_definition("sensors: [" + ", ".join([GOOD] * 51) + "]")


def test_gated_update_names_a_signal_of_its_sensor():
    text = (
        "{name: s, type: watch, source: {path: a}, updates: [{field: f, gated_by: g}], signals: [{name: g, prompt: p}]}"
    )
    assert read_definition(f"sensors: [{text}]").sensors[0].updates[0].gated_by == "g"


def test_unknown_fields_and_triggers_are_noted():
    text = """\
hot_state: {fields: {known: {type: number}}}
triggers: [{name: Known, kind: manual}]
sensors:
- name: s
  type: stream
  source: {url: wss://a.example}
  updates:
  - field: known
  - field: unknown
  signals:
  - {name: a, prompt: p, spawn: Known}
  - {name: b, prompt: p, spawn: Unknown}
"""
    assert [(note.line, note.key) for note in read_definition(text).notes] == [
        (9, "sensors[0].updates[1].field"),
        (12, "sensors[0].signals[1].spawn"),
    ]
