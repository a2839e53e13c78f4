"""Agents: who they work for, what asks a person first, what they may spend; and the halt of all that one does."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.agent_page import autonomy_context
from agents.admin.autonomy import GOING_LABELS, LEVERS, going_words, paces_itself
from agents.admin.base import column, person
from agents.admin.definitions import DefinitionPages
from agents.admin.display import meter_bar, usd
from agents.admin.forms import ReasonForm
from agents.admin.pages import EditForm
from agents.admin.sessions import CHANGE, halted
from agents.conf import clock
from agents.loop.reads import under_way_of
from agents.models import Agent
from agents.roster.agents import agent_create, agent_delete, agent_edit
from agents.sessions.control_room import meter_today
from agents.sessions.halts import agents_halt
from agents.sessions.reads import purposes


def _halt_sessions(asked: Asked) -> Told:
    pks = [agent.pk for agent in asked.rows]
    return halted(agents_halt(pks, by=asked.by, reason=asked.given["reason"], now=asked.now))


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: agent_delete(agent=row, by=asked.by, now=asked.now), "deleted")


class AgentForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    class Meta:
        model = Agent
        fields = ["name", "mode", "allow_high_risk", "enabled", "max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)", "allow_high_risk": "Allow high risk"}

    field_order = ["owner"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


@admin.register(Agent)
class AgentAdmin(DefinitionPages):
    list_display = ["name", "owner", "going", "mode", "enabled", "day_cap", "version"]
    list_filter = ["mode", "enabled"]
    list_select_related = ["owner"]
    search_fields = ["name"]
    empty = (
        "There are no agents. An agent says what asks a person first, and what its runs may spend in a day. Add one, "
        "or import its YAML."
    )
    form_class = AgentForm
    edit_template = "admin/agent.html"
    acts = (
        *LEVERS,
        Act("halt", "Halt its sessions", CHANGE, _halt_sessions, ReasonForm, grave=True,
            explained="Every session of this agent that is under way is halted. The agent itself stays as it is."),
        Act("delete", "Delete", "agents.delete_agent", _delete, grave=True, many=False,
            explained="Only an agent that has never run and has no triggers can be deleted; switch off any other."),
    )  # fmt: skip

    def prepare(self, rows: list[Any]) -> None:
        known = under_way_of(row.pk for row in rows)
        for row in rows:
            row.going = known.get(row.pk)

    @column("by itself", labels=GOING_LABELS)
    def going(self, agent: Any) -> tuple[str, str]:
        if agent.going is None:
            return "", "not running" if paces_itself(agent) else "no"
        return going_words(agent.going)

    @column("cap per day")
    def day_cap(self, agent: Agent) -> str:
        return usd(agent.max_cost_per_day_usd, empty="none of its own")

    @column("definition")
    def version(self, agent: Agent) -> str:
        return f"version {agent.definition_version}" if agent.definition_version else "none"

    def make_form(self, request: HttpRequest, row: Any) -> Any:
        form = super().make_form(request, row)
        form.fields["allow_high_risk"].disabled = not person(request).is_superuser
        return form

    def save_new(self, request: HttpRequest, form: Any) -> Agent:
        return agent_create(by=person(request), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: Agent, form: Any) -> Agent:
        return agent_edit(agent=row, by=person(request), now=clock(), **form.changes())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row is None:
            return {}
        sessions = list(row.sessions.select_related("owner", "trigger").order_by("-id")[:10])
        known = purposes(sessions)
        by = person(request)
        meter = meter_today("agent", row.pk, cap=row.max_cost_per_day_usd, name=row.name, now=clock())
        return {
            "sessions": [(session, known[session.pk]) for session in sessions],
            "may_chat": row.enabled and row.owner_id == by.pk and by.has_perm("agents.add_agentsession"),
            "meter": meter,
            "bar": meter_bar(meter),
            **(about := self.about_definition(row)),
            **autonomy_context(request, row, about.get("definition"), clock()),
        }
