"""Skills: loaded from folders, run only as accepted. A changed one is shown with both digests before it is accepted."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, list_button, person
from agents.admin.display import cut
from agents.admin.facts import FactsAdmin
from agents.admin.forms import ActForm
from agents.conf import clock
from agents.exceptions import SkillChanged
from agents.knowledge.playbooks import skill_accept, skill_switch, skills_load
from agents.models import PromptSkill

CHANGE = "agents.change_promptskill"


class AcceptForm(ActForm):
    """Carries the digest of the files that were shown."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        [skill] = self.rows
        self.fields["digest"].initial = getattr(skill, "found_digest", "")


def _accept(asked: Asked) -> Told:
    [skill] = asked.rows
    if skill.found_digest != asked.given["digest"]:
        raise SkillChanged(
            f"The files of {skill.name} have changed once more since they were shown; look at them again."
        )
    accepted = skill_accept(skill, by=asked.by, now=asked.now)
    return Told(f"{accepted.name} runs as version {accepted.version}, digest {accepted.digest[:12]}.")


def _switch(asked: Asked, *, enabled: bool) -> Told:
    done = "switched on" if enabled else "switched off"
    return each(asked, lambda row: skill_switch(row, enabled=enabled, by=asked.by, now=asked.now), done)


@admin.register(PromptSkill)
class PromptSkillAdmin(FactsAdmin):
    list_display = ["name", "about", "state", "version", "accepted", "loaded_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "description"]
    ordering = ("name",)
    empty = "No skill is loaded. Put folders with a SKILL.md where LQOPS_SKILL_FOLDERS points, then look through them."
    hidden = frozenset({"id", "front_matter"})
    actions_list = ["load"]
    acts = (
        Act("accept", "Accept the changed files", CHANGE, _accept, AcceptForm, many=False, grave=True,
            fits=lambda row: row.has_changed and row.found_digest, template="admin/skill_accept.html",
            explained="From then on runs use the files as they are now. Read them first: they become instructions."),
        Act("enable", "Switch on", CHANGE, lambda asked: _switch(asked, enabled=True),
            fits=lambda row: not row.enabled),
        Act("disable", "Switch off", CHANGE, lambda asked: _switch(asked, enabled=False), fits=lambda row: row.enabled,
            explained="Runs that begin later cannot use it."),
    )  # fmt: skip

    @column("what it does")
    def about(self, skill: PromptSkill) -> str:
        return cut(skill.description, 100)

    @column("state", labels={"fine": "success", "changed": "danger", "missing": "danger", "off": "warning"})
    def state(self, skill: PromptSkill) -> tuple[str, str]:
        return state_of(skill)

    @column("accepted digest")
    def accepted(self, skill: PromptSkill) -> str:
        return skill.digest[:12]

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"state": state_of(row)[1]}

    @list_button("Look through the skill folders", address="load", permission="load")
    def load(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            explained = "New skills are taken as they are; changed ones are marked and do not run until accepted."
            act = {"title": "Look through the skill folders", "explained": explained}
            form = ActForm(by=person(request), rows=())
            return self.page(request, "admin/act.html", act["title"], form=form, act=act, back=self.list_link())
        report = skills_load(by=person(request), now=clock())
        states = [one.state for one in report.skills]
        counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "none found"
        messages.success(request, f"Skills: {counted}.")
        for problem in report.problems:
            messages.warning(request, problem)
        return HttpResponseRedirect(self.list_link())

    def has_load_permission(self, request: HttpRequest) -> bool:
        return person(request).has_perm(CHANGE)


def state_of(skill: PromptSkill) -> tuple[str, str]:
    if not skill.enabled:
        return "off", "switched off"
    if not skill.found_digest:
        return "missing", "files are gone"
    return ("changed", "changed: not accepted") if skill.has_changed else ("fine", "accepted")
