"""Pages with a form whose saving is one call of a service. What the service refuses is shown beside its field.

The page never saves a row itself and opens no transaction: a service may write files before it writes rows.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import models
from django.forms import ModelChoiceField
from django.forms.models import ModelChoiceIterator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst

from agents.admin.actions import REFUSALS, ActingAdmin, Dressed, reason
from agents.admin.base import person
from agents.admin.display import moment, pretty, usd, visible, words
from agents.models import AgentSession, PromptSkill
from agents.models.fields import MicroUSDField


@dataclass(frozen=True)
class Section:
    """Some fields of a form under a heading, with a word on what they are for."""

    title: str
    names: tuple[str, ...]
    explained: str = ""


class EditForm(Dressed, forms.ModelForm):  # type: ignore[type-arg]
    """Fields as the model declares them. It is never saved: its clean values go to a service."""

    def changes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}


class EditingAdmin(ActingAdmin):
    """A page to add and change rows by."""

    form_class: ClassVar[type[EditForm]]
    sections: ClassVar[tuple[Section, ...]] = ()
    edit_template = "admin/edit.html"
    save_word = "Save"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "change")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "delete")

    def save_new(self, request: HttpRequest, form: Any) -> Any:
        """Calls the service that makes a row. The row, or a whole answer of its own."""
        raise NotImplementedError

    def save_changes(self, request: HttpRequest, row: Any, form: Any) -> Any:
        """Calls the service that changes the row."""
        raise NotImplementedError

    def make_form(self, request: HttpRequest, row: Any) -> Any:
        data = request.POST if request.method == "POST" else None
        files = request.FILES if request.method == "POST" else None
        if row is not None:
            return self.form_class(data, files, instance=self.model._meta.default_manager.get(pk=row.pk))
        return self.form_class(data, files, initial={"owner": person(request).pk, **request.GET.dict()})

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What else the page shows."""
        return {}

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.form_page(request, None, may_save=True)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.found(request, object_id)
        return self.form_page(request, row, may_save=self.has_change_permission(request, row))

    def form_page(self, request: HttpRequest, row: Any, *, may_save: bool) -> HttpResponse:
        if request.method == "POST" and not may_save:
            raise PermissionDenied
        form = self.make_form(request, row)
        if request.method == "POST" and form.is_valid():
            try:
                saved = self.save_new(request, form) if row is None else self.save_changes(request, row, form)
            except REFUSALS as error:
                blame(form, error)
            else:
                return self.saved(request, saved)
        if not may_save:
            for field in form.fields.values():
                field.disabled = True
        title = f"Add {self.opts.verbose_name}" if row is None else str(row)
        return self.page(
            request,
            self.edit_template,
            title,
            form=form,
            parts=_parts(form, self.sections),
            original=row,
            may_save=may_save,
            save_word=self.save_word,
            buttons=[] if row is None else self.buttons(request, row),
            back=self.list_link(),
            **self.beside(request, row),
        )

    def saved(self, request: HttpRequest, saved: Any) -> HttpResponse:
        if isinstance(saved, HttpResponse):
            return saved
        kind = str(self.opts.verbose_name)
        named = kind if str(saved) == kind else f"{kind} {saved}"
        messages.success(request, f"{capfirst(named)} is saved.")
        return HttpResponseRedirect(self.row_link(saved.pk))


def blame(form: forms.BaseForm, error: Exception) -> None:
    """Puts a refusal beside the field that it names, or on top of the form."""
    text = reason(error)
    form.add_error(_named_field(form, text), text)


def _named_field(form: forms.BaseForm, text: str) -> str | None:
    """The field whose name stands first in the text: services name the field that they refuse."""
    places = {name: found.start() for name in form.fields if (found := re.search(rf"\b{re.escape(name)}\b", text))}
    return min(places, key=lambda name: places[name], default=None)


def _parts(form: forms.BaseForm, sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The form's fields under the headings; what no heading names comes first, under none."""
    named = {name for section in sections for name in section.names}
    rest = [form[name] for name in form.fields if name not in named]
    parts: list[dict[str, Any]] = [{"title": "", "fields": rest}] if rest else []
    for section in sections:
        fields = [form[name] for name in section.names if name in form.fields]
        if fields:
            parts.append({"title": section.title, "explained": section.explained, "fields": fields})
    return parts


# Rows that are only read: their page is a list of facts, with everything that could not be seen made visible.


LONG = 120


class FactsAdmin(ActingAdmin):
    """A page of facts, in the order of the columns. `hidden` columns are of no use to a reader."""

    hidden: ClassVar[frozenset[str]] = frozenset({"id"})
    change_template = "admin/facts.html"
    sortable_by = ()
    ordering: tuple[str, ...] = ("-id",)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        row = self.found(request, object_id)
        self.noticed(request, row)
        by = person(request)
        facts = [fact_of(row, field, by) for field in row._meta.concrete_fields if field.name not in self.hidden]
        return self.page(
            request,
            self.change_template,
            self.title_of(row),
            original=row,
            facts=facts,
            buttons=self.buttons(request, row),
            **self.beside(request, row),
        )

    def title_of(self, row: Any) -> str:
        """What the row is called at the head of its page."""
        return str(row)

    def noticed(self, request: HttpRequest, row: Any) -> None:
        """Called when somebody looks at a row."""

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What else the page shows."""
        return {}


def fact_of(row: models.Model, field: Any, by: User) -> dict[str, Any]:
    """One column for reading: what it is called, its value as text, and where it leads those who may go there."""
    value, label = getattr(row, field.name), capfirst(field.verbose_name)
    if isinstance(value, AgentSession):
        return {"label": label, "text": value.chain, "link": _link(value, by)}
    if isinstance(value, models.Model):
        return {"label": label, "text": visible(str(value)), "link": _link(value, by)}
    text = _text(field, value)
    return {"label": label, "text": text, "long": len(text) > LONG or "\n" in text}


def _text(field: Any, value: Any) -> str:
    if value is None or value == "":
        return "—"
    if isinstance(field, MicroUSDField):
        return usd(value)
    if isinstance(field, models.JSONField):
        return pretty(value)
    if isinstance(value, datetime):
        return f"{moment(value)} UTC"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words(value) if field.choices else visible(str(value))


def _link(row: models.Model, by: User) -> str:
    app, name = row._meta.app_label, row._meta.model_name
    return reverse(f"admin:{app}_{name}_change", args=[row.pk]) if by.has_perm(f"{app}.view_{name}") else ""


# Forms whose choices belong to one owner. The service checks it again; here nothing of others is even shown.


MOST_CHOICES = 1_000


class OwnedChoices:
    """Narrows every choice of rows to what the owner has and what is still in use."""

    def __init__(self, *args: Any, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # type: ignore[attr-defined]
            if isinstance(field, ModelChoiceField):
                named: Any = field.queryset
                field.iterator = _SomeChoices  # before the rows: giving it those makes the list of choices
                field.queryset = _in_use(named.model, owner)


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


class _SomeChoices(ModelChoiceIterator):  # type: ignore[type-arg]
    """A page lists so many choices and no more; the field itself takes any of the owner's."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.queryset = field.queryset[:MOST_CHOICES]
