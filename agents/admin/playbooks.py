"""Playbooks with their positions in order; in and out as YAML."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.forms import formset_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from agents.admin.actions import REFUSALS, Act, ActForm, Asked, DressedForm, Told, each
from agents.admin.base import column, list_button, look, person
from agents.admin.display import DeletedFilter, cut
from agents.admin.pages import EditForm, EditingAdmin, FactsAdmin, blame
from agents.conf import clock
from agents.definitions.playbooks import Position
from agents.exceptions import SkillChanged
from agents.http import yaml_file
from agents.knowledge.playbooks import (
    MAX_POSITIONS,
    playbook_create,
    playbook_delete,
    playbook_edit,
    playbook_export,
    playbook_import,
    playbook_rendered,
    positions_of,
    skill_accept,
    skill_switch,
    skills_load,
)
from agents.models import Playbook, PromptSkill

YAML_CHARS = 500_000


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: playbook_delete(row, by=asked.by, now=asked.now), "deleted")


class PlaybookForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    class Meta:
        model = Playbook
        fields = ["name"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


class LinesField(forms.CharField):
    """Several short texts, one a line."""

    def __init__(self, **more: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 2}), **more)

    def to_python(self, value: Any) -> Any:
        return tuple(line.strip() for line in (super().to_python(value) or "").splitlines() if line.strip())

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(self.prepare_value(initial)) != self.to_python(data))


class PositionForm(DressedForm):
    issue = forms.CharField(max_length=200)
    severity = forms.ChoiceField(choices=[(word, word) for word in ("info", "warn", "critical")], initial="warn")
    standard = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="The language that is wanted."
    )
    fallbacks = LinesField(help_text="Wordings that would still do, best first, one a line.")
    must_contain = LinesField(help_text="Phrases that have to stand in the document, one a line.")
    must_not_contain = LinesField(help_text="Phrases that must not, one a line.")
    guidance = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))


PositionForms = formset_factory(
    PositionForm, can_order=True, can_delete=True, extra=0, max_num=MAX_POSITIONS, validate_max=True
)


class ImportForm(DressedForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))
    text = forms.CharField(
        label="YAML",
        max_length=YAML_CHARS,
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false"}),
        help_text="A playbook of the same name becomes its next version; any other is new.",
    )


@admin.register(Playbook)
class PlaybookAdmin(EditingAdmin):
    list_display = ["name", "owner", "version", "count", "updated_at"]
    list_filter = [DeletedFilter]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    empty = "There are no playbooks. Add one with the positions to check documents against, or import it as YAML."
    ordering = ["name", "id"]
    sortable_by = ("name",)
    form_class = PlaybookForm
    edit_template = "admin/playbook.html"
    actions_list = ["import_yaml"]
    acts = (
        Act("delete", "Delete", "agents.delete_playbook", _delete, grave=True, fits=lambda row: not row.deleted_at,
            explained="No run can use it any more. Runs that did keep its version and digest in their record."),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Playbook]:
        rows: QuerySet[Playbook] = super().get_queryset(request)
        return rows.annotate(number=Count("positions"))

    @column("positions")
    def count(self, playbook: Any) -> int:
        return int(playbook.number)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or obj.deleted_at is None) and super().has_change_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(self.export_view)
        return [path("<int:pk>/export/", export, name="agents_playbook_export"), *super().get_urls()]

    def make_form(self, request: HttpRequest, row: Playbook | None) -> Any:
        """The name, with the positions as a list of forms beside it: both have to be fine."""
        form = super().make_form(request, row)
        form.positions = self._positions(request, row)
        if request.method == "POST" and not form.positions.is_valid():
            form.add_error(None, "Look at the positions below.")
        return form

    def _positions(self, request: HttpRequest, row: Playbook | None) -> Any:
        if request.method == "POST":
            return PositionForms(request.POST, prefix="positions")
        known = [vars(position) for position in positions_of(row)] if row else []
        forms_ = PositionForms(initial=known, prefix="positions")
        forms_.extra = 0 if row else 1
        return forms_

    def save_new(self, request: HttpRequest, form: Any) -> Playbook:
        given = {**form.cleaned_data, "positions": given_positions(form.positions)}
        return playbook_create(by=person(request), now=clock(), **given)

    def save_changes(self, request: HttpRequest, row: Playbook, form: Any) -> Playbook:
        given = {"name": form.cleaned_data["name"], "positions": given_positions(form.positions)}
        return playbook_edit(row, by=person(request), now=clock(), **given)

    def beside(self, request: HttpRequest, row: Playbook | None) -> dict[str, Any]:
        return {"rendered": playbook_rendered(row)} if row else {}

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        playbook = self.found(request, str(pk))
        look(request, person(request), playbook)
        return yaml_file(playbook.name, playbook_export(playbook))

    @list_button("Import YAML", address="import", permission="add")
    def import_yaml(self, request: HttpRequest) -> HttpResponse:
        form = ImportForm(request.POST or None, initial={"owner": person(request).pk})
        if request.method == "POST" and form.is_valid():
            try:
                playbook = playbook_import(by=person(request), now=clock(), **form.cleaned_data)
            except REFUSALS as error:
                blame(form, error)
            else:
                messages.success(request, f"Playbook {playbook} is imported.")
                return HttpResponseRedirect(self.row_link(playbook.pk))
        act = {"title": "Import", "explained": ""}
        return self.page(request, "admin/act.html", "Import a playbook", form=form, act=act, back=self.list_link())


def given_positions(forms_: Any) -> list[Position]:
    """The positions that were filled in and not taken out, in the order that the person gave them."""
    kept = [form.cleaned_data for form in forms_.ordered_forms if form.cleaned_data.get("issue")]
    names = ("issue", "severity", "standard", "fallbacks", "guidance", "must_contain", "must_not_contain")
    return [Position(**{name: given[name] for name in names}) for given in kept]


# Skills: loaded from folders, run only as accepted. A changed one is shown with both digests before it is accepted.


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
