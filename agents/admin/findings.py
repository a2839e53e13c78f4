"""What runs leave behind for people: findings with their quotes, and notices."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.acts import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.facts import FactsAdmin
from agents.admin.filters import ReadFilter
from agents.admin.looks import SEVERITY_LABELS
from agents.admin.shown import moment
from agents.conf import clock
from agents.models import Finding, Notification
from agents.services.notifications import notice_read
from agents.services.viewing import session_view


@admin.register(Finding)
class FindingAdmin(FactsAdmin):
    list_display = ["title_", "grave", "document", "quoted", "judged", "session", "found_at"]
    list_filter = ["quote_check"]
    list_select_related = ["session", "document"]
    search_fields = ["session__public_id__exact", "title"]
    search_help_text = "Words of the title, or the public id of a session, in full."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Finding]:
        rows: QuerySet[Finding] = super().get_queryset(request)
        return rows.defer("document__text")

    @column("title")
    def title_(self, finding: Finding) -> str:
        return finding.title[:100]

    @column("severity", labels=SEVERITY_LABELS)
    def grave(self, finding: Finding) -> str:
        return finding.severity

    @column("quote", labels={"verified": "success", "unverified": "warning"})
    def quoted(self, finding: Finding) -> str:
        return finding.quote_check

    @column("judges")
    def judged(self, finding: Finding) -> str:
        return f"{finding.judges_for} of {finding.judges_asked}" if finding.judges_asked else "—"

    @column("found")
    def found_at(self, finding: Finding) -> str:
        return moment(finding.created_at)

    def noticed(self, request: HttpRequest, row: Finding) -> None:
        session_view(session=row.session, by=person(request), now=clock())


def _read(asked: Asked) -> Told:
    return each(asked, lambda row: notice_read(notification=row, by=asked.by, now=asked.now), "marked as read")


@admin.register(Notification)
class NotificationAdmin(FactsAdmin):
    """A person's own notices, and nobody else's."""

    list_display = ["title_", "kind", "session", "came", "read"]
    list_filter = [ReadFilter, "kind"]
    list_select_related = ["session"]
    hidden = frozenset({"id", "owner", "public_id"})
    acts = (
        Act("read", "Mark as read", "agents.view_notification", _read, fits=lambda row: row.read_at is None),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Notification]:
        rows: QuerySet[Notification] = super().get_queryset(request)
        return rows.filter(owner=person(request))

    @column("title")
    def title_(self, notice: Notification) -> str:
        return notice.title

    @column("came")
    def came(self, notice: Notification) -> str:
        return moment(notice.created_at)

    @column("read", labels={"unread": "warning"})
    def read(self, notice: Notification) -> tuple[str, str]:
        return ("read", moment(notice.read_at)) if notice.read_at else ("unread", "unread")
