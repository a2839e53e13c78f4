"""Row actions: a confirm page that says what will happen, asks for what is needed, and calls one function.

One declaration serves the list (several rows) and the row's own page. unfold's `@action` does neither: its buttons do
not depend on the row, and its dialogs do not show the rows that they are about. Nothing happens on a GET.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from agents.admin.display import counted
from agents.admin.forms import REFUSALS, StyledForm, SuggestedInput, error_text
from agents.exceptions import Invalid

MAX_ROWS: Final = 500
Choices = Sequence[tuple[int, str]]

# --- Forms of actions ---


class ActionForm(StyledForm):
    """The fields that an action asks for; most ask for none. It knows the user and the rows."""

    def __init__(self, *args: Any, by: User, rows: Sequence[Model], **kwargs: Any) -> None:
        self.by = by
        self.rows = rows
        super().__init__(*args, **kwargs)


HALT_REASONS: Final = ("Wrong input", "Too expensive", "Stuck", "Wrong results", "No longer needed", "Incident")
PAUSE_REASONS: Final = ("Reviewing its results", "Waiting for information", "Too expensive today", "Maintenance")


def reason_field(about: str, suggestions: Sequence[str]) -> forms.CharField:
    help_text = f"Optional. Stored with the {about} and shown to whoever finds it."
    return forms.CharField(max_length=500, required=False, widget=SuggestedInput(suggestions), help_text=help_text)


class ReasonForm(ActionForm):
    reason = reason_field("halt", HALT_REASONS)


class HaltAllForm(ReasonForm):
    end_waiting = forms.BooleanField(
        required=False,
        label="Also end runs that only wait for a person",
        help_text="Otherwise they are paused until the release.",
    )


class ReleaseForm(ActionForm):
    keep_paused = forms.BooleanField(
        required=False,
        label="Keep the spared runs paused",
        help_text="Resume them later, one by one or several at a time, in the list of runs. Otherwise they go on now.",
    )
    start_again = forms.MultipleChoiceField(
        required=False,
        label="Start again",
        widget=forms.CheckboxSelectMultiple,
        help_text="Agents whose loops or heartbeats the halt has ended. Each starts as by its Start button.",
    )
    run_again = forms.MultipleChoiceField(
        required=False,
        label="Run again",
        widget=forms.CheckboxSelectMultiple,
        help_text="Runs that the halt has ended. Each is started anew, from the beginning and at its own cost.",
    )

    def __init__(self, *args: Any, agents: Choices, runs: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, choices, chosen in (("start_again", agents, agents), ("run_again", runs, [])):
            listed = self.fields[name]
            assert isinstance(listed, forms.MultipleChoiceField)  # noqa: S101 for the type checker
            listed.choices, listed.initial = choices, [key for key, _ in chosen]
            if not choices:
                del self.fields[name]


class PauseForm(ActionForm):
    reason = reason_field("pause", PAUSE_REASONS)


# --- Declaring an action ---


@dataclass(frozen=True)
class ActionRequest:
    """A confirmed action: the rows and the form's cleaned data."""

    by: User
    rows: Sequence[Any]
    data: dict[str, Any]
    now: datetime
    request: HttpRequest


@dataclass(frozen=True)
class ActionResult:
    """The message to show, and the rows that were refused. A message made by format_html may hold links."""

    message: str
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowAction:
    """An action on rows, offered in the list unless `bulk` is off, and on the page of each row where it is `available`.

    Without a `permission` it needs the one to change such rows, or to delete them if that is its name.
    `conflict` says why it cannot be done to these rows together, or nothing. The confirm page lists each row by its
    `label`, with its `content` if the decision needs it; `shows_content` marks a template that shows rows itself.
    Where content is shown, the view is recorded. `initial` fills the form with what all rows have.
    """

    name: str
    title: str
    run: Callable[[ActionRequest], ActionResult | HttpResponse]
    form: type[ActionForm] = ActionForm
    permission: str = ""
    description: str = ""
    danger: bool = False
    bulk: bool = True
    available: Callable[[Any], bool] = field(default=lambda row: True)
    conflict: Callable[[Sequence[Any]], str] = field(default=lambda rows: "")
    label: Callable[[Any], str] = str
    content: Callable[[Any], str] = field(default=lambda row: "")
    initial: Callable[[Any], dict[str, Any]] = field(default=lambda row: {})
    template: str = "admin/confirm.html"
    shows_content: bool = False


def is_in_use(row: Any) -> bool:
    """Whether the row is not deleted."""
    return getattr(row, "deleted_at", None) is None


def delete_action(run: Callable[[ActionRequest], ActionResult], description: str, **more: Any) -> RowAction:
    """The action of Django's address for deleting; rows that were deleted already do not offer it."""
    return RowAction("delete", "Delete", run, description=description, danger=True, available=is_in_use, **more)


def for_each(action: ActionRequest, do: Callable[[Any], object], done: str) -> ActionResult:
    """Do it to each row; a row that is refused does not stop the others."""
    errors = []
    for row in action.rows:
        try:
            do(row)
        except REFUSALS as error:
            errors.append(f"{row}: {error_text(error)}")
    if errors and len(errors) == len(action.rows):
        raise Invalid(" ".join(errors))
    number = len(action.rows) - len(errors)
    meta = action.rows[0]._meta
    return ActionResult(
        f"{counted(number, str(meta.verbose_name), str(meta.verbose_name_plural))} {done}.", tuple(errors)
    )


def each_row(
    write: Callable[..., object], row_name: str, done: str, **more: Any
) -> Callable[[ActionRequest], ActionResult]:
    """The `run` of an action that calls `write(<row_name>=row, by=…, now=…)` for each row."""

    def run(action: ActionRequest) -> ActionResult:
        return for_each(action, lambda row: write(**{row_name: row}, by=action.by, now=action.now, **more), done)

    return run
