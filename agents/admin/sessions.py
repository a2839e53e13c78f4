"""Sessions, their calls, approvals and halts. The halt action asks the same service as the command."""

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from agents.admin.base import ReadOnlyAdmin
from agents.conf import clock
from agents.models import AgentSession, Approval, Halt, ToolCall
from agents.services.halts import sessions_halt


@admin.register(AgentSession)
class AgentSessionAdmin(ReadOnlyAdmin):
    list_display = [
        "public_id",
        "status",
        "halt_state",
        "terminal_reason",
        "spent",
        "owner",
        "agent",
        "created_at",
        "receipt",
    ]
    list_filter = ["status", "halt_state", "mode", "trigger_kind"]
    list_select_related = ["owner", "agent"]
    search_fields = ["public_id__exact"]
    search_help_text = "The public id of a session, in full."
    ordering = ["-id"]
    actions = ["halt_selected"]

    @admin.display(description="spent / cap")
    def spent(self, session: AgentSession) -> str:
        cap = "no cap" if session.max_cost_usd is None else f"${session.max_cost_usd.normalize():f}"
        return f"${session.cost_total_usd.normalize():f} / {cap}"

    @admin.display(description="receipt")
    def receipt(self, session: AgentSession) -> str:
        if session.started_at is None and session.completed_at is None:
            return "not started"
        return format_html('<a href="{}">receipt</a>', reverse("audit:receipt", args=[session.chain]))

    def has_halt_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_agentsession")

    @admin.action(description="Halt the selected sessions", permissions=["halt"])
    def halt_selected(self, request: HttpRequest, queryset: QuerySet[AgentSession]) -> None:
        pks = list(queryset.values_list("pk", flat=True))
        by = request.user if isinstance(request.user, User) else None
        counted = sessions_halt(pks, by=by, reason="halted in the admin", now=clock())
        self.message_user(
            request,
            f"{counted.requested} asked to halt, {counted.already_halted} halted before, {counted.terminal} over.",
            messages.SUCCESS,
        )


@admin.register(ToolCall)
class ToolCallAdmin(ReadOnlyAdmin):
    list_display = [
        "public_id",
        "session",
        "intent",
        "name",
        "phase",
        "outcome",
        "charged_usd",
        "actual_usd",
        "started_at",
    ]
    list_filter = ["outcome", "intent"]
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact"]
    ordering = ["-id"]


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    list_display = ["action", "level", "risk_level", "status", "session", "created_at", "expires_at", "resolved_by"]
    list_filter = ["status", "level"]
    list_select_related = ["session", "resolved_by"]
    ordering = ["-id"]


@admin.register(Halt)
class HaltAdmin(ReadOnlyAdmin):
    list_display = ["scope", "session", "reason", "requested_by", "requested_at", "released_at"]
    list_filter = ["scope"]
    list_select_related = ["session", "requested_by"]
    ordering = ["-id"]
