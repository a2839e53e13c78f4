"""Agents' definitions through the API: the YAML text, what it comes to here, and everything that is wrong with one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api.fields import Body, CountField
from agents.api.parsers import YamlText
from agents.definitions.in_force import definition_drift, definition_of, effective_settings
from agents.definitions.schema import DefinitionError
from agents.models import Agent
from agents.roster.files import agent_export
from agents.skills.registry import unresolved

VERSION_DIGITS: Final = 10


class DefinitionText(YamlText):
    """An agent.yaml as it stands in a file: the text is handed on, and read by the service alone."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        return {"definition": super().parse(stream, media_type, parser_context)["yaml"]}


class OldDefinitionText(DefinitionText):
    """The same, under the name that many programs still use for YAML."""

    media_type = "text/yaml"


class DefinitionBody(Body):
    definition = serializers.CharField(trim_whitespace=False, help_text="An agent.yaml.")


class DefinitionPut(DefinitionBody):
    version = CountField(
        required=False, help_text="The version that the text was made from: if there is a newer one, the answer is 409."
    )


IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description='The same as `version`, for a body of YAML: `"3"`.'
)


def version_said(request: Request, said: Mapping[str, Any]) -> int | None:
    """The version that a text was made from, if the client says so."""
    named = request.headers.get("If-Match", "*").strip().removeprefix("W/").strip('"')
    if named == "*":
        return said.get("version")
    if not (named.isascii() and named.isdigit() and len(named) <= VERSION_DIGITS):
        raise ValidationError({"If-Match": ['The version of the definition, such as "3".']})
    return int(named)


class ProblemShown(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="0 when it speaks of no line.")
    key = serializers.CharField()
    expected = serializers.CharField()
    got = serializers.CharField()
    message = serializers.CharField()


class SettingShown(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Its place in the file, such as autonomy.idle_timeout.")
    value = serializers.JSONField(allow_null=True)
    said_by = serializers.CharField(help_text="its text, set here, the installation, or default.")


class BrokenSensorShown(serializers.Serializer[Any]):
    name = serializers.CharField()
    problem = serializers.CharField()


class DefinitionShown(serializers.Serializer[Any]):
    definition = serializers.CharField(help_text="The text; of an agent that never had one, what is known of it.")
    version = serializers.IntegerField(help_text="0: it never had a text.")
    digest = serializers.CharField()
    effective = SettingShown(many=True, help_text="Every setting that holds.")
    drift = serializers.ListField(
        child=serializers.CharField(), help_text="Where people have set it otherwise than its text says."
    )
    broken_sensors = BrokenSensorShown(many=True, help_text="Sensors that are skipped.")
    notes = ProblemShown(many=True, help_text="What the text names and this installation does not have.")


def definition_shown(agent: Agent) -> dict[str, Any]:
    with problems_told():
        definition = definition_of(agent)
        told = {
            "definition": agent_export(agent),
            "version": agent.definition_version,
            "digest": agent.definition_digest,
            "effective": effective_settings(agent),
            "drift": definition_drift(agent),
            "broken_sensors": definition.broken_sensors,
            "notes": [note.to_json() for note in (*definition.notes, *unresolved(definition))],
        }
    return DefinitionShown(told).data


@contextmanager
def problems_told() -> Iterator[None]:
    """Every problem of a definition, for programs, in `detail`."""
    try:
        yield
    except DefinitionError as error:
        refusal = ValidationError()
        refusal.detail = {"problems": [problem.to_json() for problem in error.problems]}
        raise refusal from None
