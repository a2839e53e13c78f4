"""The record in the admin: to look at, never to change, and as quick with a million rows as with ten.

So: filters with declared choices (a plain filter would read every row for its choices), exact search over an index, a
count that stops, and no sorting by columns without an index.
"""

from typing import Any, ClassVar, cast
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from audit.kinds import KINDS
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.recorder import AUDITED_LEVELS

COUNTED_ROWS = 10_000
SHORT_ID = 8
RISKS = ("low", "medium", "high")
NOT_GRADED = "none"
# The names of the sidebar, at the head of the pages too.
AuditEvent._meta.verbose_name_plural = "record"
SkillAudit._meta.verbose_name_plural = "skill audit"


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


class RiskFilter(admin.SimpleListFilter):
    title = "risk"
    parameter_name = "risk"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(risk, risk) for risk in RISKS] + [(NOT_GRADED, "not graded")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[SkillAudit]) -> QuerySet[SkillAudit]:
        if self.value() == NOT_GRADED:
            return queryset.filter(risk_level__isnull=True)
        return queryset.filter(risk_level=self.value()) if self.value() else queryset


class ListedAdmin(ModelAdmin):  # type: ignore[misc]
    """A list that is found by ids, has a name of its own, and says what to do when there is nothing in it.

    An id may be typed with its hyphens or without, whichever way the database keeps it.
    """

    empty: ClassVar[str] = ""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        ids = [name for name in self.get_search_fields(request) if name.endswith(("public_id__exact", "chain__exact"))]
        wanted = id_in(search_term)
        if wanted is None or not ids:
            return super().get_search_results(request, queryset, search_term)  # type: ignore[no-any-return]
        return queryset.filter(Q(*((name, str(wanted)) for name in ids), _connector=Q.OR)), False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        try:
            return super().get_changelist_instance(request)
        except (OverflowError, ValueError) as error:  # a year that no calendar has, or a number that no column holds
            raise IncorrectLookupParameters from error

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        shown = {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        return super().changelist_view(request, shown)  # type: ignore[no-any-return]


def id_in(words: str) -> UUID | None:
    """The public id that somebody typed, if it is one."""
    try:
        return UUID(words.strip())
    except ValueError:
        return None


class RecordList(ChangeList):  # type: ignore[misc]
    """One page of the record. Where nothing is searched for, nothing is said of how many rows were found."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count


class RecordAdmin(ListedAdmin):
    """Looking is a permission; adding, changing and deleting are nobody's."""

    paginator = BoundedPaginator
    show_full_result_count = False
    sortable_by = ()
    list_per_page = 100

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordList]:
        return RecordList

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
    search_help_text = "A session's id in full, or system"
    empty = "Nothing is on record yet. What runs and people do appears here by itself."
    fields = ("sentence", *(field.name for field in AuditEvent._meta.concrete_fields), "receipt")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # Within a chain its own index serves; among all rows the newest are the last.
        return ("-seq",) if request.GET.get("q") else ("-id",)

    @admin.display(description="What happened")
    def sentence(self, event: AuditEvent) -> str:
        return event.sentence

    @admin.display(description="Session")
    def receipt(self, event: AuditEvent) -> str:
        return event.chain if event.chain == SYSTEM_CHAIN else receipt_link(event.chain)


@admin.register(SkillAudit)
class SkillAuditAdmin(RecordAdmin):
    list_display = (
        "created_at", "skill_name", "capability_level", "risk_level", "input_summary", "output_summary", "session",
    )  # fmt: skip
    list_filter = (LevelFilter, RiskFilter)
    search_fields = ("skill_name__exact",)
    search_help_text = "The name of a skill, in full"
    ordering = ("-created_at", "-id")
    empty = "No skill of level CONTROLLED or above has run yet; each that does is noted here."
    fields = (*(field.name for field in SkillAudit._meta.concrete_fields), "session")

    @admin.display(description="Session")
    def session(self, call: SkillAudit) -> str:
        return receipt_link(str(call.session_id)) if call.session_id else "—"


def receipt_link(chain: str) -> str:
    """A session by the beginning of its id; the whole id shows under the pointer."""
    link = reverse("audit:receipt", args=[chain])
    return format_html('<a class="lq-link lq-code nowrap" href="{}" title="{}">{}</a>', link, chain, chain[:SHORT_ID])
