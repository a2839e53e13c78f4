"""The audit log in the admin: read-only, and as fast with a million rows as with ten.

Filters have declared choices (Django's own would read every row for them), search is exact over an index, counting
stops at a limit, and columns without an index cannot be sorted by.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, cast
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from audit import utc_now
from audit.export import TYPES, Selection, UnknownChain, export_log
from audit.kinds import KINDS, usernames
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.receipts import event_sentence
from audit.skill_audits import AUDITED_LEVELS
from audit.views import download

COUNTED_ROWS = 10_000
SHORT_ID = 8
_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_PERSON = re.compile(r"\b([Uu]ser) (\d{1,18})\b")
NOT_GRADED = "none"
# The names of the sidebar, as headings of the pages.
AuditEvent._meta.verbose_name_plural = "audit log"
SkillAudit._meta.verbose_name_plural = "skill audit"


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts up to a limit; rows beyond it are found by search, filter or export."""

    @cached_property
    def count(self) -> int:
        rows = cast("QuerySet[Model]", self.object_list)
        return rows.order_by()[:COUNTED_ROWS].count()


class DeclaredFilter(admin.SimpleListFilter):
    """Filter a column by declared values. NOT_GRADED finds rows without a value."""

    column: str
    values: Iterable[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, "not graded" if value == NOT_GRADED else value) for value in self.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        if self.value() is None:
            return queryset
        return queryset.filter(**{self.column: None if self.value() == NOT_GRADED else self.value()})


class KindFilter(DeclaredFilter):
    title = parameter_name = "kind"
    values = KINDS

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset if self.value() is None else queryset.of_kind(self.value())


class LevelFilter(DeclaredFilter):
    title = parameter_name = "level"
    column = "capability_level"
    values = sorted(AUDITED_LEVELS)


class RiskFilter(DeclaredFilter):
    title = parameter_name = "risk"
    column = "risk_level"
    values = ("low", "medium", "high", NOT_GRADED)


class BoundedList(ChangeList):  # type: ignore[misc]
    """A list that counts up to a limit. Without a search or filter it does not say how many rows were found."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count


class AuditList(BoundedList):
    """Looks up the people and runs that the events of a page name, with two statements."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        events = list(self.result_list)
        texts = [event_sentence(event.kind, event.details) for event in events]
        ids = {found for text in texts for found in _ID.findall(text)}
        people = {f"user:{number}" for text in texts for _, number in _PERSON.findall(text)}
        names = usernames({*people, *(event.actor for event in events)})
        runs = set(AuditEvent.objects.filter(chain__in=ids, seq=1).values_list("chain", flat=True)) if ids else set()
        for event, text in zip(events, texts, strict=True):
            event.text, event.who = _linked(text, runs, names), names.get(event.actor, event.actor)
        self.result_list = events


def _linked(text: str, runs: Collection[str], names: Mapping[str, str]) -> str:
    """A sentence with the names of people, links to the receipts of runs, and other ids cut short."""
    named = _PERSON.sub(lambda found: f"{found[1]} {names.get(f'user:{found[2]}', found[2])}", text)
    pieces = _ID.split(named)
    return format_html_join(
        "", "{}", ((receipt_link(piece) if piece in runs else _shortened(piece),) for piece in pieces)
    )


def _shortened(piece: str) -> str:
    return format_html('<span title="{}">{}</span>', piece, piece[:SHORT_ID]) if _ID.fullmatch(piece) else piece


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Base of every page: a list that can be searched by id, titled as in the sidebar. Adding, changing and deleting
    are closed. `empty_text` says what to do when the list has no rows.
    """

    empty_text: ClassVar[str] = ""
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_filter_sheet = True
    actions = None

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedList]:
        return BoundedList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """An id may be typed with or without hyphens, whichever way the database stores it."""
        ids = [name for name in self.get_search_fields(request) if name.endswith(("public_id__exact", "chain__exact"))]
        wanted = id_in(search_term)
        if wanted is None or not ids:
            return super().get_search_results(request, queryset, search_term)  # type: ignore[no-any-return]
        return queryset.filter(Q(*((name, str(wanted)) for name in ids), _connector=Q.OR)), False

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        try:
            return super().get_changelist_instance(request)
        except (OverflowError, ValueError) as error:  # a date or a number out of range
            raise IncorrectLookupParameters from error

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": capfirst(self.opts.verbose_name_plural), **(extra_context or {})}
        return super().changelist_view(request, context)  # type: ignore[no-any-return]


def id_in(term: str) -> UUID | None:
    """The public id in the search term, if it is one."""
    try:
        return UUID(term.strip())
    except ValueError:
        return None


class ExportForm(forms.Form):
    """What to export. The file is signed: docs/audit.md says how to verify it."""

    format = forms.ChoiceField(choices=[(form, form.upper()) for form in TYPES], widget=UnfoldAdminSelectWidget)
    chain = forms.CharField(
        required=False,
        max_length=64,
        widget=UnfoldAdminTextInputWidget,
        help_text="The full id of a run, or system. Empty: the whole audit log.",
    )
    since = forms.DateTimeField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="First time, in UTC, such as 2026-01-31 14:30. Leaves out what links events. Empty: from the start.",
    )
    kind = forms.ChoiceField(
        required=False,
        choices=[("", "All"), *((kind, kind) for kind in sorted(KINDS))],
        widget=UnfoldAdminSelectWidget,
        help_text="Only events of one kind. Leaves out what links events.",
    )


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    actions_list = ("export",)
    rows_name = "events"
    sortable_by = ()
    list_per_page = 100
    list_display = ("at", "sentence", "kind", "person", "receipt", "seq")
    list_filter = (KindFilter,)
    search_fields = ("chain__exact",)
    search_help_text = "The full id of a run, or system"
    empty_text = "No events yet. Actions of runs and people appear here."
    fields = ("sentence", *(field.name for field in AuditEvent._meta.concrete_fields), "receipt")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # Within one chain its index serves; over all rows the id does.
        return ("-seq",) if request.GET.get("q") else ("-id",)

    @action(description="Export", url_path="export", permissions=["view"])
    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Choose what to export, and download it."""
        form = ExportForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            now, chosen = utc_now(), dict(form.cleaned_data)
            file = chosen.pop("format")
            try:
                lines = export_log(Selection(**chosen), form=file, by=f"user:{request.user.pk}", now=now)
                return download(request, lines, form=file, now=now)
            except UnknownChain as error:
                form.add_error("chain", str(error))
            except OSError as error:
                form.add_error(None, f"No checkpoint can be written: {error.strerror}.")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Export the audit log",
            "form": form,
            "parts": [{"fields": list(form)}],
            "may_save": True,
            "save_label": "Export",
            "back": reverse("admin:audit_auditevent_changelist"),
        }
        return TemplateResponse(request, "admin/form.html", context)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedList]:
        return AuditList

    @admin.display(description="Event")
    def sentence(self, event: AuditEvent) -> str:
        """On a page of its own the event stands as it is."""
        text: str = getattr(event, "text", "") or event_sentence(event.kind, event.details)
        return text

    @admin.display(description="Actor")
    def person(self, event: AuditEvent) -> str:
        return format_html('<span title="{}">{}</span>', event.actor, getattr(event, "who", event.actor))

    @admin.display(description="Run")
    def receipt(self, event: AuditEvent) -> str:
        return event.chain if event.chain == SYSTEM_CHAIN else receipt_link(event.chain)


@admin.register(SkillAudit)
class SkillAuditAdmin(ReadOnlyAdmin):
    sortable_by = ()
    list_per_page = 100
    list_display = (
        "created_at",
        "skill_name",
        "capability_level",
        "risk_level",
        "input_summary",
        "output_summary",
        "session",
    )
    list_filter = (LevelFilter, RiskFilter)
    search_fields = ("skill_name__exact",)
    search_help_text = "The full name of a skill"
    ordering = ("-created_at", "-id")
    empty_text = "No calls yet. Calls of skills of level CONTROLLED and above are listed here."
    fields = (*(field.name for field in SkillAudit._meta.concrete_fields), "session")

    @admin.display(description="Run")
    def session(self, call: SkillAudit) -> str:
        return receipt_link(str(call.session_id)) if call.session_id else "—"


def receipt_link(chain: str) -> str:
    """A link to the receipt of a run by its short id; the whole id is the tooltip."""
    link = reverse("audit:receipt", args=[chain])
    return format_html('<a class="lq-link lq-code nowrap" href="{}" title="{}">{}</a>', link, chain, chain[:SHORT_ID])
