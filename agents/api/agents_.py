"""Agents: named workers with one owner, one approval mode and one budget."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown, UsdField, WordField
from agents.api.schema import described
from agents.enums import ApprovalMode
from agents.models import Agent
from agents.services.agents import NAME_CHARS, agent_create, agent_delete, agent_edit


class AgentShown(Shown):
    class Meta:
        model = Agent
        fields = ["id", "name", "mode", "enabled", "max_cost_per_day_usd", "created_at"]


class AgentBody(Body):
    name = serializers.CharField(max_length=NAME_CHARS)
    mode = WordField(choices=ApprovalMode.choices, required=False)
    enabled = serializers.BooleanField(required=False)
    max_cost_per_day_usd = UsdField(required=False, allow_null=True)


class Agents(OwnedViewSet[Agent]):
    """Your agents, newest first."""

    queryset = Agent.objects.all()
    serializer_class = AgentShown

    @described("agents_create", {201: AgentShown}, body=AgentBody)
    def create(self, request: Request) -> Response:
        said = self.body(AgentBody)
        return self.shown(agent_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("agents_edit", AgentShown, body=AgentBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """While sessions of the agent are under way, its mode can be tightened and not loosened."""
        agent, said = self.get_object(), self.body(AgentBody, partial=True)
        return self.shown(agent_edit(agent=agent, by=self.person, now=self.now, **said))

    @described("agents_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """Deletes an agent that has never run; one with a history is switched off instead (409)."""
        agent_delete(agent=self.get_object(), by=self.person, now=self.now)
        return self.gone()
