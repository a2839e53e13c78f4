"""An agent's definition on its page: edited as YAML, brought in from a file, taken out as one, and what comes of it."""

from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path

from agents.admin.actions import REFUSALS, DressedForm
from agents.admin.base import list_button, look, person
from agents.admin.display import usd
from agents.admin.pages import EditingAdmin, blame
from agents.conf import clock
from agents.definitions.in_force import DEFAULT, Setting, definition_drift, definition_of, effective_settings
from agents.definitions.schema import DefinitionError
from agents.exceptions import Superseded
from agents.http import yaml_file
from agents.models import Agent
from agents.roster.files import Defined, agent_export, agent_import, definition_write
from agents.skills.registry import unresolved
from agents.text.strict_yaml import MAX_BYTES

ROWS: Final = 24
NONE: Final = {
    "skills": "all that are installed",
    "autonomy": "off",
    "heartbeat": "off",
    "max_cost_per_day_usd": "no cap of its own",
}
PAGE: Final = "admin/agent/edit_definition.html"


class DefinitionForm(DressedForm):
    """The text itself, or a file that holds it; the file wins."""

    text = forms.CharField(
        label="YAML",
        required=False,
        strip=False,
        max_length=2 * MAX_BYTES,
        widget=forms.Textarea(
            attrs={"rows": ROWS, "spellcheck": "false", "wrap": "off", "style": "font-family: monospace"}
        ),
    )
    file = forms.FileField(label="From a file", required=False, help_text="It takes the place of the text above.")
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)  # the one that the text was made from

    @classmethod
    def of(cls, agent: Agent, text: str, *given: Any) -> "DefinitionForm":
        return cls(*given, initial={"text": text, "version": agent.definition_version})

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if upload := given.get("file"):
            given["text"] = self._read(upload)
        if not given.get("text", "").strip() and not self.errors:
            raise forms.ValidationError("Write a definition, or choose a file.")
        return given

    def _read(self, upload: Any) -> str:
        content: bytes = upload.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise forms.ValidationError({"file": f"The file is longer than {MAX_BYTES} bytes."})
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise forms.ValidationError(
                {"file": f"This is not UTF-8 text: byte {error.start} makes no character."}
            ) from None


class ImportForm(DefinitionForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))
    version = None  # type: ignore[assignment]  # Django's way to leave out a field: the agent may be a new one
    field_order = ["owner", "text", "file"]


class DefinitionPages(EditingAdmin):
    """What the page of agents has beside its settings."""

    actions_list = ["import_yaml"]

    def get_urls(self) -> list[URLPattern]:
        pages = {"export": self.export_view, "definition": self.definition_view}
        return [
            *(
                path(f"<int:pk>/{name}/", self.admin_site.admin_view(view), name=f"agents_agent_{name}")
                for name, view in pages.items()
            ),
            *super().get_urls(),
        ]

    def definition_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The editor by itself: what is wrong stands above the text."""
        agent = self.found(request, str(pk))
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        form = DefinitionForm.of(agent, agent_export(agent), request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid():
            said = form.cleaned_data
            given = {"agent": agent, "text": said["text"], "version": said["version"], "file": _file(form)}
            defined, problems = self._tried(form, definition_write, by=person(request), now=clock(), **given)
            if defined is not None:
                return self._told(request, defined)
            return self._editor(request, form, agent, problems)
        return self._editor(request, form, agent, [])

    @list_button("Import YAML", address="import", permission="add")
    def import_yaml(self, request: HttpRequest) -> HttpResponse:
        """An agent from a text: a new one, or the next version of the one of that name."""
        form = ImportForm(request.POST or None, request.FILES or None, initial={"owner": person(request).pk})
        problems: list[dict[str, Any]] = []
        if request.method == "POST" and form.is_valid():
            given = {"owner": form.cleaned_data["owner"], "text": form.cleaned_data["text"], "file": _file(form)}
            defined, problems = self._tried(form, agent_import, by=person(request), now=clock(), **given)
            if defined is not None:
                return self._told(request, defined)
        return self._editor(request, form, None, problems)

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        agent = self.found(request, str(pk))
        look(request, person(request), agent)
        return yaml_file(agent.name, agent_export(agent))

    def about_definition(self, agent: Agent) -> dict[str, Any]:
        """What the agent's page shows of its definition."""
        try:
            definition = definition_of(agent)
            return {
                "definition": definition,
                "drift": definition_drift(agent),
                **_told_apart(effective_settings(agent)),
                "notes": [*definition.notes, *unresolved(definition)],
                "editor": DefinitionForm.of(agent, agent_export(agent)),
            }
        except DefinitionError as error:
            shown = _shown(error, agent.definition)
            return {"problems": shown, "editor": DefinitionForm.of(agent, agent.definition)}

    def _tried(self, form: DefinitionForm, do: Any, **given: Any) -> tuple[Defined | None, list[dict[str, Any]]]:
        try:
            return do(**given), []
        except DefinitionError as error:
            form.data = self._sent(form, given)
            return None, _shown(error, given["text"])
        except Superseded as error:
            form.add_error(None, str(error))
            form.data = self._sent(form, given, version=Agent.objects.get(pk=given["agent"].pk).definition_version)
            return None, []
        except REFUSALS as error:
            blame(form, error)
            return None, []

    def _sent(self, form: DefinitionForm, given: dict[str, Any], **changed: Any) -> dict[str, Any]:
        """What was sent, to be shown again; what a file said stands in the place of the text."""
        return {**{name: form.data.get(name) for name in form.fields}, "text": given["text"], **changed}

    def _told(self, request: HttpRequest, defined: Defined) -> HttpResponse:
        agent = defined.agent
        changed = f"is at version {agent.definition_version}" if defined.changed else "stays as it is: nothing changed"
        messages.success(request, f"The definition of {agent} {changed}.")
        for told in defined.told:
            messages.info(request, told)
        for sensor in defined.definition.broken_sensors:
            messages.warning(request, f"Sensor {sensor.name} is skipped: {sensor.problem}")
        return HttpResponseRedirect(self.row_link(agent.pk))

    def _editor(
        self, request: HttpRequest, form: DefinitionForm, agent: Agent | None, problems: list[dict[str, Any]]
    ) -> HttpResponse:
        title = f"Definition of {agent}" if agent else "Import an agent"
        back = self.row_link(agent.pk) if agent else self.list_link()
        return self.page(request, PAGE, title, form=form, original=agent, problems=problems, back=back)


def _told_apart(settings: list[Setting]) -> dict[str, list[tuple[str, str, str]]]:
    """What somebody has said, and the rest."""
    rows = [(one.key, _words(one.key, one.value), one.said_by) for one in settings]
    return {
        "effective": [row for row in rows if row[2] != DEFAULT],
        "by_default": [row for row in rows if row[2] == DEFAULT],
    }


def _words(key: str, value: Any) -> str:
    if value is None:
        return NONE.get(key, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_usd"):
        return usd(Decimal(value))
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _file(form: DefinitionForm) -> str:
    """What problems call the text: the name of the file that it came in."""
    upload = form.cleaned_data.get("file")
    return str(upload.name) if upload else "agent.yaml"


def _shown(error: DefinitionError, text: str) -> list[dict[str, Any]]:
    """Each problem beside the line that it speaks of."""
    lines = ["", *text.splitlines()]
    return [
        {"line": problem.line, "said": problem.said, "source": lines[problem.line] if problem.line < len(lines) else ""}
        for problem in error.problems
    ]
