"""Acts: what people do to rows, by a page that says what will happen, asks for what it needs, and calls one service.

The same act is offered in the list, for several rows, and on the row's own page. Nothing happens on a GET.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from unfold import widgets as dress

from agents.admin.base import RoomAdmin, person
from agents.conf import clock
from agents.exceptions import Invalid, LqopsError
from agents.models.fields import FORM_PLACES, USDFormField
from agents.policy.costs import MOST_USD

# --- Forms in the dress of the control room, and the few fields that several pages ask for ---


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
        for bound in self.fields.values():  # type: ignore[attr-defined]
            classes = next((names for kind, names in _CLASSES if isinstance(bound.widget, kind)), ())
            bound.widget.attrs.setdefault("class", " ".join(classes))
            if isinstance(bound.widget, forms.Textarea):
                bound.widget.attrs.setdefault("rows", 4)
            if type(bound.widget) is forms.Select:
                bound.widget.template_name = "unfold/widgets/select.html"


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


MOST_ROWS: Final = 500
REFUSALS: Final = (LqopsError, ValidationError, ValueError)


@dataclass(frozen=True)
class Asked:
    """What a person has asked for and confirmed."""

    by: User
    rows: Sequence[Any]
    given: dict[str, Any]
    now: datetime
    request: HttpRequest


@dataclass(frozen=True)
class Told:
    """What came of it. A text that was made by format_html may hold links."""

    text: str
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Act:
    """`run` calls the service; `fits` says for which row the act makes sense; `many` offers it in the list; `against`
    says why it cannot be done to these rows together, or nothing; `shows` are the words of a row that the act is about,
    and `named` is what the row is called; `reveals` says that the page shows rows in a way of its own."""

    name: str
    title: str
    permission: str
    run: Callable[[Asked], Told | HttpResponse]
    form: type[ActForm] = ActForm
    explained: str = ""
    grave: bool = False
    many: bool = True
    fits: Callable[[Any], bool] = field(default=lambda row: True)
    against: Callable[[Sequence[Any]], str] = field(default=lambda rows: "")
    named: Callable[[Any], str] = str
    shows: Callable[[Any], str] = field(default=lambda row: "")
    template: str = "admin/act.html"
    reveals: bool = False


def each(asked: Asked, do: Callable[[Any], object], done: str) -> Told:
    """Does it to each row; one that is refused does not keep the others from it."""
    refused = []
    for row in asked.rows:
        try:
            do(row)
        except REFUSALS as error:
            refused.append(f"{row}: {reason(error)}")
    if refused and len(refused) == len(asked.rows):
        raise Invalid(" ".join(refused))
    return Told(f"{len(asked.rows) - len(refused)} {done}.", tuple(refused))


def reason(error: Exception) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


class ActingAdmin(RoomAdmin):
    """A page with acts."""

    acts: ClassVar[tuple[Act, ...]] = ()

    def may(self, request: HttpRequest, act: Act) -> bool:
        return person(request).has_perm(act.permission)

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        view = self.admin_site.admin_view(never_cache(self.act_view))
        return [path("<path:object_id>/act/<slug:act_name>/", view, name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {
            act.name: (_from_list(act), act.name, act.title) for act in self.acts if act.many and self.may(request, act)
        }

    def buttons(self, request: HttpRequest, row: Model) -> list[dict[str, Any]]:
        """The acts that the person may do to this row, for its page."""
        return [
            {"title": act.title, "grave": act.grave, "link": self.act_link(row, act.name), "name": act.name}
            for act in self.acts
            if self.may(request, act) and act.fits(row)
        ]

    def act_link(self, row: Model, name: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_act", args=[row.pk, name])

    def act_view(self, request: HttpRequest, object_id: str, act_name: str) -> HttpResponse:
        act = next((act for act in self.acts if act.name == act_name), None)
        if act is None:
            raise Http404
        if not self.may(request, act):
            raise PermissionDenied
        return self.carry_out(request, act, [self.found(request, object_id)], back=self.row_link(object_id))

    def row_link(self, object_id: object) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])

    def list_link(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def carry_out(
        self, request: HttpRequest, act: Act, rows: Sequence[Any], *, back: str, from_list: bool = False
    ) -> HttpResponse:
        if fault := act.against(rows):
            messages.error(request, fault)
            return HttpResponseRedirect(back)
        by = person(request)
        confirmed = request.method == "POST" and "confirmed" in request.POST
        form = act.form(request.POST if confirmed else None, by=by, rows=rows)
        if confirmed and form.is_valid():
            try:
                told = act.run(Asked(by, rows, form.cleaned_data, clock(), request))
            except REFUSALS as error:
                form.add_error(None, reason(error))
            else:
                return told if isinstance(told, HttpResponse) else self._tell(request, told, back)
        listed = [(row, act.named(row), act.shows(row)) for row in rows]
        return self.page(
            request,
            act.template,
            act.title,
            act=act,
            rows=rows,
            listed=listed,
            shown_rows=[row for row, _, said in listed if said or act.reveals],
            form=form,
            back=back,
            from_list=from_list,
            selected=ACTION_CHECKBOX_NAME,
        )

    def _tell(self, request: HttpRequest, told: Told, back: str) -> HttpResponse:
        messages.success(request, told.text)
        for refusal in told.refused:
            messages.error(request, refusal)
        return HttpResponseRedirect(back)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Django's address for deleting leads to the act of that name, where there is one."""
        return self.act_view(request, object_id, "delete")


def _from_list(act: Act) -> Callable[[ActingAdmin, HttpRequest, QuerySet[Model]], HttpResponse | None]:
    def chosen(page: ActingAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
        rows = list(queryset[: MOST_ROWS + 1])
        if len(rows) > MOST_ROWS:
            messages.error(request, f"At most {MOST_ROWS} rows at a time; choose fewer.")
            return None
        return page.carry_out(request, act, rows, back=request.get_full_path(), from_list=True)

    return chosen
