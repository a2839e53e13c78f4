"""The record in the admin: to look at, never to change, and as quick with a million rows as with ten.

So: filters with declared choices (a plain filter would read every row for its choices), exact search over an index, a
count that stops, and no sorting by columns without an index.
"""

from typing import Any, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from unfold.admin import ModelAdmin

from audit.kinds import KINDS
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.recorder import AUDITED_LEVELS

COUNTED_ROWS = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts to a limit and no further; what lies behind it is found by search, filter or export."""

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Model]", self.object_list)
        return rows.order_by()[:COUNTED_ROWS].count()


class KindFilter(admin.SimpleListFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind.name, kind.name) for kind in KINDS.values()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditEvent]) -> QuerySet[AuditEvent]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class LevelFilter(admin.SimpleListFilter):
    title = "level"
    parameter_name = "level"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(level, level) for level in sorted(AUDITED_LEVELS)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[SkillAudit]) -> QuerySet[SkillAudit]:
        return queryset.filter(capability_level=self.value()) if self.value() else queryset


class RecordAdmin(ModelAdmin):  # type: ignore[misc]
    """Looking is a permission; adding, changing and deleting are nobody's."""

    paginator = BoundedPaginator
    show_full_result_count = False
    sortable_by = ()
    list_per_page = 100

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(AuditEvent)
class AuditEventAdmin(RecordAdmin):
    list_display = ("at", "sentence", "kind", "actor", "receipt", "seq")
    list_filter = (KindFilter,)
    search_fields = ("chain__exact",)
    search_help_text = "A session's id, or system"
    fields = ("sentence", *(field.name for field in AuditEvent._meta.concrete_fields), "receipt")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # Within a chain its own index serves; among all rows the newest are the last.
        return ("-seq",) if request.GET.get("q") else ("-id",)

    @admin.display(description="What happened")
    def sentence(self, event: AuditEvent) -> str:
        return event.sentence

    @admin.display(description="Session")
    def receipt(self, event: AuditEvent) -> str:
        if event.chain == SYSTEM_CHAIN:
            return event.chain
        return format_html('<a href="{}">{}</a>', reverse("audit:receipt", args=[event.chain]), event.chain)


@admin.register(SkillAudit)
class SkillAuditAdmin(RecordAdmin):
    list_display = ("created_at", "skill_name", "capability_level", "risk_level", "input_summary", "output_summary")
    list_filter = (LevelFilter,)
    ordering = ("-created_at", "-id")
