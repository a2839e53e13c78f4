"""Every option of a run is taken by every surface that starts or plans runs.

An option that is added to OPTIONS and missed by a surface fails here. Settings of the step loop are objects: they have
no flag on the command line and no field in Run now, and are set on triggers or through the API.
"""

from dataclasses import dataclass, fields

import pytest
from django.contrib import admin
from pydantic import TypeAdapter, ValidationError
from rest_framework import serializers

from agents.admin.sessions import RunNowForm
from agents.admin.triggers import TriggerForm
from agents.api.sessions import RunBody, _option_field
from agents.api.triggers import TriggerPatch, TriggerSerializer
from agents.definitions.schema import _option_key
from agents.enums import TriggerKind
from agents.management.commands.run_now import _KINDS, Command
from agents.models import AgentSession, Trigger
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.policy.run_spec import MAX_NUMBER, OPTION_CHARS, OPTION_NAMES, OPTIONS, RunSpec, option
from agents.triggers.firing import trigger_spec
from agents.triggers.triggers import TRIGGER_KINDS, checked_fields
from tests.factories import NOW

OBJECTS = {"loop": {"max_steps": 3}, "guardrails": {"max_repeated_tool_steps": 2}}


def value_of(option):
    """A value that is not the default."""
    if option.metadata["choices"]:
        return option.metadata["choices"].values[-1]
    return OBJECTS.get(option.name, True)


def shown_by(model):
    return {name for _, group in admin.site._registry[model].fieldsets for name in group["fields"]}


@dataclass
class Sample:
    """Options of the types that a new option may have."""

    limit: int = option("At most so many.", default=0, label="Limit", flag="--limit")
    tone: str = option("The tone.", default="", label="Tone", flag="--tone")


@pytest.mark.parametrize(
    ("number", "valid", "invalid"), [(0, 7, -1), (0, 7, MAX_NUMBER + 1), (1, "dry", "x" * (OPTION_CHARS + 1))]
)
def test_numbers_and_texts_can_be_options(number, valid, invalid):
    sample = fields(Sample)[number]
    api = _option_field(sample)
    key, default = _option_key(sample)
    agent_file = TypeAdapter(key)

    assert api.run_validation(valid) == agent_file.validate_python(valid) == valid
    assert (default, _KINDS[sample.metadata["type"]]["default"]) == (type(valid)(), type(valid)())
    with pytest.raises(serializers.ValidationError):
        api.run_validation(invalid)
    with pytest.raises(ValidationError):
        agent_file.validate_python(invalid)


every_option = pytest.mark.parametrize("option", OPTIONS, ids=OPTION_NAMES)
plain = [each for each in OPTIONS if each.name not in OBJECTS]
plain_option = pytest.mark.parametrize("option", plain, ids=[each.name for each in plain])


@every_option
@pytest.mark.parametrize("body", [RunBody, TriggerPatch])
def test_api_takes_every_option(option, body):
    value = value_of(option)
    given = body(data={option.name: value}, partial=True)

    assert given.is_valid(), given.errors
    assert given.validated_data == {option.name: value}


@every_option
def test_api_shows_every_option_of_a_trigger(option):
    value = value_of(option)
    assert TriggerSerializer(Trigger(created_at=NOW, **{option.name: value})).data[option.name] == value


@plain_option
def test_run_now_command_has_a_flag_for_every_option(option):
    value = value_of(option)
    flag = [option.metadata["flag"], *([value] if option.metadata["choices"] else [])]

    options = Command().create_parser("manage.py", "run_now").parse_args(["--owner", "ada", *flag])

    assert getattr(options, option.name) == value


@every_option
@pytest.mark.parametrize("kind", TRIGGER_KINDS)
def test_triggers_of_every_kind_take_every_option(option, kind):
    value = value_of(option)
    assert checked_fields(kind, {option.name: value}, owner_id=1) == {option.name: value}


@every_option
def test_runs_of_a_trigger_get_every_option(option):
    value = value_of(option)
    spec = trigger_spec(Trigger(kind=TriggerKind.WATCH, **{option.name: value}))

    assert spec == RunSpec(**{option.name: value})
    assert AgentSession(params=spec.to_params()).spec == spec


@plain_option
def test_trigger_form_has_every_option(option):
    value = value_of(option)
    field = TriggerForm.base_fields[option.name]

    assert field.clean(value) == value
    assert (field.label, bool(field.help_text)) == (option.metadata["label"], True)
    assert option.name in shown_by(Trigger)


@pytest.mark.parametrize(("group", "config"), [("loop", LoopConfig), ("guardrails", GuardrailsConfig)])
def test_trigger_form_has_a_field_for_every_setting_of_a_group(group, config):
    names = {f"{group}_{field.name}" for field in fields(config)}
    assert names <= TriggerForm.base_fields.keys()
    assert names <= shown_by(Trigger)


@plain_option
def test_run_now_form_has_every_option(option):
    value = value_of(option)
    field = RunNowForm.base_fields[option.name]

    assert field.clean(value) == value
    assert (field.label, field.help_text) == (option.metadata["label"], option.metadata["help"])
    assert option.name in shown_by(AgentSession)
