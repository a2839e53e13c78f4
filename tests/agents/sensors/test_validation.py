"""Sources that can never be read with the settings of an installation are refused before they run."""

import re
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest
from django.core.management import CommandError, call_command

from agents.definitions.in_force import checked_definition
from agents.definitions.loader import read_definition
from agents.sensors.slice import KINDS, sensing_class
from agents.sensors.validation import sensor_problems
from tests.table import every_row

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sensors.md"
NEVER = [
    ("poll, source: {url: 'http://10.0.0.1/a'}", "source.url", "not public"),
    ("poll, source: {url: 'http://localhost/a'}", "source.url", "private network"),
    ("poll, source: {url: 'http://user:word@a.example/'}", "source.url", "user name"),
    ("poll, source: {items: 'http://192.168.1.1/feed'}", "source.items", "not public"),
    ("stream, source: {url: 'ws://169.254.169.254/'}", "source.url", "not public"),
    ("poll, source: {imap: {host: mail.local, user: u, password: {$secret: known}}}", "source.imap", "private"),
    ("poll, source: {imap: {host: a.example, user: u, password: {$secret: x}}}", "source.imap", "no secret"),
    ("poll, source: {url: 'https://a.b.example', headers: {A: {$secret: x}}}", "source.headers", "no secre"),
    ("poll, source: {url: 'https://a.example', params: {A: {$secret: x}}}", "source.params", "no secret"),
    ("poll, source: {query: select 1, database: shed}", "source.database", "no database 'shed'"),
    ("watch, source: {tail: /etc/passwd}", "source.tail", "outside of the folders"),
    ("watch, source: {path: ../a, into: C}", "source.path", "contains .."),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _installation(settings):
    settings.LQOPS_NET_ALLOW_NETWORKS = []
    settings.LQOPS_SECRETS = {"known": "a-known-value"}
    settings.LQOPS_SENSOR_DATABASES = {"shop": "sqlite:///shop.sqlite3"}


@every_row(("sensor", "key", "problem"), NEVER)
def test_source_that_can_never_be_read_is_a_problem(sensor, key, problem):
    definition = read_definition(f"name: a\nsensors:\n- {{name: s, interval: 5, type: {sensor}}}\n")
    [found] = sensor_problems(definition, file="agent.yaml")
    assert (found.line, found.key) == (3, f"sensors[0].{key}")
    assert problem in found.expected


def test_check_agents_fails_for_a_private_address(tmp_path):
    (tmp_path / "a.yaml").write_text(f"name: a\nsensors:\n- {{name: s, interval: 5, type: {NEVER[0][0]}}}\n")
    out = StringIO()
    with pytest.raises(CommandError, match="1 problem"):
        call_command("check_agents", str(tmp_path / "a.yaml"), stdout=out)
    assert "sensors[0].source.url" in out.getvalue()


def test_examples_of_the_page_load_and_show_every_kind(settings):
    settings.LQOPS_SECRETS = {"boiler": "Bearer a-value", "mail": "a-password"}
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    definition = checked_definition(example, file="agent.yaml")

    assert (definition.broken_sensors, definition.notes) == ((), ())
    assert list(sensor_problems(definition, file="agent.yaml")) == []
    assert {spec.source.key for spec in definition.sensors} == KINDS.keys()
    assert all(sensing_class(spec) for spec in definition.sensors)


def test_every_problem_of_a_source_is_named_with_what_to_set():
    text = """
        name: a
        sensors:
        - {name: s, type: poll, interval: 5, source: {url: "http://10.0.0.1/", headers: {A: {$secret: shop_2}}}}
        - {name: t, type: poll, interval: 5, source: {query: select 1, database: shed}}
    """
    found = list(sensor_problems(read_definition(dedent(text)), file="agent.yaml"))
    assert [problem.key.rpartition(".")[2] for problem in found] == ["url", "headers", "database"]
    assert found[1].expected.endswith("there is no secret 'shop_2'; known names: known; set LQOPS_SECRET_SHOP_2")
    assert found[2].expected.endswith("; set LQOPS_SENSOR_DATABASE_SHED")
