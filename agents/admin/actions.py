"""Acts: what people do to rows, by a page that says what will happen, asks for what it needs, and calls one service.

The same act is offered in the list, for several rows, and on the row's own page. Nothing happens on a GET.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache

from agents.admin.base import RoomAdmin, person
from agents.admin.forms import ActForm
from agents.conf import clock
from agents.exceptions import Invalid, LqopsError

MOST_ROWS: Final = 500
REFUSALS: Final = (LqopsError, ValidationError, ValueError)


@dataclass(frozen=True)
class Asked:
    """What a person has asked for and confirmed."""

    by: User
    rows: Sequence[Any]
    given: dict[str, Any]
    now: datetime
    request: HttpRequest


@dataclass(frozen=True)
class Told:
    """What came of it. A text that was made by format_html may hold links."""

    text: str
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Act:
    """`run` calls the service; `fits` says for which row the act makes sense; `many` offers it in the list; `against`
    says why it cannot be done to these rows together, or nothing; `shows` are the words of a row that the act is about,
    and `named` is what the row is called; `reveals` says that the page shows rows in a way of its own."""

    name: str
    title: str
    permission: str
    run: Callable[[Asked], Told | HttpResponse]
    form: type[ActForm] = ActForm
    explained: str = ""
    grave: bool = False
    many: bool = True
    fits: Callable[[Any], bool] = field(default=lambda row: True)
    against: Callable[[Sequence[Any]], str] = field(default=lambda rows: "")
    named: Callable[[Any], str] = str
    shows: Callable[[Any], str] = field(default=lambda row: "")
    template: str = "admin/act.html"
    reveals: bool = False


def each(asked: Asked, do: Callable[[Any], object], done: str) -> Told:
    """Does it to each row; one that is refused does not keep the others from it."""
    refused = []
    for row in asked.rows:
        try:
            do(row)
        except REFUSALS as error:
            refused.append(f"{row}: {reason(error)}")
    if refused and len(refused) == len(asked.rows):
        raise Invalid(" ".join(refused))
    return Told(f"{len(asked.rows) - len(refused)} {done}.", tuple(refused))


def reason(error: Exception) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


class ActingAdmin(RoomAdmin):
    """A page with acts."""

    acts: ClassVar[tuple[Act, ...]] = ()

    def may(self, request: HttpRequest, act: Act) -> bool:
        return person(request).has_perm(act.permission)

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        view = self.admin_site.admin_view(never_cache(self.act_view))
        return [path("<path:object_id>/act/<slug:act_name>/", view, name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {
            act.name: (_from_list(act), act.name, act.title) for act in self.acts if act.many and self.may(request, act)
        }

    def buttons(self, request: HttpRequest, row: Model) -> list[dict[str, Any]]:
        """The acts that the person may do to this row, for its page."""
        return [
            {"title": act.title, "grave": act.grave, "link": self.act_link(row, act.name), "name": act.name}
            for act in self.acts
            if self.may(request, act) and act.fits(row)
        ]

    def act_link(self, row: Model, name: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_act", args=[row.pk, name])

    def act_view(self, request: HttpRequest, object_id: str, act_name: str) -> HttpResponse:
        act = next((act for act in self.acts if act.name == act_name), None)
        if act is None:
            raise Http404
        if not self.may(request, act):
            raise PermissionDenied
        return self.carry_out(request, act, [self.found(request, object_id)], back=self.row_link(object_id))

    def row_link(self, object_id: object) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])

    def list_link(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def carry_out(
        self, request: HttpRequest, act: Act, rows: Sequence[Any], *, back: str, from_list: bool = False
    ) -> HttpResponse:
        if fault := act.against(rows):
            messages.error(request, fault)
            return HttpResponseRedirect(back)
        by = person(request)
        confirmed = request.method == "POST" and "confirmed" in request.POST
        form = act.form(request.POST if confirmed else None, by=by, rows=rows)
        if confirmed and form.is_valid():
            try:
                told = act.run(Asked(by, rows, form.cleaned_data, clock(), request))
            except REFUSALS as error:
                form.add_error(None, reason(error))
            else:
                return told if isinstance(told, HttpResponse) else self._tell(request, told, back)
        listed = [(row, act.named(row), act.shows(row)) for row in rows]
        return self.page(
            request,
            act.template,
            act.title,
            act=act,
            rows=rows,
            listed=listed,
            shown_rows=[row for row, _, said in listed if said or act.reveals],
            form=form,
            back=back,
            from_list=from_list,
            selected=ACTION_CHECKBOX_NAME,
        )

    def _tell(self, request: HttpRequest, told: Told, back: str) -> HttpResponse:
        messages.success(request, told.text)
        for refusal in told.refused:
            messages.error(request, refusal)
        return HttpResponseRedirect(back)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Django's address for deleting leads to the act of that name, where there is one."""
        return self.act_view(request, object_id, "delete")


def _from_list(act: Act) -> Callable[[ActingAdmin, HttpRequest, QuerySet[Model]], HttpResponse | None]:
    def chosen(page: ActingAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
        rows = list(queryset[: MOST_ROWS + 1])
        if len(rows) > MOST_ROWS:
            messages.error(request, f"At most {MOST_ROWS} rows at a time; choose fewer.")
            return None
        return page.carry_out(request, act, rows, back=request.get_full_path(), from_list=True)

    return chosen
