"""The models in force, and their tests. Never a key: only the name of the variable that holds it."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import SingleView
from agents.api.fields import Body, UsdField
from agents.api.schema import describe
from agents.checks.model_test import TEST_SECONDS, model_test
from agents.exceptions import NotAllowed
from agents.policy.model_catalogue import ROLES
from agents.sessions.model_facts import ModelState, Origin, models_known

VIEW = "agents.view_modelprice"
ROLE_CHOICES = [(role, role) for role in ROLES]


class PricesSerializer(serializers.Serializer[Any]):
    input_usd = serializers.CharField(allow_null=True, help_text="US dollars per million tokens; null: no price.")
    output_usd = serializers.CharField(allow_null=True)
    cache_write_usd = serializers.CharField(allow_null=True)
    cache_read_usd = serializers.CharField(allow_null=True)


class ModelSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    provider = serializers.CharField()
    name = serializers.CharField(help_text="The name of the model at its server.")
    host = serializers.CharField(help_text="Where it is served; the rest of the address is not shown.")
    key_env = serializers.CharField(help_text="The variable that holds the key.")
    key_is_set = serializers.BooleanField()
    roles = serializers.ListField(child=serializers.ChoiceField(choices=ROLE_CHOICES))
    prices = PricesSerializer()
    prices_from = serializers.CharField()
    context_window = serializers.IntegerField(allow_null=True)
    max_tokens = serializers.JSONField(allow_null=True, help_text="A number, or one for each purpose.")
    reasoning = serializers.JSONField(allow_null=True)
    fallback = serializers.ListField(child=serializers.CharField())
    origin = serializers.CharField(help_text=f"One of: {'; '.join(Origin)}.")
    set_here = serializers.ListField(child=serializers.CharField(), help_text="Keys that are set in the admin.")
    problem = serializers.CharField(help_text="Why what is set in the admin is not in force; else empty.")
    state = serializers.ChoiceField(choices=[str(one) for one in ModelState])
    state_at = serializers.DateTimeField(allow_null=True, help_text="Since when, or when it was asked last.")
    error = serializers.CharField(help_text="Last error of its server, while it is away.")


class ModelsSerializer(serializers.Serializer[Any]):
    models = ModelSerializer(many=True)


class AnswerSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=ROLE_CHOICES)
    question = serializers.CharField()
    answered = serializers.BooleanField()
    readable = serializers.BooleanField(help_text="Whether a run could use the answer in this role.")
    text = serializers.CharField(help_text="Text of the answer.")
    error = serializers.CharField(help_text="Why there is no answer.")
    reading = serializers.CharField(help_text="The answer as a run would use it, or why it could not.")
    requests = serializers.IntegerField()
    took_ms = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    cost_usd = UsdField()


class ModelTestSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    ok = serializers.BooleanField(help_text="Whether every question got an answer that can be read.")
    session = serializers.UUIDField(help_text="The session in which the questions were asked.")
    error = serializers.CharField()
    spent_usd = UsdField(help_text="Cost: the larger of the next two.")
    charged_usd = UsdField(help_text="Approved estimates.")
    cost_usd = UsdField(help_text="The same as `charged_usd`, for clients from before there was `spent_usd`.")
    actual_usd = UsdField(help_text="Cost of the reported tokens.")
    answers = AnswerSerializer(many=True)


class ModelTestBody(Body):
    role = serializers.ChoiceField(
        choices=ROLE_CHOICES, required=False, help_text="Only the question of this role. Default: its roles."
    )


class ModelsView(SingleView):
    serializer_class = ModelsSerializer

    @describe(operation_id="models_list")
    def get(self, request: Request) -> Response:
        """The models in force: roles, prices, state and origin. Needs the permission agents.view_modelprice."""
        _require_view(self)
        return Response(ModelsSerializer({"models": [one.summary for one in models_known(self.now)]}).data)


class ModelTestView(SingleView):
    serializer_class = ModelTestSerializer
    starts = frozenset({"post"})

    @describe(body=ModelTestBody, operation_id="models_test")
    def post(self, request: Request, name: str) -> Response:
        _require_view(self)
        tested = model_test(model=name, role=self.body(ModelTestBody).get("role", ""), **self.actor)
        return Response(ModelTestSerializer(tested).data)

    post.__doc__ = f"""Ask a model one real question for each of its roles, in a session of yours.

        The name is the rest of the path, so it may hold slashes. The answer comes when the test is over, after
        {TEST_SECONDS} seconds at most. Needs the permissions agents.view_modelprice and agents.add_agentsession.
        """


def _require_view(view: SingleView) -> None:
    if not view.user.has_perm(VIEW):
        raise NotAllowed(f"Viewing and testing models needs the permission {VIEW}.")
