"""Routes of the API, version 1. Ids are public ids; no route ends with a slash."""

from typing import Any

from django.contrib.auth.mixins import LoginRequiredMixin
from django.urls import include, path, re_path, reverse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from agents.api.agents import AgentViewSet
from agents.api.approvals import ApprovalRuleViewSet, ApprovalViewSet, DelegationViewSet, QuestionViewSet
from agents.api.ask import AskConfirmView, AskView, ChatViewSet
from agents.api.audit import AuditExportView
from agents.api.base import SingleView
from agents.api.knowledge import CollectionViewSet, DocumentViewSet, SearchView
from agents.api.models import ModelsView, ModelTestView
from agents.api.operations import (
    CeilingsView,
    ChannelViewSet,
    CostsView,
    DeliveryViewSet,
    HaltView,
    HealthView,
    MeView,
    PauseView,
    ReleaseView,
    ResumeView,
)
from agents.api.playbooks import CallableSkillViewSet, PlaybookViewSet, SkillAuditView, SkillViewSet
from agents.api.results import (
    FindingViewSet,
    MemoryViewSet,
    NotificationViewSet,
    PrecedentViewSet,
    ProjectViewSet,
    ProposalViewSet,
)
from agents.api.sessions import RunEstimateView, RunNowView, SessionViewSet, ToolCallViewSet, TranscriptView
from agents.api.streams import AgentEventStreamView, AgentEventViewSet, SessionStreamView
from agents.api.triggers import EventViewSet, TriggerViewSet, UnreadInputViewSet
from agents.exceptions import NotFound

app_name = "api"

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("triggers/events", EventViewSet, basename="event")
router.register("agents", AgentViewSet, basename="agent")
router.register("approval-rules", ApprovalRuleViewSet, basename="approval-rule")
router.register("approvals", ApprovalViewSet, basename="approval")
router.register("callable-skills", CallableSkillViewSet, basename="callable-skill")
router.register("channels", ChannelViewSet, basename="channel")
router.register("chats", ChatViewSet, basename="chat")
router.register("collections", CollectionViewSet, basename="collection")
router.register("delegations", DelegationViewSet, basename="delegation")
router.register("deliveries", DeliveryViewSet, basename="delivery")
router.register("documents", DocumentViewSet, basename="document")
router.register("events", AgentEventViewSet, basename="agent-event")
router.register("findings", FindingViewSet, basename="finding")
router.register("memories", MemoryViewSet, basename="memory")
router.register("notifications", NotificationViewSet, basename="notification")
router.register("playbooks", PlaybookViewSet, basename="playbook")
router.register("precedents", PrecedentViewSet, basename="precedent")
router.register("projects", ProjectViewSet, basename="project")
router.register("proposals", ProposalViewSet, basename="proposal")
router.register("questions", QuestionViewSet, basename="question")
router.register("sessions", SessionViewSet, basename="session")
router.register("skills", SkillViewSet, basename="skill")
router.register("tool-calls", ToolCallViewSet, basename="tool-call")
router.register("triggers", TriggerViewSet, basename="trigger")
router.register("unread-inputs", UnreadInputViewSet, basename="unread-input")


class NotFoundView(SingleView):
    """Answer unknown paths with the API's error shape."""

    @extend_schema(exclude=True)
    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotFound(f"Not found: {reverse('api:docs')} lists the routes of the API.")


class DocsView(LoginRequiredMixin, SpectacularSwaggerSplitView):
    """The interactive API documentation, for signed-in users."""

    template_name = "api/docs.html"


urlpatterns = [
    path("v1/asks", AskView.as_view(), name="asks"),
    path("v1/asks/confirm", AskConfirmView.as_view(), name="ask_confirm"),
    path("v1/audit/export", AuditExportView.as_view(), name="audit-export"),
    path("v1/costs", CostsView.as_view(), name="costs"),
    path("v1/events/stream", AgentEventStreamView.as_view(), name="agent-events-stream"),
    path("v1/halt", HaltView.as_view(), name="halt"),
    path("v1/health", HealthView.as_view(), name="health"),
    path("v1/me", MeView.as_view(), name="me"),
    path("v1/models", ModelsView.as_view(), name="models"),
    path("v1/models/<path:name>/test", ModelTestView.as_view(), name="model-test"),
    path("v1/pause", PauseView.as_view(), name="pause"),
    path("v1/people/<str:name>/ceilings", CeilingsView.as_view(), name="ceilings"),
    path("v1/release", ReleaseView.as_view(), name="release"),
    path("v1/resume", ResumeView.as_view(), name="resume"),
    path("v1/run-now", RunNowView.as_view(), name="run-now"),
    path("v1/run-now/estimate", RunEstimateView.as_view(), name="run-estimate"),
    path("v1/search", SearchView.as_view(), name="search"),
    path("v1/sessions/<uuid:id>/stream", SessionStreamView.as_view(), name="stream"),
    path("v1/sessions/<uuid:id>/transcript", TranscriptView.as_view(), name="transcript"),
    path("v1/skill-audits", SkillAuditView.as_view(), name="skill-audits"),
    path("v1/", include(router.urls)),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", DocsView.as_view(url_name="api:schema"), name="docs"),
    re_path(r"^v1/", NotFoundView.as_view(), name="nowhere"),
]
