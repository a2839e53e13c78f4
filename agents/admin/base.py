"""What the pages of the control room share: who asks, how a page is put together, and rows that nobody edits."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.signing import BadSignature, TimestampSigner
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import action, display
from unfold.views import ChangeList

from agents.admin.display import cut, short_id, visible
from agents.conf import clock
from agents.people.access import belonging, row_view, rows_list
from audit.admin import BoundedPaginator, ListedAdmin

# Looks at rows: each by somebody other than the owner is on record, once; a page that refreshes itself is one look.


LASTS: Final = timedelta(minutes=30)
SIGNER: Final = TimestampSigner(salt="lqops.look")


def look(request: HttpRequest, by: User, *rows: Any) -> None:
    """Called wherever a page, or a download, shows what rows hold; several parts of one run are one look."""
    fresh = [row for row in rows if row is not None and not _is_same(request, row, by)]
    for row in {_name(belonging(row)[0] or row): row for row in fresh}.values():
        row_view(row=row, by=by, now=clock())


def look_token(by: User, *rows: Any) -> str:
    """Shows that this person's look at these rows is on record."""
    return SIGNER.sign(" ".join([f"by:{by.pk}", *map(_name, rows)]))


def _is_same(request: HttpRequest, row: Any, by: User) -> bool:
    try:
        known = SIGNER.unsign(request.GET.get("look", ""), max_age=LASTS).split()
    except BadSignature:
        return False
    return known[0] == f"by:{by.pk}" and _name(row) in known


def _name(row: Any) -> str:
    return f"{row._meta.label_lower}:{row.pk}"


CRUMB_CHARS = 80
ID_DIGITS = 19  # every id has fewer
Shown = TypeVar("Shown", bound=Callable[..., Any])


class Named(Protocol):
    """Gives a method what the list needs to know of it, and gives the method back."""

    def __call__(self, method: Shown, /) -> Shown: ...


def column(title: str, *, labels: Mapping[str, str] | bool | None = None, boolean: bool | None = None) -> Named:
    """A column of a list: what its heading says, and which of its words are coloured how."""

    def named(method: Shown) -> Shown:
        return cast("Shown", display(description=title, label=labels, boolean=boolean)(method))

    return named


def list_button(title: str, *, address: str, permission: str) -> Named:
    """A button above a list that leads to a page of its own."""

    def named(method: Shown) -> Shown:
        return cast("Shown", action(description=title, url_path=address, permissions=[permission])(method))

    return named


def person(request: HttpRequest) -> User:
    """Who asks. Every page is behind the sign-in of staff, so there is somebody."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


class RoomList(ChangeList):  # type: ignore[misc]
    """One page of a list. What its rows need is looked up for all of them at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.query and not self.has_active_filters:
            self.full_result_count = self.result_count
        rows = list(self.result_list)
        self.model_admin.prepare(rows)
        if self.model_admin.quotes:
            rows_list(rows, by=person(request), now=clock())


class RoomAdmin(ListedAdmin):
    """Base of every page: rows are written by services, so Django's own ways to write them are closed.

    A page that takes changes opens a way of its own: acts (agents/admin/actions.py) and forms (agents/admin/pages.py).
    """

    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50
    list_filter_sheet = True
    actions = None
    quotes: ClassVar[bool] = False  # the list tells what its rows hold, so that to have it is a look at them

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RoomList]:
        return RoomList

    @column("session")
    def of_session(self, row: Any) -> str:
        """The session of a row, short enough for a list; the whole id shows under the pointer."""
        if row.session is None:
            return "—"
        link = reverse("admin:agents_agentsession_change", args=[row.session_id])
        return format_html(
            '<a class="lq-link lq-code nowrap" href="{}" title="{}">{}</a>',
            link,
            row.session.chain,
            short_id(row.session),
        )

    def prepare(self, rows: list[Any]) -> None:
        """Puts on the rows of a page what its columns need beyond them, by a fixed number of statements."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def holds(self, request: HttpRequest, verb: str) -> bool:
        """Whether the person has the permission for the verb on this page's model."""
        return person(request).has_perm(f"{self.opts.app_label}.{verb}_{self.opts.model_name}")

    def found(self, request: HttpRequest, object_id: str) -> Any:
        """The row that the address names, if there is one and the person may see it."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Django's list of what was done with a row; it is headed by what the row says."""
        look(request, person(request), self.found(request, object_id))
        response: HttpResponse = super().history_view(request, object_id, extra_context)
        return response

    def page(
        self, request: HttpRequest, template: str, title: str, *, status: int = 200, **context: Any
    ) -> TemplateResponse:
        """A page of this model's rows. Those that it shows are looked at: `original`, and all in `shown_rows`."""
        request.current_app = self.admin_site.name
        look(request, person(request), context.get("original"), *context.pop("shown_rows", ()))
        if context.get("original") is not None:
            context["original"].crumb = visible(cut(title, CRUMB_CHARS))
        shown = {**self.admin_site.each_context(request), "title": title, "opts": self.opts, **context}
        return TemplateResponse(request, template, shown, status=status)
