"""Playbooks with their positions, also as YAML; and skills: the folders of instructions that runs follow."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.forms import formset_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import URLPattern, reverse
from unfold.decorators import action as unfold_action

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, delete_action, each_row
from agents.admin.base import DetailAdmin, NamedAdmin, confirm_page, current_user, record_view
from agents.admin.display import DeletedFilter, column, cut
from agents.admin.forms import REFUSALS, CodeEditor, OwnerForm, StyledForm, error_text, line_problems
from agents.conf import clock
from agents.definitions.playbooks import MAX_POSITIONS, Position, read_playbook
from agents.exceptions import Invalid, SkillChanged
from agents.knowledge.findings import ALARM_DAYS, false_alarms
from agents.knowledge.playbooks import (
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
from agents.webhooks import yaml_download

YAML_CHARS = 500_000
STATE_LABELS = {"fine": "success", "changed": "danger", "missing": "danger", "off": "warning"}


class PlaybookForm(OwnerForm):
    class Meta:
        model = Playbook
        fields = ["name"]


class LinesField(forms.CharField):
    """Several short texts, one per line."""

    def __init__(self, **more: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 2}), **more)

    def to_python(self, value: Any) -> Any:
        return tuple(line.strip() for line in (super().to_python(value) or "").splitlines() if line.strip())

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(self.prepare_value(initial)) != self.to_python(data))


class PositionForm(StyledForm):
    issue = forms.CharField(max_length=200)
    severity = forms.ChoiceField(choices=[(word, word) for word in ("info", "warn", "critical")], initial="warn")
    standard = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 2}), help_text="The preferred wording."
    )
    fallbacks = LinesField(help_text="Acceptable wordings, best first, one per line.")
    must_contain = LinesField(help_text="Phrases that the document must contain, one per line.")
    must_not_contain = LinesField(help_text="Phrases that the document must not contain, one per line.")
    guidance = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))


PositionForms = formset_factory(
    PositionForm, can_order=True, can_delete=True, extra=0, max_num=MAX_POSITIONS, validate_max=True
)


class ImportForm(StyledForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))
    text = forms.CharField(
        label="YAML",
        max_length=YAML_CHARS,
        widget=CodeEditor("yaml", rows=18),
        help_text="A playbook with this name gets a new version; otherwise a new playbook is created.",
    )


@admin.register(Playbook)
class PlaybookAdmin(NamedAdmin):
    count = column("number", title="positions")
    list_display = ["name", "owner", "version", "count", "updated_at"]
    list_filter = [DeletedFilter]
    empty_text = "No playbooks yet. Add one with the positions to check documents against, or import YAML."
    form = PlaybookForm
    add_form_template = "admin/playbook.html"
    change_form_template = "admin/playbook.html"
    actions_list = ["import_yaml"]
    row_views = ("export",)
    row_actions = (
        delete_action(
            each_row(playbook_delete, "playbook", "deleted"),
            "No new run can use it. Past runs keep its version and digest in their audit log.",
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Playbook]:
        rows: QuerySet[Playbook] = super().get_queryset(request)
        return rows.annotate(number=Count("positions"))

    def build_form(self, request: HttpRequest, row: Playbook | None) -> Any:
        """The name, and the positions as a formset; both have to be valid."""
        form = super().build_form(request, row)
        form.positions = form.row_forms = self._positions(request, row)
        if request.method == "POST" and not form.positions.is_valid():
            form.add_error(None, "Correct the positions below.")
        return form

    def _positions(self, request: HttpRequest, row: Playbook | None) -> Any:
        if request.method == "POST":
            return PositionForms(request.POST, prefix="positions")
        known = [vars(position) for position in positions_of(row)] if row else []
        forms_ = PositionForms(initial=known, prefix="positions")
        forms_.extra = 0 if row else 1
        return forms_

    def values_beside(self, row: Playbook) -> dict[str, Any]:
        return {"Positions": [sorted(vars(position).items()) for position in positions_of(row)]}

    def create(self, request: HttpRequest, form: Any) -> Playbook:
        given = {**form.cleaned_data, "positions": given_positions(form.positions)}
        return playbook_create(by=current_user(request), now=clock(), **given)

    def update(self, request: HttpRequest, row: Playbook, form: Any) -> Playbook:
        given = {"name": form.cleaned_data["name"], "positions": given_positions(form.positions)}
        return playbook_edit(row, by=current_user(request), now=clock(), **given)

    def extra_context(self, request: HttpRequest, row: Playbook) -> dict[str, Any]:
        return {"rendered": playbook_rendered(row), "alarms": false_alarms(row, now=clock()), "alarm_days": ALARM_DAYS}

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        playbook = self.get_row(request, pk)
        record_view(request, current_user(request), playbook)
        return yaml_download(playbook.name, playbook_export(playbook))

    def get_urls(self) -> list[URLPattern]:
        return [self.url("check/", "check"), *super().get_urls()]

    def check_view(self, request: HttpRequest) -> JsonResponse:
        """Say what is wrong with a text that is to be imported, while somebody writes it. Saves nothing."""
        if request.method != "POST" or not self.has_add_permission(request):
            raise PermissionDenied
        try:
            read_playbook(request.POST.get("text", "")[:YAML_CHARS])
        except Invalid as error:
            return JsonResponse({"problems": line_problems(error)})
        return JsonResponse({"problems": []})

    @unfold_action(description="Import YAML", url_path="import", permissions=["add"])
    def import_yaml(self, request: HttpRequest) -> HttpResponse:
        form = ImportForm(request.POST or None, initial={"owner": current_user(request).pk})
        form.fields["text"].widget.attrs["data-checks"] = reverse("admin:agents_playbook_check")
        if request.method == "POST" and form.is_valid():
            try:
                playbook = playbook_import(by=current_user(request), now=clock(), **form.cleaned_data)
            except REFUSALS as error:
                form.add_error("text", error_text(error))
            else:
                messages.success(request, f"Playbook {playbook} imported.")
                return HttpResponseRedirect(self.row_link(playbook.pk))
        return confirm_page(request, "Import playbook", form, back=self.list_link())


def given_positions(forms_: Any) -> list[Position]:
    """The positions that were filled in and not removed, in the given order."""
    kept = [form.cleaned_data for form in forms_.ordered_forms if form.cleaned_data.get("issue")]
    return [Position(**{name: given[name] for name in PositionForm.base_fields}) for given in kept]


# --- Skills: loaded from folders, run only as accepted ---


class AcceptForm(ActionForm):
    """Carries the digest of the files as they were shown."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)


def _accept(action: ActionRequest) -> ActionResult:
    [skill] = action.rows
    if skill.found_digest != action.data["digest"]:
        raise SkillChanged(f"The files of {skill.name} changed again after this page was opened. Read them again.")
    accepted = skill_accept(skill, by=action.by, now=action.now)
    return ActionResult(f"{accepted.name} accepted as version {accepted.version}, digest {accepted.digest[:12]}.")


def state_of(skill: PromptSkill) -> tuple[str, str]:
    if not skill.enabled:
        return "off", "disabled"
    if not skill.found_digest:
        return "missing", "files missing"
    return ("changed", "changed, not accepted") if skill.has_changed else ("fine", "accepted")


@admin.register(PromptSkill)
class PromptSkillAdmin(DetailAdmin):
    description_ = column("description", partial(cut, limit=100))
    state = column(state_of, title="state", label=STATE_LABELS)
    accepted = column("digest", lambda digest: digest[:12], title="accepted digest")
    list_display = ["name", "description_", "state", "version", "accepted", "loaded_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "description"]
    ordering = ("name",)
    empty_text = "No skills yet. Put folders with a SKILL.md where LQOPS_SKILL_FOLDERS points, then load them."
    exclude = ("id", "front_matter")
    actions_list = ["load"]
    row_actions = (
        RowAction(
            "accept",
            "Accept changed files",
            _accept,
            AcceptForm,
            initial=lambda row: {"digest": row.found_digest},
            bulk=False,
            danger=True,
            available=lambda row: row.has_changed and row.found_digest,
            template="admin/skill_accept.html",
            description="New runs use the files as they are now. Read them first: they become instructions.",
        ),
        RowAction(
            "enable",
            "Enable",
            each_row(skill_switch, "skill", "enabled", enabled=True),
            available=lambda row: not row.enabled,
        ),
        RowAction(
            "disable",
            "Disable",
            each_row(skill_switch, "skill", "disabled", enabled=False),
            available=lambda row: row.enabled,
            description="New runs cannot use it.",
        ),
    )

    @unfold_action(description="Load skill folders", url_path="load", permissions=["load"])
    def load(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            form = ActionForm(by=current_user(request), rows=())
            description = "New skills are added. Changed ones are marked and do not run until accepted."
            return confirm_page(request, "Load skill folders", form, back=self.list_link(), description=description)
        report = skills_load(by=current_user(request), now=clock())
        states = [one.state for one in report.skills]
        counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "none found"
        messages.success(request, f"Skills: {counted}.")
        for problem in report.problems:
            messages.warning(request, problem)
        return HttpResponseRedirect(self.list_link())

    def has_load_permission(self, request: HttpRequest) -> bool:
        return self.has_model_permission(request, "change")
