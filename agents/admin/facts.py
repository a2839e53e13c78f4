"""Rows that are only read: their page is a list of facts, with everything that could not be seen made visible."""

from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.text import capfirst

from agents.admin.actions import ActingAdmin
from agents.admin.base import person
from agents.admin.display import moment, pretty, usd, visible, words
from agents.models import AgentSession
from agents.models.fields import MicroUSDField

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
