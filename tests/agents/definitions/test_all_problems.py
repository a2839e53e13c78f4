"""All errors of a file are listed at once, including sensors that can never work."""

import os
from contextlib import suppress

import pytest
from django.core.management import CommandError, call_command

from agents.definitions.in_force import checked_definition, stored_definition
from agents.definitions.schema import DefinitionError
from agents.roster.files import agent_import
from agents.skills.registry import installed_skills
from tests.factories import NOW, make_user
from tests.table import every_row

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ALL_WRONG = f"""\
mode: fast
autonmy:
sensors:
  - {{name: a, type: poll, source: {{tool: now}}}}
  - {{name: a, type: watch, source: {{path: inbox}}, updatse: }}
triggers:
  - {{name: Ring, kind: event, playbook: None such}}
# {TOKEN}
"""


def lines(text, check=checked_definition, **given):
    with pytest.raises(DefinitionError) as caught:
        check(text, **{"file": "a.yaml", **given}) if check is checked_definition else check(text=text, **given)
    return [(problem.line, problem.key) for problem in caught.value.problems]


def test_errors_of_keys_sensors_and_secrets_are_listed_together():
    assert lines(ALL_WRONG) == [
        (1, "mode"),
        (2, "autonmy"),
        (4, "sensors[0].interval"),
        (5, "sensors[1].name"),
        (5, "sensors[1].updatse"),
        (8, ""),
    ]


def test_trigger_without_a_target_is_listed_once_beside_other_errors():
    text = "mode: fast\ntriggers:\n- {name: a, kind: event}\n- {name: b, kind: schedule, cron: 0 6 * * 1, query: x}\n"
    wrong = "- {name: c, kind: manual, playbook: 5}\n"
    assert lines(text + wrong) == [(1, "mode"), *((line, f"triggers[{line - 3}].playbook") for line in (3, 4, 5))]


@pytest.mark.django_db
def test_import_also_lists_unknown_names():
    user = make_user()
    found = lines(ALL_WRONG, agent_import, owner=user, by=user, now=NOW)
    assert (len(found), found[-2:]) == (7, [(7, "triggers[0].playbook"), (8, "")])


@pytest.mark.django_db
def test_secret_and_unknown_name_are_listed_together():
    user = make_user()
    text = f"triggers:\n- {{name: Ring, kind: event, playbook: None such}}\n# {TOKEN}\n"
    assert lines(text, agent_import, owner=user, by=user, now=NOW) == [(2, "triggers[0].playbook"), (3, "")]


def test_trigger_without_a_target_is_refused_in_new_texts_and_read_in_stored_ones():
    text = "name: a\ntriggers:\n- {name: In, kind: watch, collection: c}\n- {name: Ring, kind: event, skill: s}\n"
    assert lines(text) == [(3, "triggers[0].playbook")]
    assert [trigger.name for trigger in stored_definition(text).triggers] == ["In", "Ring"]


def test_errors_after_a_wrong_key_are_listed():
    """The names of triggers are compared although another key is wrong."""
    text = "zone: Mars\ntriggers: [{name: a, kind: event, skill: s}, {name: a, kind: event}]\n"
    assert lines(text) == [(1, "zone"), (2, "triggers[1].name")]


MANY = """\
name: Watcher
skills: [now, fly]
autonomy: {idle_timeout: soon}
hot_state: {fields: {price: {type: money}}}
sensors:
- {name: a, type: watch, source: {path: /etc}, updates: [{field: price}]}
triggers:
- name: Nightly
  kind: schedule
  cron: 61 * * * *
  playbook: Suppliers
  collection: Contracts
- name: Nightly
  kind: schedule
  cron: 5
  skill: 6
  bogus: 1
- {kind: never, cron: 1 * * * *}
- nothing
"""
ERRORS_IN_THE_TEXT = [
    (3, "autonomy.idle_timeout"), (4, "hot_state.fields.price.type"), (10, "triggers[0].cron"),
    (13, "triggers[1].collection"), (13, "triggers[1].name"), (15, "triggers[1].cron"), (16, "triggers[1].skill"),
    (17, "triggers[1].bogus"), (18, "triggers[2].kind"), (18, "triggers[2].name"), (19, "triggers[3]"),
]  # fmt: skip


def test_wrong_value_hides_no_independent_error():
    assert lines(MANY) == ERRORS_IN_THE_TEXT


@pytest.mark.django_db
def test_names_of_a_trigger_with_another_error_are_looked_up():
    user = make_user()
    found = lines(MANY, agent_import, owner=user, by=user, now=NOW)
    assert found == sorted([*ERRORS_IN_THE_TEXT, (11, "triggers[0].playbook")])


@every_row("text", ["", "~", "# nothing but words\n", "{}"])
def test_empty_text_is_refused(text):
    assert lines(text) == [(1, "")]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("autonmy:", "autonmy"),
        ("autonomy: {idle_timout: }", "autonomy.idle_timout"),
        ("triggers: [{name: a, kind: event, playbok: }]", "triggers[0].playbok"),
    ],
)
def test_unknown_key_without_a_value_is_refused(text, key):
    assert lines(text) == [(1, key)]


def test_known_key_without_a_value_counts_as_omitted():
    assert checked_definition("autonomy:\nzone: ~\nname: a", file="a.yaml").autonomy is None


# --- The command ---


@pytest.fixture
def check(tmp_path, capsys, settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples", "tests.agents.loop.samples"]
    settings.LQOPS_SENSOR_ROOTS = [tmp_path / "watched"]
    installed_skills.cache_clear()

    def checked(text):
        (tmp_path / "a.yaml").write_text(text)
        with suppress(CommandError):
            call_command("check_agents", str(tmp_path / "a.yaml"))
        return capsys.readouterr().out.replace(f"{tmp_path}/", "")

    yield checked
    installed_skills.cache_clear()


def sensor(source, kind="poll, interval: 5"):
    return f"sensors:\n- name: s\n  type: {kind.replace(', ', chr(10) + '  ')}\n  source: {source}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sensor("{tool: press}"), "tool: expected a source that a sensor can read: the tool press has side effects"),
        (sensor("{tool: read_price, params: {sort: x}}"), "params: expected a source that a sensor can read:"),
        (sensor("{path: ../etc}", "watch"), "path: expected a source that a sensor can read: the path contains .."),
        (sensor("{path: /etc}", "watch"), "path: expected a source that a sensor can read: the path is outside of"),
    ],
)
def test_sensor_that_can_never_read_is_an_error(check, text, said):
    told = check(text)
    line = 4 if "watch" in text else 5
    assert told.startswith(f"PROBLEM a.yaml:{line}: sensors[0].source.{said}")
    assert "fine" not in told


@pytest.mark.parametrize(
    "text",
    [sensor("{tool: read_price, params: {symbol: x}}"), sensor("{path: inbox}", "watch"), sensor("{tool: none}")],
)
def test_sensor_with_a_missing_tool_is_no_error(check, text):
    assert "PROBLEM" not in check(text)


def test_unreadable_sensor_is_listed_with_other_errors(check):
    told = check(f"mode: fast\n{sensor('{tool: press}')}")
    assert ["mode" in told, "sensors[0].source.tool" in told] == [True, True]


def places(told, mark):
    return [line.split(": ")[:2] for line in told.splitlines() if line.startswith(mark)]


def test_command_lists_errors_and_notes_by_line(check):
    told = check(MANY)
    found = [(int(place.rpartition(":")[2]), key) for place, key, *_ in places(told, "PROBLEM")]
    assert [line for line, _ in found] == sorted(line for line, _ in found)
    assert (6, "sensors[0].source.path") in found
    assert places(told, "NOTE") == [["NOTE a.yaml:2", "skills[1]"]]


@pytest.mark.django_db
def test_refused_load_also_lists_notes(tmp_path, capsys):
    make_user(username="ada")
    (tmp_path / "a.yaml").write_text("mode: fast\nskills: [fly]\n")
    for given in ([], ["--json"]):
        with pytest.raises(CommandError, match="1 problem in 1 file"):
            call_command("load_agents", str(tmp_path / "a.yaml"), "--owner", "ada", *given)
    told, _, as_json = capsys.readouterr().out.rpartition("\n{")
    assert [line.split()[0] for line in told.splitlines()] == ["PROBLEM", "NOTE"]
    assert '"notes": [{' in as_json


def test_two_files_with_wrong_names_are_not_duplicates(tmp_path, capsys):
    for file in ("a.yaml", "b.yaml"):
        (tmp_path / file).write_text("name: 5\n")
    with pytest.raises(CommandError, match="2 problems in 2 files"):
        call_command("check_agents", str(tmp_path))
    assert "no other file has" not in capsys.readouterr().out


def test_similar_skill_name_is_suggested(check):
    assert "(did you mean read_price?); got read_prise" in check("skills: [read_prise]\n")


def test_command_does_not_block_on_a_pipe(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(CommandError):
        call_command("check_agents", str(tmp_path / "pipe.yaml"))
    assert "expected a file that can be read: this is none" in capsys.readouterr().out
