"""Callable skills: the functions that agents may call, as installed and as operators have set them.

The list comes from the registry, not from a table: an installed skill without settings has a page too.
"""

from typing import Any, Unpack

from django import forms
from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import display

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction
from agents.admin.base import DetailAdmin, RowList, current_user
from agents.admin.display import LEVEL_COLORS, column, cut
from agents.conf import clock
from agents.enums import Level
from agents.models import SkillSetting
from agents.skills.registry import (
    MAX_PER_HOUR,
    MAX_PRIVILEGED_PER_HOUR,
    PERMISSION,
    ListedSkill,
    SkillChanges,
    installed_skill,
    skill_hours,
    skill_listed,
    skill_set,
    skills_left_out,
    skills_listed,
)
from audit.models import SkillAudit

RECENT_CALLS = 20
ABOUT = '<span style="display: block; min-width: 15rem">{}</span>'
# The name of the sidebar, as the heading of the page.
SkillSetting._meta.verbose_name_plural = "callable skills"


class LevelForm(ActionForm):
    level = forms.ChoiceField(
        choices=[("", "As declared"), *((level, level) for level in Level.values)],
        required=False,
        help_text="A lower level than the current one needs the role admin.",
    )


class LimitForm(ActionForm):
    hourly_limit = forms.IntegerField(
        label="Calls per hour",
        min_value=0,
        max_value=MAX_PER_HOUR,
        help_text=f"Maximum per clock hour for all agents. A PRIVILEGED skill has at most {MAX_PRIVILEGED_PER_HOUR}.",
    )


def _set(action: ActionRequest, done: str, **changes: Unpack[SkillChanges]) -> ActionResult:
    [row] = action.rows
    skill = installed_skill(row.name)
    skill_set(name=skill.name, declared=skill.level, by=action.by, now=action.now, **changes)
    return ActionResult(f"{skill.name}: {done}.")


def _set_level(action: ActionRequest) -> ActionResult:
    level = action.data["level"] or None
    return _set(action, f"level {level}" if level else "level as declared", level=level)


def _set_limit(action: ActionRequest) -> ActionResult:
    limit = action.data["hourly_limit"]
    return _set(action, f"limit {limit} per hour", hourly_limit=limit)


def _is_installed(row: Any) -> bool:
    return row.listed.skill is not None


def _not_installed(rows: Any) -> str:
    gone = [row.name for row in rows if not _is_installed(row)]
    return f"{', '.join(gone)} is not installed." if gone else ""


def _action(name: str, title: str, run: Any, description: str, **more: Any) -> RowAction:
    """An action on one installed skill."""
    given = {"available": _is_installed, "conflict": _not_installed, "bulk": False, **more}
    return RowAction(name, title, run, permission=PERMISSION, description=description, **given)


class SkillList(RowList):
    """All installed skills, and settings of skills that are no longer installed."""

    def get_results(self, request: HttpRequest) -> None:
        wanted = self.query.lower()
        rows = [_row(listed) for listed in skills_listed(now=clock())]
        self.result_list = [row for row in rows if wanted in f"{row.name} {paragraphs_of(row.listed)[0]}".lower()]
        self.result_count = self.full_result_count = len(self.result_list)
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(self.result_list, max(1, self.result_count))

    def url_for_result(self, result: Any) -> str:
        return str(self.model_admin.row_link(result.name))


def _row(listed: ListedSkill) -> Any:
    """The row that Django's pages expect: the setting, or an unsaved one."""
    row: Any = listed.setting or SkillSetting(name=listed.name)
    row.listed = listed
    return row


def paragraphs_of(listed: ListedSkill) -> list[str]:
    """The paragraphs of a skill's description, without the line ends of its source. Lists show the first."""
    text = listed.skill.description if listed.skill else "Its module is no longer installed."
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def state_of(row: Any) -> tuple[str, str]:
    if not _is_installed(row):
        return "gone", "not installed"
    if row.enabled and row.listed.skill.lacking:
        return "gone", "not set up"
    return ("on", "enabled") if row.enabled else ("off", "disabled")


@admin.register(SkillSetting)
class CallableSkillAdmin(DetailAdmin):
    description = column(lambda row: format_html(ABOUT, cut(paragraphs_of(row.listed)[0], 110)), title="description")
    state = column(state_of, title="state", label={"on": "success", "off": "danger", "gone": "warning"})
    limit = column(lambda row: "none" if row.listed.limit is None else row.listed.limit, title="limit per hour")
    used = column(lambda row: row.listed.use.used_this_hour, title="used this hour")
    refused = column(lambda row: row.listed.use.refused_this_hour, title="refused this hour")
    list_display = ["name", "description", "level_", "state", "limit", "used", "refused"]
    list_before_template = "admin/callable_skills.html"
    search_fields = ["name"]
    search_help_text = "Part of a name or description"
    empty_text = "No callable skills are installed. The log names the module that cannot be loaded."
    change_form_template = "admin/callable_skill.html"
    row_actions = (
        _action(
            "enable",
            "Enable",
            lambda action: _set(action, "enabled", enabled=True),
            "Agents can call it again, from their next step.",
            available=lambda row: _is_installed(row) and not row.enabled,
        ),
        _action(
            "disable",
            "Disable",
            lambda action: _set(action, "disabled", enabled=False),
            "From the next call, agents and current runs get the same answer as for an unknown skill.",
            available=lambda row: _is_installed(row) and row.enabled,
        ),
        _action(
            "set_level",
            "Set level",
            _set_level,
            "From CONTROLLED, each call is logged with its input and output. From RESTRICTED, each call needs approval "
            "unless the agent's mode is auto. Applies from the next call.",
            form=LevelForm,
            initial=lambda row: {"level": row.level},
        ),
        _action(
            "set_limit",
            "Set hourly limit",
            _set_limit,
            "Calls of this hour count already. A call beyond the limit is refused.",
            form=LimitForm,
        ),
        _action(
            "clear_limit",
            "Clear hourly limit",
            lambda action: _set(action, "no limit of its own", hourly_limit=None),
            f"A PRIVILEGED skill keeps its limit of {MAX_PRIVILEGED_PER_HOUR} per hour; any other has none.",
            available=lambda row: _is_installed(row) and row.hourly_limit is not None,
        ),
    )

    def left_out(self) -> tuple[str, ...]:
        """Modules that cannot be loaded, for the text above the list."""
        return tuple(skills_left_out())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SkillList]:
        return SkillList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """By name, which a skill without settings has too, or by the id of its row."""
        known = super().get_object(request, object_id) if object_id.isdecimal() else None
        listed = skill_listed(known.name if known else object_id, now=clock())
        return _row(listed) if listed else None

    def action_link(self, row: Any, name: str) -> str:
        return reverse("admin:agents_skillsetting_act", args=[row.name, name])

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        calls = SkillAudit.objects.filter(skill_name=row.name).order_by("-created_at", "-id")
        may_see = current_user(request).has_perm("audit.view_skillaudit")
        return {
            "title": row.name,
            "listed": row.listed,
            "skill": row.listed.skill,
            "paragraphs": paragraphs_of(row.listed),
            "rises": row.listed.level is not None and row.listed.level.rank < Level.RESTRICTED.rank,
            "hours": skill_hours(row.name, now=clock()),
            "may_see_calls": may_see,
            "calls": list(calls[:RECENT_CALLS]) if may_see else [],
        }

    @display(description="level")
    def level_(self, row: Any) -> str:
        level = row.listed.level
        declared = row.listed.declared
        chip = format_html('<span class="lq-chip {}">{}</span>', LEVEL_COLORS.get(level, ""), level or "unknown")
        if declared is None or level == declared:
            return chip
        return format_html('{}<br><span class="nowrap lq-warn">declared {}</span>', chip, declared)
