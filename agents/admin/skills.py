"""Callable skills as installed and as operators have set them, and the hosts that secrets may be sent to.

The lists come from the registry and from the settings, not from a table: a skill, or a secret, without a row has a page
too. No page shows the value of a secret.
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
from agents.models import SecretBinding, SkillSetting
from agents.skills.handles import PERMISSION as BIND_PERMISSION
from agents.skills.handles import ListedSecret, secret_bind, secret_listed, secrets_listed
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
from audit.models import AuditEvent, SkillAudit

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
        help_text=f"Maximum per clock hour for all agents. A PRIVILEGED skill has at most {MAX_PRIVILEGED_PER_HOUR}. "
        "A higher limit than the current one needs the role admin.",
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


class NamedList(RowList):
    """Rows by name, some of them in no table: what the page's `named_rows` returns, with the text to search."""

    def get_results(self, request: HttpRequest) -> None:
        wanted = self.query.lower()
        self.result_list = [row for row, searched in self.model_admin.named_rows() if wanted in searched.lower()]
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

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[NamedList]:
        return NamedList

    def named_rows(self) -> list[tuple[Any, str]]:
        """All installed skills, and settings of skills that are no longer installed."""
        rows = [_row(listed) for listed in skills_listed(now=clock())]
        return [(row, f"{row.name} {paragraphs_of(row.listed)[0]}") for row in rows]

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


# --- Secrets ---


class HostsForm(ActionForm):
    hosts = forms.CharField(
        label="Hosts",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="One per line: shop.example.org, *.shop.example.org for the hosts below it, shop.example.org:8443 "
        "for one port alone, http://10.1.2.3:8080 for a host without encryption.",
    )


def _bind(action: ActionRequest) -> ActionResult:
    [row] = action.rows
    bound = secret_bind(name=row.name, hosts=action.data["hosts"].splitlines(), by=action.by, now=action.now)
    return ActionResult(f"{row.name}: may be sent to {', '.join(bound.hosts) or 'no host that is named here'}.")


def _secret_row(listed: ListedSecret) -> Any:
    """The row that Django's pages expect: the binding, or an unsaved one."""
    row: Any = listed.binding or SecretBinding(name=listed.name)
    row.listed = listed
    return row


def _secret_state(row: Any) -> tuple[str, str]:
    if not row.listed.is_set:
        return "gone", "not set"
    return ("on", "bound") if row.listed.hosts else ("off", "sent nowhere")


@admin.register(SecretBinding)
class SecretAdmin(DetailAdmin):
    state = column(_secret_state, title="state", label={"on": "success", "off": "warning", "gone": "danger"})
    named = column(lambda row: ", ".join(row.listed.named_hosts) or None, title="hosts named here")
    set_ = column(lambda row: ", ".join(row.listed.set_hosts) or None, title="hosts of the environment")
    list_display = ["name", "state", "named", "set_"]
    search_fields = ["name"]
    search_help_text = "Part of a name"
    empty_text = "There are no secrets. LQOPS_SECRET_<NAME> sets one; restart lqops after that."
    row_actions = (
        RowAction(
            "set_hosts",
            "Set hosts",
            _bind,
            permission=BIND_PERMISSION,
            description="The secret is sent to these hosts and to no other, from the next request. A new host loosens: "
            "it needs the role admin.",
            form=HostsForm,
            initial=lambda row: {"hosts": "\n".join(row.listed.named_hosts)},
            bulk=False,
        ),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[NamedList]:
        return NamedList

    def named_rows(self) -> list[tuple[Any, str]]:
        """All secrets of this installation, and those that are no longer set."""
        return [(_secret_row(listed), listed.name) for listed in secrets_listed()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """By name, which a secret without a row has too, or by the id of its row."""
        known = super().get_object(request, object_id) if object_id.isdecimal() else None
        listed = secret_listed(known.name if known else object_id)
        return _secret_row(listed) if listed else None

    def action_link(self, row: Any, name: str) -> str:
        return reverse("admin:agents_secretbinding_act", args=[row.name, name])

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        listed = row.listed
        used = AuditEvent.objects.filter(kind="secret.used", subject=f"secret:{row.name}").order_by("-id").first()
        changed = f"{row.updated_by or 'the command line'}, {row.updated_at:%Y-%m-%d %H:%M} UTC" if row.pk else ""
        facts = {
            "Handle": f'{{"$secret": "{row.name}"}}',
            "State": _secret_state(row)[1],
            "Hosts named here": ", ".join(listed.named_hosts) or "none",
            "Hosts of the environment": ", ".join(listed.set_hosts) or "none",
            "Last changed by": changed or "nobody",
            "Last recorded use": f"{used.details['host']}, {used.at:%Y-%m-%d %H:%M} UTC" if used else "none",
        }
        return {"facts": [{"label": label, "text": text} for label, text in facts.items()]}
