"""Forms in the dress of the control room, and the few fields that several pages ask for."""

import json
from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.contrib.auth.models import User
from django.db.models import Model
from unfold import widgets as dress

from agents.models.fields import FORM_PLACES, USDFormField
from agents.policy.costs import MOST_USD

ARGUMENT_CHARS: Final = 100_000
_CLASSES: Final = (
    (forms.Textarea, dress.TEXTAREA_CLASSES),
    (forms.RadioSelect, ()),  # also the base of lists of checkboxes; the style sheet dresses both
    (forms.Select, dress.SELECT_CLASSES),
    (forms.CheckboxInput, dress.SWITCH_CLASSES),
    (forms.FileInput, dress.INPUT_CLASSES),
    (forms.widgets.Input, dress.INPUT_CLASSES),
)


class Dressed:
    """Gives every widget the classes that unfold has for its kind."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # type: ignore[attr-defined]
            classes = next((names for kind, names in _CLASSES if isinstance(field.widget, kind)), ())
            field.widget.attrs.setdefault("class", " ".join(classes))
            if isinstance(field.widget, forms.Textarea):
                field.widget.attrs.setdefault("rows", 4)
            if type(field.widget) is forms.Select:
                field.widget.template_name = "unfold/widgets/select.html"


class DressedForm(Dressed, forms.Form):
    pass


class ActForm(DressedForm):
    """What an act asks for; most ask for nothing. It knows who acts, and on what."""

    def __init__(self, *args: Any, by: User, rows: Sequence[Model], **kwargs: Any) -> None:
        self.by = by
        self.rows = rows
        super().__init__(*args, **kwargs)


class ReasonForm(ActForm):
    reason = forms.CharField(max_length=500, help_text="Kept with the halt and shown to whoever looks at it.")


class NoteForm(ActForm):
    note = forms.CharField(
        required=False,
        max_length=2_000,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept with the decision. The agent is shown the note of a denial.",
    )


def usd_field(**more: Any) -> USDFormField:
    limits = {"min_value": 0, "max_value": MOST_USD, "max_digits": 13, "decimal_places": FORM_PLACES}
    return USDFormField(**{**limits, **more})


class CapForm(ActForm):
    cap = usd_field(
        label="Cap per session (USD)", required=False, help_text="Leave it empty for the installation's default."
    )


class ArgumentsField(forms.CharField):
    """Arguments of a call as JSON: one object, no name twice, no NaN."""

    def __init__(self, **more: Any) -> None:
        super().__init__(
            **{
                "max_length": ARGUMENT_CHARS,
                "widget": forms.Textarea(attrs={"rows": 12, "spellcheck": "false"}),
                **more,
            }
        )

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            given = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"This is not JSON that can be used: {error}") from None
        if not isinstance(given, dict):
            raise forms.ValidationError('The arguments are one JSON object, such as {"to": "…"}.')
        return given

    def run_validators(self, value: Any) -> None:
        """Length is judged on the text, in `clean`; what comes here is a dict."""

    def clean(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > ARGUMENT_CHARS:
            raise forms.ValidationError(f"The arguments have {len(value)} characters; {ARGUMENT_CHARS} are the most.")
        return super().clean(value)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
