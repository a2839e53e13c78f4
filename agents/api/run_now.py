"""Run now: one session, at once, by one playbook or skill, or towards a goal. The same brakes, the same receipt."""

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView
from agents.api.fields import Body, OwnRow, UsdField, WordField
from agents.api.schema import described
from agents.api.sessions import SessionShown
from agents.enums import AnalysisMode
from agents.models import Agent, Collection, Document, Playbook, Project, PromptSkill
from agents.triggers.firing import GOAL_CHARS, run_now


class RunBody(Body):
    playbook = OwnRow(
        Playbook, required=False, allow_null=True, help_text="What to check against; or a skill, or a goal."
    )
    skill = OwnRow(PromptSkill, shared=True, required=False, allow_null=True)
    goal = serializers.CharField(
        max_length=GOAL_CHARS,
        required=False,
        allow_blank=True,
        help_text="What is to be reached, in words: worked towards in steps, with skills. It needs nothing to read.",
    )
    collection = OwnRow(Collection, required=False, allow_null=True, help_text="Reads all of it.")
    document = OwnRow(Document, required=False, allow_null=True)
    query = serializers.CharField(max_length=500, required=False, allow_blank=True)
    project = OwnRow(Project, required=False, allow_null=True)
    agent = OwnRow(Agent, required=False, allow_null=True)
    max_cost_usd = UsdField(required=False, allow_null=True, help_text="null: the installation's default.")
    emit_artifacts = serializers.BooleanField(required=False)
    review_flagged = serializers.BooleanField(
        required=False, help_text="A person is asked before a run with privilege or scope concerns tells of it."
    )
    analysis_mode = WordField(
        choices=AnalysisMode.choices, required=False, help_text="agentic: in steps, in which the model may call skills."
    )


EXAMPLE = OpenApiExample(
    "A playbook over a collection",
    {
        "playbook": "2c1f4c0e-3f57-4d0b-9d3e-5d2a1f0b7c11",
        "collection": "8a6b2f8e-0c1d-4e5f-9a7b-1c2d3e4f5a6b",
        "max_cost_usd": "0.50",
    },
    request_only=True,
)


class RunNow(ApiView):
    serializer_class = SessionShown
    starts = frozenset({"post"})

    @described("run_now", {201: SessionShown}, body=RunBody, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """Starts a run; 422 unless there is a goal, or exactly one playbook or skill.

        What is read is a document, a collection or what fits a query. A goal can have them, too. A run that is given
        none of them, and no goal, asks no model and says so. GET sessions/{id} follows the run.
        """
        said: dict[str, Any] = self.body(RunBody)
        session = run_now(owner=self.person, by=self.person, now=self.now, **said)
        return Response(SessionShown(session).data, status=201)
