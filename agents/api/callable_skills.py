"""Callable skills of the installation: what agents may call, at which level, how often; and the setting of it.

Setting one needs the scope `decide`: who lowers a level, or switches a skill on, consents to its calls beforehand.
"""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, WordField
from agents.api.schema import described
from agents.enums import Level
from agents.exceptions import NotFound
from agents.models import SkillSetting
from agents.skills.registry import MOST_PER_HOUR, skill_listed, skill_set, skill_to_set, skills_listed


class CallableSkillShown(serializers.Serializer[Any]):
    """What its author declared, what holds here, and how often it was called. Hours and days are UTC."""

    name = serializers.CharField()
    installed = serializers.BooleanField(help_text="False: it was set once and is not installed any more.")
    description = serializers.CharField()
    version = serializers.CharField(allow_null=True)
    enabled = serializers.BooleanField()
    lacking = serializers.CharField(help_text="What has to be set before it can work; empty: nothing.")
    declared_level = serializers.CharField(allow_null=True, help_text="The level that its author gave it.")
    level = serializers.ChoiceField(choices=Level.choices, allow_null=True, help_text="The level that holds.")
    hourly_limit = serializers.IntegerField(allow_null=True, help_text="As chosen; null: nobody has chosen one.")
    hourly_limit_in_force = serializers.IntegerField(allow_null=True, help_text="As it holds; null: no limit.")
    used_this_hour = serializers.IntegerField()
    refused_this_hour = serializers.IntegerField()
    used_today = serializers.IntegerField()
    refused_today = serializers.IntegerField()
    side_effects = serializers.BooleanField(allow_null=True)
    idempotent = serializers.BooleanField(allow_null=True)
    requires_approval = serializers.BooleanField(allow_null=True)
    timeout_seconds = serializers.FloatField(allow_null=True)
    isolation = serializers.CharField(allow_null=True, help_text="thread or process.")
    local = serializers.BooleanField(allow_null=True, help_text="It runs in the transaction of its record.")
    cooldown_seconds = serializers.FloatField(allow_null=True)
    addresses = serializers.ListField(child=serializers.CharField(), help_text="Arguments that say where to go.")
    arguments = serializers.DictField(allow_null=True, help_text="The JSON schema of its arguments.")
    updated_at = serializers.DateTimeField(allow_null=True, help_text="When it was last set; null: never.")


class CallableSkillPatch(Body):
    enabled = serializers.BooleanField(required=False)
    level = WordField(
        choices=Level.choices, required=False, allow_null=True, help_text="null: as declared. Lowering: superusers."
    )
    hourly_limit = CountField(
        max_value=MOST_PER_HOUR, required=False, allow_null=True, help_text="null: no limit but that of its level."
    )


class CallableSkills(OwnedViewSet[SkillSetting]):
    """The callable skills of the installation, by name. They are the same for everybody who is signed in."""

    queryset = SkillSetting.objects.all()
    serializer_class = CallableSkillShown
    lookup_field = "name"
    lookup_url_kwarg = "name"
    lookup_value_converter = "str"
    decisions = frozenset({"partial_update"})

    def list(self, request: Request) -> Response:
        self.filter_queryset(self.queryset.none())  # refuses parameters that nobody knows
        return self.listed([listed.facts for listed in skills_listed(now=self.now)], CallableSkillShown)

    def retrieve(self, request: Request, name: str = "", **_: Any) -> Response:
        """One of them, by its name."""
        listed = skill_listed(name, now=self.now)
        if listed is None:
            raise NotFound(f"There is no callable skill {name[:64]}.")
        return Response(CallableSkillShown(listed.facts).data)

    @described("callable_skills_edit", CallableSkillShown, body=CallableSkillPatch)
    def partial_update(self, request: Request, name: str, **_: Any) -> Response:
        """Changes what is named, from the next call on; null clears. Needs the permission to change skill settings."""
        skill, said = skill_to_set(name), self.body(CallableSkillPatch, partial=True)
        skill_set(name=skill.name, declared=skill.level, by=self.person, now=self.now, **said)
        return self.retrieve(request, name=name)
