"""Addresses of the API, version 1. Ids in them are public ids; none ends with a slash."""

from typing import Any

from django.contrib.auth.mixins import LoginRequiredMixin
from django.urls import include, path, re_path, reverse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from agents.api.agents import Agents
from agents.api.approvals import Approvals, Questions
from agents.api.ask import AskDryRun, Asks, Chats
from agents.api.base import ApiView
from agents.api.knowledge import Collections, Documents, Search
from agents.api.operations import Costs, HaltAllWork, Health, Me, ReleaseAllWork
from agents.api.playbooks import CallableSkills, Playbooks, SkillAudits, Skills
from agents.api.results import Memories, Notifications, Precedents, Projects, Proposals
from agents.api.sessions import RunNow, Sessions, ToolCalls, Transcript
from agents.api.streams import AgentEvents, agent_events_stream, session_stream
from agents.api.triggers import Events, Triggers
from agents.exceptions import NotFound

app_name = "api"

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("triggers/events", Events, basename="event")
router.register("agents", Agents, basename="agent")
router.register("approvals", Approvals, basename="approval")
router.register("callable-skills", CallableSkills, basename="callable-skill")
router.register("chats", Chats, basename="chat")
router.register("collections", Collections, basename="collection")
router.register("documents", Documents, basename="document")
router.register("events", AgentEvents, basename="agent-event")
router.register("memories", Memories, basename="memory")
router.register("notifications", Notifications, basename="notification")
router.register("playbooks", Playbooks, basename="playbook")
router.register("precedents", Precedents, basename="precedent")
router.register("projects", Projects, basename="project")
router.register("proposals", Proposals, basename="proposal")
router.register("questions", Questions, basename="question")
router.register("sessions", Sessions, basename="session")
router.register("skills", Skills, basename="skill")
router.register("tool-calls", ToolCalls, basename="tool-call")
router.register("triggers", Triggers, basename="trigger")


class Nowhere(ApiView):
    """Whatever has no address here is answered like everything else that is not found."""

    @extend_schema(exclude=True)
    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotFound(f"Not found: {reverse('api:docs')} lists the addresses of the API.")


class Docs(LoginRequiredMixin, SpectacularSwaggerSplitView):
    """The page that shows the schema; for people, who are sent to sign in."""


urlpatterns = [
    path("v1/asks", Asks.as_view(), name="asks"),
    path("v1/asks/dry-run", AskDryRun.as_view(), name="ask_dry_run"),
    path("v1/costs", Costs.as_view(), name="costs"),
    path("v1/events/stream", agent_events_stream, name="agent-events-stream"),
    path("v1/halt", HaltAllWork.as_view(), name="halt"),
    path("v1/health", Health.as_view(), name="health"),
    path("v1/me", Me.as_view(), name="me"),
    path("v1/release", ReleaseAllWork.as_view(), name="release"),
    path("v1/run-now", RunNow.as_view(), name="run-now"),
    path("v1/search", Search.as_view(), name="search"),
    path("v1/sessions/<uuid:id>/stream", session_stream, name="stream"),
    path("v1/sessions/<uuid:id>/transcript", Transcript.as_view(), name="transcript"),
    path("v1/skill-audits", SkillAudits.as_view(), name="skill-audits"),
    path("v1/", include(router.urls)),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", Docs.as_view(url_name="api:schema"), name="docs"),
    re_path(r"^v1/", Nowhere.as_view(), name="nowhere"),
]
