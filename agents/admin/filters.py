"""Filters that several lists share. Each has declared choices, so that none reads a table to find them."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.display import words


class AbsentFilter(admin.SimpleListFilter):
    """Rows whose column is empty, unless others are asked for: what was put away is not in the way."""

    column = ""
    empty = ""
    filled = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("filled", self.filled), ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        chosen = self.value()
        for lookup, title in [(None, self.empty), *self.lookup_choices]:
            params = {self.parameter_name: lookup} if lookup else {}
            link = changelist.get_query_string(params, [] if lookup else [self.parameter_name])
            yield {"selected": chosen == lookup, "query_string": link, "display": title}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "all":
            return queryset
        return queryset.filter(**{f"{self.column}__isnull": self.value() != "filled"})


class WordedFilter(admin.ChoicesFieldListFilter):
    """The declared choices of a column, in the words that its list shows."""

    def choices(self, changelist: Any) -> Any:
        named = {str(label): words(value).capitalize() for value, label in self.field.flatchoices}
        for choice in super().choices(changelist):
            yield {**choice, "display": named.get(str(choice["display"]), choice["display"])}


class DeletedFilter(AbsentFilter):
    title = "use"
    parameter_name = "use"
    column = "deleted_at"
    empty = "In use"
    filled = "Deleted"


class DismissedFilter(AbsentFilter):
    title = "board"
    parameter_name = "board"
    column = "dismissed_at"
    empty = "On the board"
    filled = "Dismissed"


class ReadFilter(admin.SimpleListFilter):
    title = "read"
    parameter_name = "read"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("no", "Unread"), ("yes", "Read")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(read_at__isnull=self.value() == "no")


class WhoseFilter(admin.SimpleListFilter):
    """One's own rows, unless everybody's are asked for."""

    title = "whose"
    parameter_name = "whose"

    @classmethod
    def is_everybody(cls, request: HttpRequest) -> bool:
        return request.GET.get(cls.parameter_name) == "everybody"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("everybody", "Everybody's")]

    def choices(self, changelist: Any) -> Any:
        mine, everybody = super().choices(changelist)
        yield from ({**mine, "display": "Mine"}, everybody)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() == "everybody" else queryset.filter(owner=request.user)
