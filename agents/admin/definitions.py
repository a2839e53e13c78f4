"""Who acts and why: agents, triggers, projects, opt-ins, and what their runs have left behind."""

from django.contrib import admin

from agents.admin.base import ReadOnlyAdmin
from agents.models import Agent, Finding, Memory, Notification, Precedent, Profile, Project, Trigger


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    list_display = ["name", "owner", "mode", "enabled", "max_cost_per_day_usd"]
    list_filter = ["mode", "enabled"]
    list_select_related = ["owner"]


@admin.register(Trigger)
class TriggerAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "owner", "agent", "max_cost_usd", "max_cost_per_day_usd", "enabled"]
    list_filter = ["kind", "enabled"]
    list_select_related = ["owner", "agent"]


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ["name", "owner", "created_at"]
    list_select_related = ["owner"]


@admin.register(Profile)
class ProfileAdmin(ReadOnlyAdmin):
    list_display = ["user", "opted_in"]
    list_select_related = ["user"]


@admin.register(Finding)
class FindingAdmin(ReadOnlyAdmin):
    list_display = ["title", "severity", "session", "created_at"]
    list_select_related = ["session"]
    ordering = ["-id"]


@admin.register(Memory)
class MemoryAdmin(ReadOnlyAdmin):
    list_display = ["public_id", "state", "owner", "created_at"]
    list_filter = ["state"]
    list_select_related = ["owner"]
    ordering = ["-id"]


@admin.register(Precedent)
class PrecedentAdmin(ReadOnlyAdmin):
    list_display = ["pattern_kind", "summary", "observed_count", "owner", "last_seen_at", "dismissed_at"]
    list_select_related = ["owner"]
    ordering = ["-id"]


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    list_display = ["title", "owner", "session", "created_at", "read_at"]
    list_select_related = ["owner", "session"]
    ordering = ["-id"]
