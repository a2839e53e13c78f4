"""Pages with a form whose saving is one call of a service. What the service refuses is shown beside its field.

The page never saves a row itself and opens no transaction: a service may write files before it writes rows.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst

from agents.admin.actions import REFUSALS, ActingAdmin, reason
from agents.admin.base import person
from agents.admin.forms import Dressed


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
