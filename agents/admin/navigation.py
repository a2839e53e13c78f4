"""The sidebar: every page in the order in which an operator works. A page that a person may not open is not shown."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from agents.admin.base import person
from agents.enums import ApprovalStatus, QuestionStatus
from agents.models import Approval, Notification, Question

COUNTED = 99

# title, icon, page, permission; a section may have a heading
_SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "",
        (
            ("Home", "home", "index", ""),
            ("Approvals", "approval", "agents_approval_changelist", "agents.view_approval"),
            ("Questions", "contact_support", "agents_question_changelist", "agents.view_question"),
            ("Chats", "chat", "chats", "agents.view_agentsession"),
            ("Sessions", "play_circle", "agents_agentsession_changelist", "agents.view_agentsession"),
            ("Triggers", "bolt", "agents_trigger_changelist", "agents.view_trigger"),
        ),
    ),
    (
        "Knowledge",
        (
            ("Collections", "folder", "agents_collection_changelist", "agents.view_collection"),
            ("Documents", "description", "agents_document_changelist", "agents.view_document"),
            ("Playbooks", "rule", "agents_playbook_changelist", "agents.view_playbook"),
            ("Skills", "school", "agents_promptskill_changelist", "agents.view_promptskill"),
        ),
    ),
    (
        "Results",
        (
            ("Findings", "search_insights", "agents_finding_changelist", "agents.view_finding"),
            ("Precedents", "repeat", "agents_precedent_changelist", "agents.view_precedent"),
            ("Proposals", "add_task", "agents_contextproposal_changelist", "agents.view_contextproposal"),
            ("Memories", "psychology", "agents_memory_changelist", "agents.view_memory"),
            ("Notices", "notifications", "agents_notification_changelist", "agents.view_notification"),
        ),
    ),
    (
        "Set-up",
        (
            ("Projects", "workspaces", "agents_project_changelist", "agents.view_project"),
            ("Agents", "smart_toy", "agents_agent_changelist", "agents.view_agent"),
            ("Callable skills", "build", "agents_skillsetting_changelist", "agents.view_skillsetting"),
            ("Events received", "webhook", "agents_inboundevent_changelist", "agents.view_inboundevent"),
        ),
    ),
    (
        "Money",
        (
            ("Spending and caps", "savings", "agents_budget_changelist", "agents.view_budget"),
            ("Model prices", "sell", "agents_modelprice_changelist", "agents.view_modelprice"),
            ("Suspended models", "block", "agents_suspendedmodel_changelist", "agents.view_suspendedmodel"),
            ("Model calls", "forum", "agents_inferencelog_changelist", "agents.view_inferencelog"),
        ),
    ),
    (
        "Evidence",
        (
            ("Record", "history_edu", "audit_auditevent_changelist", "audit.view_auditevent"),
            ("Agent events", "timeline", "agents_agentevent_changelist", "agents.view_agentevent"),
            ("Calls", "terminal", "agents_toolcall_changelist", "agents.view_toolcall"),
            ("Skill audit", "fact_check", "audit_skillaudit_changelist", "audit.view_skillaudit"),
            ("Halts", "front_hand", "agents_halt_changelist", "agents.view_halt"),
        ),
    ),
    (
        "Installation",
        (
            ("People", "group", "auth_user_changelist", "auth.view_user"),
            ("Roles", "badge", "auth_group_changelist", "auth.view_group"),
            ("API keys", "key", "agents_apikey_changelist", "agents.view_apikey"),
            ("Health", "monitor_heart", "health", "agents.view_agentsession"),
        ),
    ),
)


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    user = person(request)
    badges = _badges(request)
    built = []
    for title, pages in _SECTIONS:
        items: list[dict[str, Any]] = [
            {"title": name, "icon": icon, "link": reverse(f"admin:{page}"), **badges.get(page, {})}
            for name, icon, page, permission in pages
            if not permission or user.has_perm(permission)
        ]
        if items:
            built.append({"title": title, "separator": bool(title), "items": items})
    return built


def _badges(request: HttpRequest) -> dict[str, dict[str, str]]:
    """Numbers beside the pages where somebody is waited for; counted no further than is shown."""
    user = person(request)
    pending = 0
    if user.has_perm("agents.resolve_approval"):
        pending = _up_to(Approval.objects.filter(status=ApprovalStatus.PENDING))
    unread = _up_to(Notification.objects.filter(owner=user, read_at__isnull=True))
    asked = Question.objects.filter(status=QuestionStatus.PENDING)
    if not user.has_perm("agents.resolve_approval"):
        asked = asked.filter(session__owner=user)
    numbers = {
        "agents_approval_changelist": pending,
        "agents_question_changelist": _up_to(asked),
        "agents_notification_changelist": unread,
    }
    return {
        page: {"badge": str(number) if number < COUNTED else f"{COUNTED}+"}
        for page, number in numbers.items()
        if number
    }


def _up_to(rows: QuerySet[Any]) -> int:
    return len(rows.order_by().values_list("pk")[:COUNTED])
