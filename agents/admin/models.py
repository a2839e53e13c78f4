"""Models: the page of all of them, with states, prices, roles and tests, and the form by which they are changed."""

import json
import math
import re
from typing import Any, Final
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.forms import formset_factory
from django.forms.formsets import DELETION_FIELD_NAME
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache

from agents.admin.actions import ActionRequest, RowAction
from agents.admin.base import FormAdmin, current_user, require_permission, site_page
from agents.admin.display import column, counted, words
from agents.admin.forms import ARGUMENT_CHARS, REFUSALS, StyledForm, StyledModelForm, error_text, read_json
from agents.checks.model_test import CAP_USD, TEST_SECONDS, model_test
from agents.conf import clock
from agents.definitions.catalogue import declaration_of, file_models, rows_left_out
from agents.exceptions import Invalid
from agents.ledger.declared_models import model_declare, model_restore
from agents.models import DeclaredModel, ModelPrice
from agents.people.access import START_PERMISSION, actor_of
from agents.policy.model_catalogue import (
    ANSWERED,
    KEY_PREFIX,
    LEAST_THINKING,
    PRICES,
    ROLES,
    ROLES_KEY,
    SETTABLE,
    UNOPENED,
    answer_table,
)
from agents.sessions.model_facts import model_try_now, models_known
from agents.types import FORM_PARTS

# Names of rows on the pages.
DeclaredModel._meta.verbose_name = "model"
DeclaredModel._meta.verbose_name_plural = "models set here"

VIEW: Final = "agents.view_modelprice"
TRY: Final = "agents.change_agentsession"
NO_ONE: Final = "none"  # an empty list, where an empty field means what the file says


@never_cache
def models_page(request: HttpRequest) -> TemplateResponse:
    """Show the models. A POST tests one, or has one that is away tried at once."""
    by = require_permission(request, VIEW)
    tested = _act(request, by) if request.method == "POST" else None
    return site_page(
        request,
        "admin/models.html",
        "Models",
        models=models_known(clock()),
        left_out={name: why for name, why in rows_left_out().items() if not declaration_of(name)},
        tested=tested,
        test_seconds=TEST_SECONDS,
        test_cap=CAP_USD,
        may_test=by.has_perm(START_PERMISSION),
        may_try=by.has_perm(TRY),
        may_accept=by.has_perm("agents.change_suspendedmodel"),
        may_price=by.has_perm("agents.add_modelprice") and by.has_perm("agents.change_modelprice"),
        may_edit=by.has_perm("agents.add_declaredmodel") and by.has_perm("agents.change_declaredmodel"),
    )


def _act(request: HttpRequest, by: User) -> dict[str, Any] | None:
    """Return what a test found; nothing if it was refused, or after another act."""
    model = request.POST.get("model", "")
    is_test = request.POST.get("act") == "test"
    require_permission(request, START_PERMISSION if is_test else TRY)
    try:
        if is_test:
            return model_test(model=model, by=current_user(request), now=clock())
        waiting = model_try_now(model=model, by=by, now=clock())
    except REFUSALS as error:
        messages.error(request, error_text(error))
        return None
    if waiting:
        messages.success(request, f"The model is tried at once. {counted(waiting, 'run')} waiting for it.")
    else:
        messages.success(request, "The next call tries the model. No run waits for it: press Test to ask it now.")
    return None


# --- Changing a model ---


# Types of the value of a request field.
FIELD_KINDS: Final = {
    "text": "Text",
    "number": "Number",
    "flag": "Yes or no",
    "json": "JSON",
    "none": "Not sent",
}
FLAGS: Final = {"yes": True, "no": False, "true": True, "false": False}
MOST_FIELDS: Final = 50
WRONG_FIELDS: Final = "Correct the request fields below."


class NamesField(forms.CharField):
    """Names separated by commas; `none` for none of them."""

    def to_python(self, value: Any) -> Any:
        text = (super().to_python(value) or "").strip()
        if text == NO_ONE:
            return []
        return [name.strip() for name in text.split(",") if name.strip()] or None

    def prepare_value(self, value: Any) -> Any:
        return (", ".join(value) or NO_ONE) if isinstance(value, list) else value


# What a model does before it answers: the choices of the form, and what each stands for.
THINKING: Final[dict[str, Any]] = {"no": False, "yes": True, UNOPENED: UNOPENED}
BUDGET: Final = "tokens"
THINKING_LABELS: Final = {
    "no": "No",
    "yes": "Yes",
    UNOPENED: "Yes, and replies begin inside the thinking",
    BUDGET: "Yes, with a budget of tokens",
}
PURPOSES: Final = {f"max_tokens_{purpose}": purpose for purpose in ANSWERED}
PURPOSES_TEXT: Final = (
    "Tokens. An empty field: as the models file says. Without that, Chat and Run (analyses, steps and turns) get the "
    "maximum answer above, and the others what their question asks for, 5 to 1,024; a model that thinks gets at least "
    "the maximum answer."
)
PurposesForm: Any = type(
    "PurposesForm",
    (forms.Form,),
    {
        name: forms.IntegerField(label=words(purpose).capitalize(), required=False, min_value=1)
        for name, purpose in PURPOSES.items()
    },
)


class RequestFieldForm(StyledForm):
    """One further field of every request to the model, with the type of its value."""

    name = forms.CharField(max_length=200, help_text="Such as temperature.")
    kind = forms.ChoiceField(label="Type", choices=list(FIELD_KINDS.items()), initial="number")
    value = forms.CharField(
        required=False, strip=False, max_length=ARGUMENT_CHARS, widget=forms.Textarea(attrs={"rows": 1})
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if "kind" in given and "value" in given:
            try:
                given["sent"] = _sent_value(given["kind"], given["value"].replace("\r\n", "\n"))
            except forms.ValidationError as error:
                self.add_error("value", error)
        return given


def _sent_value(kind: str, text: str) -> Any:
    """Return the value that a text stands for; None for a field that is not sent."""
    word = text.strip()
    match kind:
        case "text":
            return text
        case "number":
            return _number(word)
        case "flag":
            if word.lower() not in FLAGS:
                raise forms.ValidationError("Write yes or no.")
            return FLAGS[word.lower()]
        case "json":
            if (value := read_json(word)) is None:
                raise forms.ValidationError(f"Choose the type “{FIELD_KINDS['none']}” instead of null.")
            return value
    if word:
        raise forms.ValidationError("Leave this empty: the field is not sent.")
    return None


def _number(word: str) -> int | float:
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, int | float) and not isinstance(value, bool) and (type(value) is int or math.isfinite(value)):
        return value
    raise forms.ValidationError(f"{word[:40]!r} is not a number. Write it as 200 or 0.7.")


def _as_row(name: str, value: Any) -> dict[str, Any]:
    """Return the row that stands for a field of requests."""
    if value is None:
        return {"name": name, "kind": "none"}
    if isinstance(value, bool):
        return {"name": name, "kind": "flag", "value": next(word for word, one in FLAGS.items() if one is value)}
    # A box for texts would change the ends of lines and control characters.
    is_plain = isinstance(value, str) and (value.replace("\n", "").isprintable() or not value)
    kind = "text" if is_plain else "number" if isinstance(value, int | float) else "json"
    return {"name": name, "kind": kind, "value": value if kind == "text" else json.dumps(value, ensure_ascii=False)}


class RequestFieldsBase(forms.BaseFormSet):  # type: ignore[type-arg]
    """The further fields of requests; no name twice."""

    def clean(self) -> None:
        known: set[str] = set()
        for row in self.kept:
            name = row.cleaned_data.get("name", "")
            if name and name in known:
                row.add_error("name", f"{name} is in a row above already.")
                raise forms.ValidationError(f"The request field {name} is there twice.")
            known.add(name)

    def _should_delete_form(self, form: Any) -> bool:
        """A row that was emptied is removed, too."""
        is_empty = not any(str(form[name].value() or "").strip() for name in ("name", "value"))
        return is_empty or bool(form.cleaned_data.get(DELETION_FIELD_NAME))

    @property
    def kept(self) -> list[Any]:
        """The rows that were filled in and not removed."""
        return [row for row in self.forms if row.has_changed() and not self._should_delete_form(row)]

    def values(self) -> dict[str, Any]:
        return {row.cleaned_data["name"]: row.cleaned_data["sent"] for row in self.kept}

    def put_refusal(self, text: str) -> bool:
        """Put a refusal beside the row whose field it names, if it names one."""
        for row in self.kept:
            name = row.cleaned_data["name"]
            if re.search(rf"\bextra\.{re.escape(name)}(?![\w.-]*[\w-])", text):
                row.add_error("name", text)
                return True
        return False


RequestFieldForms: Any = formset_factory(
    RequestFieldForm,
    formset=RequestFieldsBase,
    can_delete=True,
    extra=0,
    max_num=MOST_FIELDS,
    absolute_max=2 * MOST_FIELDS,
    validate_max=True,
)


class DeclaredModelForm(StyledModelForm, PurposesForm):  # type: ignore[misc]  # its second base is made of a table
    """Settings of one model. An empty field keeps what the file says."""

    request_fields: Any  # rows, as the page adds them

    provider = forms.ChoiceField(
        required=False, choices=[("", "—"), *((name, name) for name in FORM_PARTS)], help_text="Protocol of the server."
    )
    url = forms.CharField(
        label="Address", required=False, max_length=2_000, help_text="Such as https://models.example/v1."
    )
    name = forms.CharField(
        label="Name at the server", required=False, max_length=200, help_text="Default: the name of the model."
    )
    key_env = forms.CharField(
        label="Variable of the key",
        required=False,
        max_length=100,
        help_text=f"The name of the variable, {KEY_PREFIX}…, never the key.",
    )
    key_header = forms.CharField(
        label="Header of the key", required=False, max_length=64, help_text="Default: the protocol's own."
    )
    context_window = forms.IntegerField(
        required=False, help_text="Tokens that a question and its answer may have together."
    )
    max_tokens = forms.IntegerField(
        label="Maximum answer", required=False, help_text="Tokens of an answer in analyses, steps, turns and chats."
    )
    reasoning = forms.ChoiceField(
        label="Thinks before it answers",
        required=False,
        choices=[("", "—"), *THINKING_LABELS.items()],
        help_text="A budget is for Anthropic's protocol; replies that begin inside the thinking are for the others.",
    )
    reasoning_tokens = forms.IntegerField(
        label="Budget for thinking", required=False, min_value=LEAST_THINKING, help_text="Tokens."
    )
    fallback = NamesField(
        label="Fallbacks", required=False, help_text=f"Models to ask instead, with commas; {NO_ONE}: no fallback."
    )
    roles = NamesField(required=False, help_text=f"Of {', '.join(ROLES)}, with commas; {NO_ONE}: no role.")

    class Meta:
        model = DeclaredModel
        fields = ["model"]
        error_messages = {"model": {"unique": "This model is set here already: edit it on the page Models."}}

    def __init__(self, *args: Any, shows_address: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = self.instance.settings if self.instance.pk else {}
        self.fields["model"].disabled = self.instance.pk is not None
        name = str(self.instance.model or self.initial.get("model", ""))
        file = file_models().declared.get(name, {})
        if file:
            del self.fields["provider"]
        for key in SETTABLE:
            if key not in self.fields:
                continue
            self.initial = {**_initial_of(key, given.get(key)), **self.initial}
            says = _file_text(name, key) if file else ""
            source = f" The file says: {says}." if says else ""
            self.fields[key].help_text += f"{' Set here.' if key in given else ''}{source}"
        for field, purpose in PURPOSES.items():
            if most := answer_table(file.get("max_tokens")).get(purpose):
                self.fields[field].help_text = f"The file says: {most}."
        if not shows_address and self.initial["url"]:
            self.initial["url"] = _host(self.initial["url"])

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if "reasoning" in self.errors or "reasoning_tokens" in self.errors:
            return given
        if given.get("reasoning") == BUDGET and not given.get("reasoning_tokens"):
            self.add_error("reasoning_tokens", "Give the number of tokens.")
        if given.get("reasoning") != BUDGET and given.get("reasoning_tokens"):
            why = f"Leave this empty, or choose “{THINKING_LABELS[BUDGET]}” above."
            self.add_error("reasoning_tokens", why)
        return given

    def values(self) -> dict[str, Any]:
        found = self.cleaned_data
        given = {key: found.get(key) for key in SETTABLE}
        given["extra"] = self.request_fields.values() or None
        purposes = {purpose: found[name] for name, purpose in PURPOSES.items() if found.get(name)}
        if purposes:
            default = {"default": given["max_tokens"]} if given["max_tokens"] is not None else {}
            given["max_tokens"] = {**default, **purposes}
        if given["reasoning"]:
            given["reasoning"] = THINKING.get(given["reasoning"], found.get("reasoning_tokens"))
        return {key: value for key, value in given.items() if value is not None and value != ""}


def _initial_of(key: str, value: Any) -> dict[str, Any]:
    """Return the values with which the fields of one key begin."""
    if key == "max_tokens" and isinstance(value, dict):
        known = {f"max_tokens_{purpose}": most for purpose, most in value.items() if purpose != "default"}
        return {**known, key: value.get("default")}
    if key == "reasoning" and value is not None:
        choice = next((name for name, one in THINKING.items() if one == value and type(one) is type(value)), BUDGET)
        return {key: choice, "reasoning_tokens": value if choice == BUDGET else None}
    return {key: value}


def _file_text(model: str, key: str) -> str:
    """Return the file's value of a key as text; of the address only the host."""
    models = file_models()
    value = models.declared[model].get(key)
    if key == "max_tokens":
        value = answer_table(value).get("default")
    if key == ROLES_KEY:
        return ", ".join(role for role, names in models.roles.items() if model in names) or NO_ONE
    if key == "url" and value:
        return _host(value)
    return ", ".join(value) if isinstance(value, list) else "" if value is None else json.dumps(value).strip('"')


def _extra_of(row: DeclaredModel | None) -> dict[str, Any]:
    """Return the further fields of requests that are set here."""
    return dict(row.settings.get("extra", {})) if row else {}


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _restore(action: ActionRequest) -> HttpResponse:
    for row in action.rows:
        model_restore(model=row.model, actor=actor_of(action.by), now=action.now)
    messages.success(action.request, "Removed what was set here. It applies from the next call.")
    return HttpResponseRedirect(reverse("admin:models"))


@admin.register(DeclaredModel)
class DeclaredModelAdmin(FormAdmin):
    """Models that were changed or added in the admin. The page Models lists all models."""

    keys = column(lambda row: ", ".join(row.settings), title="set here")
    list_display = ["model", "keys", "changed_at"]
    ordering = ["model"]
    empty_text = "Nothing is set here: every model is as the models file declares it."
    form = DeclaredModelForm
    add_form_template = change_form_template = "admin/declared_model.html"
    fieldsets = [
        (
            "Model",
            {"description": "An empty field: as the models file says.", "fields": ["model", "roles", "fallback"]},
        ),
        ("Server", {"fields": ["provider", "url", "name", "key_env", "key_header"]}),
        ("Requests", {"fields": ["context_window", "max_tokens", "reasoning", "reasoning_tokens"]}),
        (
            "Maximum answer by purpose",
            {"description": PURPOSES_TEXT, "fields": list(PURPOSES)},
        ),
    ]
    row_actions = (
        RowAction(
            "delete",
            "Remove what is set here",
            _restore,
            description="The models file applies again. A model that it does not declare is removed.",
            danger=True,
            bulk=False,
        ),
    )

    def list_link(self) -> str:
        return reverse("admin:models")

    def form_options(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"shows_address": self.has_change_permission(request, row)}

    def build_form(self, request: HttpRequest, row: DeclaredModel | None) -> Any:
        """The settings of the model, and the further fields of its requests as rows; both have to be valid."""
        form = super().build_form(request, row)
        if request.method == "POST":
            form.request_fields = RequestFieldForms(request.POST, prefix="fields")
        else:
            set_here = [_as_row(name, value) for name, value in sorted(_extra_of(row).items())]
            form.request_fields = RequestFieldForms(initial=set_here, prefix="fields")
        form.row_forms = form.request_fields
        if request.method == "POST" and not form.request_fields.is_valid():
            form.add_error(None, WRONG_FIELDS)
        name = str(row.model if row else request.GET.get("model", ""))
        form.fields_of_file = sorted(file_models().declared.get(name, {}).get("extra", {}))
        return form

    def values_beside(self, row: DeclaredModel) -> dict[str, Any]:
        return {"Further request fields": sorted(_extra_of(row).items())}

    def create(self, request: HttpRequest, form: Any) -> HttpResponse | None:
        model, values = form.cleaned_data["model"], form.values()
        if not values:
            raise Invalid("Nothing is set: fill in what is to differ from the models file.")
        try:
            model_declare(model=model, values=values, actor=actor_of(current_user(request)), now=clock())
        except REFUSALS as error:
            if not form.request_fields.put_refusal(error_text(error)):
                raise
            form.add_error(None, WRONG_FIELDS)
            return None
        messages.success(request, f"Model {model} saved. It applies from the next call.")
        if not declaration_of(model).keys() >= set(PRICES) and not ModelPrice.objects.filter(model=model).exists():
            link = f"{reverse('admin:agents_modelprice_add')}?model={model}"
            messages.warning(
                request,
                format_html(
                    'It has no price yet, so its calls are refused. <a class="lq-link" href="{}">Set its price</a>.',
                    link,
                ),
            )
        return HttpResponseRedirect(reverse("admin:models"))

    def update(self, request: HttpRequest, row: DeclaredModel, form: Any) -> HttpResponse | None:
        return self.create(request, form)
