"""What runs leave behind for people: findings with their quotes, and notices."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.display import cut, moment, told, visible, words
from agents.admin.facts import FactsAdmin
from agents.admin.filters import ReadFilter, WhoseFilter, WordedFilter
from agents.admin.looks import SEVERITY_LABELS
from agents.conf import clock
from agents.enums import ApprovalStatus, NoticeKind
from agents.models import Approval, Finding, Notification
from agents.people.notifications import notice_read
from agents.sessions.reads import asked_by, purposes


@admin.register(Finding)
class FindingAdmin(FactsAdmin):
    quotes = True
    list_display = ["title_", "grave", "document", "quoted", "judged", "of_session", "found_at"]
    list_filter = ["quote_check"]
    ordering = ("-session_id", "created_at", "id")  # the last run first, and what it found in its order
    empty = "No run has found anything yet. Add a document to a watched collection, or start a run by hand."
    list_select_related = ["session", "document"]
    search_fields = ["session__public_id__exact", "title"]
    search_help_text = "Words of the title, or the public id of a session, in full."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Finding]:
        rows: QuerySet[Finding] = super().get_queryset(request)
        return rows.defer("document__text")

    @column("title")
    def title_(self, finding: Finding) -> str:
        return cut(finding.title, 100)

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


def _read(asked: Asked) -> Told:
    return each(asked, lambda row: notice_read(notification=row, by=asked.by, now=asked.now), "marked as read")


@admin.register(Notification)
class NotificationAdmin(FactsAdmin):
    """A person's own notices; everybody's when asked for, on record. Opening one's own is reading it."""

    quotes = True
    list_display = ["title_", "about", "kind_", "of_session", "came", "read"]
    list_filter = [WhoseFilter, ReadFilter, ("kind", WordedFilter)]
    list_select_related = ["owner", "session__agent", "session__trigger"]
    empty = "There is no notice for you. Runs tell their owner what they found, and approvers what waits for them."
    hidden = frozenset({"id", "public_id", "title", "body", "session", "read_at"})
    change_template = "admin/notice.html"
    acts = (
        Act("read", "Mark as read", "agents.view_notification", _read, fits=lambda row: row.read_at is None),
    )  # fmt: skip

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["owner"] if WhoseFilter.is_everybody(request) else [])]

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        return super().buttons(request, row) if row.owner_id == person(request).pk else []

    def carry_out(self, request: HttpRequest, act: Act, rows: Sequence[Any], **more: Any) -> HttpResponse:
        """Nobody reads a notice in somebody else's place: it would never be seen."""
        if any(row.owner_id != person(request).pk for row in rows):
            raise PermissionDenied
        return super().carry_out(request, act, rows, **more)

    def prepare(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows if row.session])
        waiting = Approval.objects.filter(session__in=known, status=ApprovalStatus.PENDING)
        open_ = set(waiting.values_list("session_id", flat=True))
        for row in rows:
            row.purpose = known.get(row.session_id, "")
            row.settled = row.kind == NoticeKind.APPROVAL_WAITING and row.session_id not in open_

    def title_of(self, row: Notification) -> str:
        return told(row.title)

    @column("title")
    def title_(self, notice: Notification) -> str:
        return told(notice.title)

    @column("about")
    def about(self, notice: Any) -> str:
        if notice.session is None:
            return "—"
        return format_html(
            '<span class="lq-wrap">{}</span><br><span class="lq-faint">{}</span>',
            visible(cut(notice.purpose, 80)),
            visible(asked_by(notice.session)),
        )

    @column("kind")
    def kind_(self, notice: Any) -> str:
        return "approval, decided" if notice.settled else words(notice.kind)

    @column("came")
    def came(self, notice: Notification) -> str:
        return moment(notice.created_at)

    @column("read", labels={"unread": "warning", "settled": "success"})
    def read(self, notice: Any) -> tuple[str, str]:
        if notice.read_at:
            return "read", moment(notice.read_at)
        return ("settled", "settled") if notice.settled else ("unread", "unread")

    def noticed(self, request: HttpRequest, row: Notification) -> None:
        if row.owner_id == person(request).pk:
            notice_read(notification=row, by=person(request), now=clock())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The words of the notice, with the ways to what they speak of in place of bare addresses."""
        self.prepare([row])
        lines = [line for line in row.body.splitlines() if not line.startswith("Receipt: /")]
        pending = row.session and row.session.approvals.filter(status=ApprovalStatus.PENDING).order_by("pk").first()
        return {"body": "\n".join(lines), "purpose": row.purpose, "settled": row.settled, "pending": pending}
