"""Forms of the admin pages: unfold's styling, shared fields, choices limited to one owner, errors beside their field.

A form is never saved. Its cleaned values go to one function of the subject, which checks them again.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.forms import ModelChoiceField, ModelMultipleChoiceField
from django.forms.models import ModelChoiceIterator
from django.utils.choices import flatten_choices
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django_ace import AceWidget
from unfold import widgets

from agents.exceptions import LqopsError
from agents.models import PromptSkill
from agents.models.fields import FORM_PLACES, USDFormField
from agents.policy.costs import MOST_USD
from agents.text.shown import visible
from audit.rows import unique_names

ARGUMENT_CHARS: Final = 100_000
SEEN: Final = "_seen"  # the field that notes the values which a form showed
SEEN_CHARS: Final = 16  # of the digest of a value that a page showed
MOST_TOLD_CHARS: Final = 60
LIGHT_THEME: Final = "github_light_default"
DARK_THEME: Final = "tomorrow_night"
MAX_CHOICES: Final = 1_000
# What a subject raises when it refuses a change.
REFUSALS: Final = (LqopsError, ValidationError, ValueError)
_LINE: Final = re.compile(r"\bline ([0-9]{1,9})\b")
_KEY: Final = re.compile(r'"([^"\\\n]{1,100})"\s*:')
_CLASSES: Final = (
    (forms.Textarea, widgets.TEXTAREA_CLASSES),
    (forms.RadioSelect, ()),  # also the base of lists of checkboxes; the style sheet covers both
    (forms.Select, widgets.SELECT_CLASSES),
    (forms.CheckboxInput, widgets.SWITCH_CLASSES),
    (forms.FileInput, widgets.INPUT_CLASSES),
    (forms.widgets.Input, widgets.INPUT_CLASSES),
)


class SuggestedInput(forms.TextInput):
    """A line of text with suggestions, which the browser offers while one types."""

    def __init__(self, suggestions: Sequence[str]) -> None:
        super().__init__()
        self.suggestions = suggestions

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        field = super().render(name, value, {**(attrs or {}), "list": f"{name}-suggestions"}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((text,) for text in self.suggestions))
        return format_html('{}<datalist id="{}-suggestions">{}</datalist>', field, name, options)


class CodeEditor(AceWidget):  # type: ignore[misc]  # django-ace ships no types
    """A text with colours, line numbers and its errors at their lines; without JavaScript a plain box.

    `static/lqops/editor.js` finishes it. A text with a `data-checks` address is checked there while one types.
    """

    def __init__(self, mode: str, *, rows: int) -> None:
        super().__init__(
            mode=mode,
            theme=LIGHT_THEME,
            width=None,
            height=None,
            minlines=min(rows, 8),
            maxlines=2 * rows,
            tabsize=2,
            wordwrap=True,
            showprintmargin=False,
            toolbar=False,
            useworker=False,
            useStrictCSP=True,
            attrs={"rows": rows, "spellcheck": "false", "wrap": "off"},
        )

    @property
    def media(self) -> forms.Media:
        dark = forms.Media(
            js=[f"django_ace/ace/theme-{DARK_THEME}.js", "lqops/editor.js"],
            css={"screen": [f"django_ace/ace/css/theme/{DARK_THEME}.css"]},
        )
        light: forms.Media = super().media
        return light + dark

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        given = dict(attrs or {})
        given["class"] = f"{given.get('class', self.attrs.get('class', ''))} lq-source"
        rendered: SafeString = super().render(name, value, given, renderer)
        return rendered


class NamesField(forms.CharField):
    """A list of names, written with commas between them."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return [name for part in str(value or "").split(",") if (name := part.strip())]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return sorted(initial or []) != sorted(self.to_python(data))


class StyledFields:
    """Mixin for forms: gives every widget unfold's classes for its kind."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        style_fields(self.fields.values())  # type: ignore[attr-defined]


def style_fields(fields: Iterable[forms.Field]) -> None:
    """Give widgets unfold's classes; for fields that are added later than those of the class."""
    for field in fields:
        classes = next((names for kind, names in _CLASSES if isinstance(field.widget, kind)), ())
        field.widget.attrs.setdefault("class", " ".join(classes))
        if isinstance(field.widget, forms.Textarea):
            field.widget.attrs.setdefault("rows", 4)
        if type(field.widget) is forms.Select:
            field.widget.template_name = "unfold/widgets/select.html"


class StyledForm(StyledFields, forms.Form):
    pass


class SeenValues(forms.ModelForm):  # type: ignore[type-arg]
    """Knows the values that its page showed. `was_overtaken`: somebody else saved other values meanwhile."""

    was_overtaken = False

    def seen(self) -> dict[str, str]:
        """A digest of each value as the row has it now: what the page shows."""
        fields = self.fields.items()
        return {name: seen_digest(self._stored_value(name)) for name, field in fields if not field.disabled}

    def _stored_value(self, name: str) -> Any:
        field = self.fields[name]
        value = field.prepare_value(self.get_initial_for_field(field, name))
        return sorted(value or ()) if isinstance(field, ModelMultipleChoiceField) else value

    def changed_since(self, seen: Mapping[str, str]) -> list[str]:
        """The values that somebody else has changed since the page was opened and that saving would change back."""
        now = self.seen()
        changed = [name for name in self.changed_data if seen.get(name, now[name]) != now[name]]
        return [_as_told(self[name], self._stored_value(name)) for name in changed if not self[name].is_hidden]

    def refuse_if_overtaken(self, changed: Sequence[str]) -> None:
        """Refuse to undo these changes of somebody else. Saved again, the form replaces them."""
        if changed:
            self.was_overtaken = True
            self.add_error(
                None,
                f"Changed since you opened this page: {', '.join(changed)}. Nothing was saved. "
                "Check the values, and save again to replace them.",
            )

    def seen_text(self, beside: Mapping[str, str]) -> str:
        """Return the note of the values shown. A page that is shown again keeps its own, unless it told of changes."""
        if SEEN in self.data and not self.was_overtaken:
            return str(self.data[SEEN])
        return json.dumps({**self.seen(), **beside})

    def noted(self) -> dict[str, str]:
        """Return the digests that the page noted of its values; none if somebody tampered with them."""
        try:
            seen = json.loads(self.data.get(SEEN, ""))
        except ValueError:
            return {}
        return {name: str(value) for name, value in seen.items()} if isinstance(seen, dict) else {}


class StyledModelForm(StyledFields, SeenValues):
    """Fields as the model declares them.

    `row_forms`: the forms of rows, such as conditions, that the page shows below the fields.
    """

    row_forms: Iterable[forms.BaseForm] = ()

    def changes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}


class OvertakenCheck(SeenValues):
    """A form that Django's own page saves: it refuses to undo what somebody else saved since it was opened."""

    def clean(self) -> Any:
        given = super().clean()
        self.refuse_if_overtaken(self.changed_since(self.noted()))
        return given


def seen_digest(value: Any) -> str:
    return sha256(str(value).encode()).hexdigest()[:SEEN_CHARS]


def _as_told(shown: forms.BoundField, value: Any) -> str:
    """The name of a field, with its value as the page shows it, if that is short enough to be told."""
    text = visible(_in_words(shown.field, value))
    return f"{shown.label} (now {text})" if len(text) <= MOST_TOLD_CHARS else str(shown.label)


def _in_words(field: forms.Field, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in (None, "", []):
        return "none"
    if isinstance(field, ModelMultipleChoiceField):
        chosen: Any = field.queryset
        rows_now = chosen.model._meta.default_manager.filter(pk__in=value).order_by("pk")
        return ", ".join(field.label_from_instance(row) for row in rows_now)
    if isinstance(field, ModelChoiceField):
        rows: Any = field.queryset
        row = rows.model._meta.default_manager.filter(pk=value).first()
        return field.label_from_instance(row) if row is not None else "none"
    if isinstance(field, forms.ChoiceField):
        choices: Any = field.choices
        return str(dict(flatten_choices(choices)).get(value, value))
    return str(value)


class OwnerForm(StyledModelForm):
    """A new row has an owner to choose; the owner of an existing row never changes."""

    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


# --- Errors ---


def error_text(error: Exception) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


def add_refusal(form: forms.BaseForm, error: Exception) -> None:
    """Put a refusal beside the field that its text names first, or on top of the form."""
    text = error_text(error)
    places = {name: found.start() for name in form.fields if (found := re.search(rf"\b{re.escape(name)}\b", text))}
    place = min(places, key=lambda name: places[name], default=None)
    if place is not None and isinstance(form.fields[place], ArgumentsField):
        text = with_line(text, str(form.data.get(place, "")))
    form.add_error(place, text)


def line_problems(error: Exception) -> list[dict[str, Any]]:
    """The lines of an error's text, each with the number of the line that it names; 0 if none."""
    found = [(line, _LINE.search(line)) for line in error_text(error).splitlines()]
    return [{"line": int(place[1]) if place else 0, "text": line} for line, place in found]


# --- Shared fields ---


def usd_field(**more: Any) -> USDFormField:
    limits = {"min_value": 0, "max_value": MOST_USD, "max_digits": 13, "decimal_places": FORM_PLACES}
    return USDFormField(**{**limits, **more})


class ArgumentsField(forms.CharField):
    """Arguments of a call as JSON: one object, no name twice, no NaN."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"max_length": ARGUMENT_CHARS, "widget": CodeEditor("json", rows=12), **more})

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        given = read_json(text)
        if not isinstance(given, dict):
            raise forms.ValidationError('Write one JSON object, such as {"name": "value"} (line 1).')
        return given

    def run_validators(self, value: Any) -> None:
        """Skip the validators of text: the value is a dict; `clean` checks the length."""

    def clean(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > ARGUMENT_CHARS:
            raise forms.ValidationError(f"The arguments have {len(value)} characters; the maximum is {ARGUMENT_CHARS}.")
        return super().clean(value)


def with_line(message: str, text: str) -> str:
    """Add to a message the line of the JSON text that holds the first key which the message names."""
    for found in _KEY.finditer(text):
        if re.search(rf"(?<![\w-]){re.escape(found[1])}(?![\w-])", message):
            return f"{message} (line {text.count(chr(10), 0, found.start()) + 1})"
    return message


def read_json(text: str) -> Any:
    """Return the value of a JSON text that a person wrote: no name twice, no NaN."""
    try:
        return json.loads(text, object_pairs_hook=unique_names, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise forms.ValidationError(f"This is not valid JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


# --- Choices of one owner ---


class OwnedChoices:
    """Mixin for forms: offers only rows of the owner that are in use. The subject checks the choice again."""

    def __init__(self, *args: Any, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # type: ignore[attr-defined]
            if isinstance(field, ModelChoiceField):
                rows: Any = field.queryset
                field.iterator = _LimitedChoices  # before the rows: assigning those builds the list of choices
                field.queryset = _in_use(rows.model, owner)


def _in_use(model: Any, owner: User) -> Any:
    rows = model._meta.default_manager.all()
    names = {field.name for field in model._meta.fields}
    if model is PromptSkill:
        rows = rows.filter(enabled=True)
    if "owner" in names:
        rows = rows.filter(owner=owner)
    if "deleted_at" in names:
        rows = rows.filter(deleted_at__isnull=True)
    if "text" in names:
        rows = rows.defer("text")
    return rows.order_by("name")


class _LimitedChoices(ModelChoiceIterator):  # type: ignore[type-arg]
    """Lists a limited number of choices; the field accepts any row of its queryset."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.queryset = field.queryset[:MAX_CHOICES]
