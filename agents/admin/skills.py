"""Callable skills: the functions that agents may ask for, as installed and as operators have set them.

What is installed is not in a table, so the list is the registry's: a skill that nobody has set has a page, too.
"""

from typing import Any, Unpack

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from agents.admin.actions import Act, ActForm, ActingAdmin, Asked, Told
from agents.admin.base import RoomList, column, person
from agents.admin.display import LEVEL_LOOKS, cut
from agents.conf import clock
from agents.enums import Level
from agents.models import SkillSetting
from agents.skills.registry import (
    MOST_PER_HOUR,
    MOST_PRIVILEGED_PER_HOUR,
    PERMISSION,
    Changes,
    ListedSkill,
    skill_hours,
    skill_listed,
    skill_set,
    skill_to_set,
    skills_left_out,
    skills_listed,
)
from audit.models import SkillAudit

RECENT_CALLS = 20
ABOUT = '<span style="display: block; min-width: 15rem">{}</span>'
# The name of the sidebar, at the head of the page too.
SkillSetting._meta.verbose_name_plural = "callable skills"


class LevelForm(ActForm):
    level = forms.ChoiceField(
        required=False, help_text="Only a superuser may choose a lower level than the present one."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row: Any = self.rows[0]
        field: Any = self.fields["level"]
        field.choices = [("", f"As declared: {row.listed.declared}"), *((level, level) for level in Level.values)]
        field.initial = row.level


class LimitForm(ActForm):
    hourly_limit = forms.IntegerField(
        label="Calls in a clock hour",
        min_value=0,
        max_value=MOST_PER_HOUR,
        help_text=f"Over all agents and workers. A PRIVILEGED skill has {MOST_PRIVILEGED_PER_HOUR} at most.",
    )


def _set(asked: Asked, done: str, **changes: Unpack[Changes]) -> Told:
    [row] = asked.rows
    skill = skill_to_set(row.name)
    skill_set(name=skill.name, declared=skill.level, by=asked.by, now=asked.now, **changes)
    return Told(f"{skill.name} {done}.")


def _set_level(asked: Asked) -> Told:
    level = asked.given["level"] or None
    return _set(asked, f"counts as {level}" if level else "counts as its author declared it", level=level)


def _set_limit(asked: Asked) -> Told:
    limit = asked.given["hourly_limit"]
    return _set(asked, f"may run {limit} times in a clock hour", hourly_limit=limit)


def _is_installed(row: Any) -> bool:
    return row.listed.skill is not None


def _against(rows: Any) -> str:
    gone = [row.name for row in rows if not _is_installed(row)]
    return f"{', '.join(gone)} is not installed, so there is nothing to set." if gone else ""


class SkillList(RoomList):
    """What is installed, set or not, and what was set and is not installed any more."""

    def get_results(self, request: HttpRequest) -> None:
        wanted = self.query.lower()
        rows = [_row(listed) for listed in skills_listed(now=clock())]
        self.result_list = [row for row in rows if wanted in f"{row.name} {paragraphs_of(row.listed)[0]}".lower()]
        self.result_count = self.full_result_count = len(self.result_list)
        self.can_show_all, self.multi_page = False, False
        self.paginator = Paginator(self.result_list, max(1, self.result_count))

    def url_for_result(self, result: Any) -> str:
        return str(self.model_admin.row_link(result.name))


@admin.register(SkillSetting)
class CallableSkillAdmin(ActingAdmin):
    list_display = ["name", "about", "level_", "state", "limit", "used", "refused"]
    list_before_template = "admin/callable_skills.html"
    search_fields = ["name"]
    search_help_text = "Part of a name, or of what it does"
    empty = "No callable skill is installed, not even a built-in one: the log says which module cannot be loaded."
    sortable_by = ()
    acts = (
        Act("enable", "Switch on", PERMISSION, lambda asked: _set(asked, "is switched on", enabled=True), many=False,
            fits=lambda row: _is_installed(row) and not row.enabled, against=_against,
            explained="Agents may call it again, from their next step on."),
        Act("disable", "Switch off", PERMISSION, lambda asked: _set(asked, "is switched off", enabled=False),
            many=False, fits=lambda row: _is_installed(row) and row.enabled, against=_against,
            explained="From the next call on it answers as if it did not exist, to runs under way as well."),
        Act("set_level", "Set level", PERMISSION, _set_level, LevelForm, many=False, fits=_is_installed,
            against=_against,
            explained="From CONTROLLED on each call is noted with what went in and came out; from RESTRICTED on a "
                      "person is asked first, unless the agent is in mode auto. It holds from the next call on."),
        Act("set_limit", "Set hourly limit", PERMISSION, _set_limit, LimitForm, many=False, fits=_is_installed,
            against=_against,
            explained="What was called in this hour counts already. A call beyond the limit is refused, and counted "
                      "as refused."),
        Act("clear_limit", "Clear hourly limit", PERMISSION,
            lambda asked: _set(asked, "has no limit of its own", hourly_limit=None), many=False,
            fits=lambda row: _is_installed(row) and row.hourly_limit is not None, against=_against,
            explained=f"A PRIVILEGED skill keeps its {MOST_PRIVILEGED_PER_HOUR} calls in an hour; any other may be "
                      "called as often as is asked for."),
    )  # fmt: skip

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        shown = {"left_out": skills_left_out(), **(extra_context or {})}
        response: HttpResponse = super().changelist_view(request, shown)
        return response

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SkillList]:
        return SkillList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """By its name, which a skill has before anybody has set it; or by the number of its row."""
        known = super().get_object(request, object_id) if object_id.isdecimal() else None
        listed = skill_listed(known.name if known else object_id, now=clock())
        return _row(listed) if listed else None

    def act_link(self, row: Any, name: str) -> str:
        return reverse("admin:agents_skillsetting_act", args=[row.name, name])

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        row, by = self.found(request, object_id), person(request)
        calls = SkillAudit.objects.filter(skill_name=row.name).order_by("-created_at", "-id")
        may_see = by.has_perm("audit.view_skillaudit")
        return self.page(
            request,
            "admin/callable_skill.html",
            row.name,
            original=row,
            listed=row.listed,
            skill=row.listed.skill,
            paragraphs=paragraphs_of(row.listed),
            rises=row.listed.level is not None and row.listed.level.rank < Level.RESTRICTED.rank,
            hours=skill_hours(row.name, now=clock()),
            may_see_calls=may_see,
            calls=list(calls[:RECENT_CALLS]) if may_see else [],
            buttons=self.buttons(request, row),
        )

    @column("what it does")
    def about(self, row: Any) -> str:
        return format_html(ABOUT, cut(paragraphs_of(row.listed)[0], 110))

    @column("level")
    def level_(self, row: Any) -> str:
        level, declared = row.listed.level, row.listed.declared
        chip = format_html('<span class="lq-chip {}">{}</span>', LEVEL_LOOKS.get(level, ""), level or "unknown")
        if declared is None or level == declared:
            return chip
        return format_html('{}<br><span class="nowrap lq-warn">declared {}</span>', chip, declared)

    @column("state", labels={"on": "success", "off": "danger", "gone": "warning"})
    def state(self, row: Any) -> tuple[str, str]:
        if not _is_installed(row):
            return "gone", "not installed"
        if row.enabled and row.listed.skill.lacking:
            return "gone", "not set up"
        return ("on", "on") if row.enabled else ("off", "switched off")

    @column("limit per hour")
    def limit(self, row: Any) -> str:
        return "none" if row.listed.limit is None else str(row.listed.limit)

    @column("used this hour")
    def used(self, row: Any) -> int:
        return int(row.listed.use.used_this_hour)

    @column("refused this hour")
    def refused(self, row: Any) -> int:
        return int(row.listed.use.refused_this_hour)


def _row(listed: ListedSkill) -> Any:
    """What the pages of Django want: a row, that of the setting or one that nobody has saved."""
    row: Any = listed.setting or SkillSetting(name=listed.name)
    row.listed = listed
    return row


def paragraphs_of(listed: ListedSkill) -> list[str]:
    """What a skill says of itself, without the line ends of its source; the first paragraph stands for it in lists."""
    text = listed.skill.description if listed.skill else "Was set once; its module is not loaded any more."
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
