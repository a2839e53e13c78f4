"""An agent's definition: edited, imported and exported as YAML, and the settings in force."""

from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import URLPattern, reverse
from unfold.decorators import action

from agents.admin.base import FormAdmin, current_user, record_view
from agents.admin.display import usd
from agents.admin.forms import REFUSALS, CodeEditor, StyledForm, add_refusal
from agents.conf import clock
from agents.definitions.in_force import DEFAULT, ResolvedSetting, definition_drift, definition_of, resolved_settings
from agents.definitions.schema import DefinitionError
from agents.exceptions import Superseded
from agents.models import Agent
from agents.roster.files import DefinitionResult, agent_export, agent_import, definition_check, definition_write
from agents.skills.registry import unresolved_names
from agents.text.shown import visible
from agents.text.strict_yaml import MAX_BYTES
from agents.webhooks import yaml_download

ROWS: Final = 24
UNSET: Final = {
    "skills": "those that only read and write here",
    "autonomy": "off",
    "heartbeat": "off",
    "max_cost_per_day_usd": "none",
    "max_cost_per_month_usd": "none",
}


class DefinitionForm(StyledForm):
    """The text itself, or a file that replaces it."""

    text = forms.CharField(
        label="YAML",
        required=False,
        strip=False,
        max_length=2 * MAX_BYTES,
        widget=CodeEditor("yaml", rows=ROWS),
    )
    file = forms.FileField(label="From a file", required=False, help_text="Replaces the text above.")
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)  # the version that the text was made from

    @classmethod
    def for_agent(cls, agent: Agent, text: str, *given: Any) -> "DefinitionForm":
        form = cls(*given, initial={"text": text, "version": agent.definition_version})
        form.check_at(reverse("admin:agents_agent_check", args=[agent.pk]))
        return form

    def check_at(self, address: str) -> None:
        """Check the text at this address while somebody writes it."""
        self.fields["text"].widget.attrs["data-checks"] = address

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if upload := given.get("file"):
            given["text"] = self._read(upload)
        if not given.get("text", "").strip() and not self.errors:
            raise forms.ValidationError("Enter a definition, or choose a file.")
        return given

    def show_again(self, **changed: Any) -> None:
        """Show the submitted data; the text of a file takes the place of the text."""
        self.data = {
            **{name: self.data.get(name) for name in self.fields},
            "text": self.cleaned_data["text"],
            **changed,
        }

    def _read(self, upload: Any) -> str:
        content: bytes = upload.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise forms.ValidationError({"file": f"The file is larger than {MAX_BYTES} bytes."})
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise forms.ValidationError({"file": f"This is not UTF-8 text: byte {error.start} is invalid."}) from None


class ImportForm(DefinitionForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))
    version = None  # type: ignore[assignment]  # Django's way to leave out a field
    field_order = ["owner", "text", "file"]


class AgentDefinitionAdmin(FormAdmin):
    """The views of an agent's definition; AgentAdmin adds the rest of its pages."""

    actions_list = ["import_yaml"]
    row_views = ("export", "definition", "check")

    def get_urls(self) -> list[URLPattern]:
        return [self.url("check/", "check_import"), *super().get_urls()]

    def check_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Say what is wrong with a definition of this agent, while somebody writes it. Saves nothing."""
        agent = self.get_row(request, pk)
        if request.method != "POST" or not self.has_change_permission(request, agent):
            raise PermissionDenied
        return _check(request, agent.owner, agent)

    def check_import_view(self, request: HttpRequest) -> HttpResponse:
        """The same, for a text that is to be imported."""
        if request.method != "POST" or not self.has_add_permission(request):
            raise PermissionDenied
        given = ImportForm(request.POST)
        given.is_valid()
        return _check(request, given.cleaned_data.get("owner") or current_user(request))

    def definition_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The editor on its own page, with the errors above the text."""
        agent = self.get_row(request, pk)
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        form = DefinitionForm.for_agent(agent, agent_export(agent), request.POST or None, request.FILES or None)
        return self._editor(request, form, agent)

    @action(description="Import YAML", url_path="import", permissions=["add"])
    def import_yaml(self, request: HttpRequest) -> HttpResponse:
        """Import a new agent, or the next version of the agent with that name."""
        form = ImportForm(request.POST or None, request.FILES or None, initial={"owner": current_user(request).pk})
        form.check_at(reverse("admin:agents_agent_check_import"))
        return self._editor(request, form, None)

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        agent = self.get_row(request, pk)
        record_view(request, current_user(request), agent)
        return yaml_download(agent.name, agent_export(agent))

    def definition_context(self, agent: Agent) -> dict[str, Any]:
        """Return the part of the agent's page about its definition."""
        try:
            definition = definition_of(agent)
            return {
                "definition": definition,
                "drift": definition_drift(agent),
                **_settings_context(resolved_settings(agent)),
                "notes": [*definition.notes, *unresolved_names(definition)],
                "editor": DefinitionForm.for_agent(agent, agent_export(agent)),
            }
        except DefinitionError as error:
            problems = _problems(error, agent.definition)
            return {"problems": problems, "editor": DefinitionForm.for_agent(agent, agent.definition)}

    def _editor(self, request: HttpRequest, form: DefinitionForm, agent: Agent | None) -> HttpResponse:
        """Save the definition, or show the editor with its errors."""
        problems: list[dict[str, Any]] = []
        if request.method == "POST" and form.is_valid():
            try:
                return self._saved_definition(request, self._write(request, form, agent))
            except DefinitionError as error:
                problems = _problems(error, form.cleaned_data["text"])
                form.show_again()
            except Superseded as error:
                form.add_error(None, str(error))
                form.show_again(version=Agent.objects.get(pk=agent.pk).definition_version if agent else None)
            except REFUSALS as error:
                add_refusal(form, error)
        return self.render_page(
            request,
            "admin/agent/edit_definition.html",
            f"Definition of {agent}" if agent else "Import agent",
            form=form,
            original=agent,
            problems=problems,
            back=self.row_link(agent.pk) if agent else self.list_link(),
        )

    def _write(self, request: HttpRequest, form: DefinitionForm, agent: Agent | None) -> DefinitionResult:
        upload = form.cleaned_data["file"]
        given = {
            "text": form.cleaned_data["text"],
            "file": upload.name if upload else "agent.yaml",  # the name of the text in error messages
            "by": current_user(request),
            "now": clock(),
        }
        if agent is None:
            return agent_import(owner=form.cleaned_data["owner"], **given)
        return definition_write(agent=agent, version=form.cleaned_data["version"], **given)

    def _saved_definition(self, request: HttpRequest, defined: DefinitionResult) -> HttpResponse:
        agent = defined.agent
        outcome = f"saved as version {agent.definition_version}" if defined.changed else "not changed"
        messages.success(request, f"Definition of {agent} {outcome}.")
        for note in defined.messages:
            messages.info(request, note)
        for sensor in defined.definition.broken_sensors:
            messages.warning(request, f"Sensor {sensor.name} is skipped: {sensor.problem}")
        return HttpResponseRedirect(self.row_link(agent.pk))


def _settings_context(settings: list[ResolvedSetting]) -> dict[str, list[tuple[str, str, str]]]:
    """The settings that somebody has set, and those at their defaults."""
    rows = [(one.key, _setting_text(one.key, one.value), one.said_by) for one in settings]
    return {
        "effective": [row for row in rows if row[2] != DEFAULT],
        "by_default": [row for row in rows if row[2] == DEFAULT],
    }


def _setting_text(key: str, value: Any) -> str:
    if value is None:
        return UNSET.get(key, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_usd"):
        return usd(Decimal(value))
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _check(request: HttpRequest, owner: User, agent: Agent | None = None) -> JsonResponse:
    found = definition_check(owner=owner, text=request.POST.get("text", "")[: 2 * MAX_BYTES], agent=agent)
    return JsonResponse(
        {"problems": [{"line": one.line, "text": visible(one.text), "is_warning": skips} for one, skips in found]}
    )


def _problems(error: DefinitionError, text: str) -> list[dict[str, Any]]:
    """Each problem with the line that it is about."""
    lines = ["", *text.splitlines()]
    return [
        {"line": problem.line, "text": problem.text, "source": lines[problem.line] if problem.line < len(lines) else ""}
        for problem in error.problems
    ]
