"""What agents told, as long as it is kept: to look at, and as quick with many rows as with few."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.base import column
from agents.admin.display import moment, visible, words
from agents.admin.facts import FactsAdmin
from agents.enums import EventKind
from agents.models import AgentEvent
from agents.people.activity import event_sentence

# The name of the sidebar, at the head of the page too; events that come in from elsewhere have another.
AgentEvent._meta.verbose_name_plural = "agent events"


class EventKindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind_words(kind).capitalize()) for kind in EventKind.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AgentEvent]) -> QuerySet[AgentEvent]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


def kind_words(kind: str) -> str:
    return words(kind.replace("autonomy:", "").replace(":", " "))


@admin.register(AgentEvent)
class AgentEventAdmin(FactsAdmin):
    list_display = ["when", "said", "sort", "agent", "of_session"]
    list_filter = [EventKindFilter]
    list_select_related = ["agent", "session"]
    search_fields = ["agent__public_id__exact", "session__public_id__exact"]
    search_help_text = "The public id of an agent or of a session, in full."
    empty = "Nothing has happened yet. What agents, their sensors and their guardrails do is told here as it happens."
    hidden = frozenset({"id", "owner_id"})

    @column("when")
    def when(self, event: AgentEvent) -> str:
        return moment(event.created_at)

    @column("what happened")
    def said(self, event: AgentEvent) -> str:
        return visible(event_sentence(event.kind, event.data))

    @column("kind")
    def sort(self, event: AgentEvent) -> str:
        return kind_words(event.kind)

    def title_of(self, row: Any) -> str:
        return event_sentence(row.kind, row.data)
