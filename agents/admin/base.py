"""Base classes of the admin pages: a list and a page per row (DetailAdmin), or a form per row (FormAdmin).

Rows are written by the functions of their subject, so Django's own ways to write them are closed. A page never saves a
row itself and opens no transaction: a subject may write files before it writes rows.
"""

from collections.abc import Callable, Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.contrib.admin import site
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, ORDER_VAR, PAGE_VAR
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.signing import BadSignature, TimestampSigner
from django.db import models
from django.forms import BaseForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.views.decorators.cache import never_cache
from unfold.decorators import display

from agents.admin.actions import MAX_ROWS, ActionRequest, ActionResult, RowAction
from agents.admin.display import NOTHING, cut, exact_usd, moment, pretty, run_link, short_id, time_column, words
from agents.admin.forms import REFUSALS, StyledForm, StyledModelForm, add_refusal, error_text, seen_digest
from agents.ask.naming import id_range
from agents.conf import clock
from agents.exceptions import NotFound
from agents.models import AgentSession
from agents.models.fields import MicroUSDField
from agents.people.access import owned_row, record_list, record_row_view
from agents.people.saved_views import DELETE_PERMISSION, MAX_VIEWS, NAME_CHARS, view_delete, view_save, views_of
from agents.sessions.reads import newest
from agents.text.shown import visible
from audit.admin import BoundedList, ReadOnlyAdmin

CRUMB_CHARS: Final = 80
LONG_CHARS: Final = 120
MOST_NEWER: Final = 99
MOST_VIEWS: Final = 2 * MAX_VIEWS
ID_DIGITS: Final = 19  # every id has fewer
VIEW_LASTS: Final = timedelta(minutes=30)
SIGNER: Final = TimestampSigner(salt="lqops.look")


def current_user(request: HttpRequest) -> User:
    """The signed-in staff user."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def require_permission(request: HttpRequest, permission: str) -> User:
    user = current_user(request)
    if not user.has_perm(permission):
        raise PermissionDenied
    return user


def chosen_owner(request: HttpRequest, among: models.QuerySet[User] | None = None) -> User:
    """The active user, or one of the given, whose id is in the address; otherwise the signed-in user."""
    chosen = request.GET.get("owner", "")
    is_id = chosen.isdecimal() and len(chosen) < ID_DIGITS
    rows = User.objects.filter(is_active=True) if among is None else among
    return (rows.filter(pk=int(chosen)).first() if is_id else None) or current_user(request)


def site_page(
    request: HttpRequest, template: str, title: str, *, status: int = 200, **context: Any
) -> TemplateResponse:
    """A page of the admin site that belongs to no model."""
    request.current_app = site.name
    return TemplateResponse(request, template, {**site.each_context(request), "title": title, **context}, status=status)


def confirm_page(
    request: HttpRequest, title: str, form: BaseForm, *, back: str, description: str = "", danger: bool = False
) -> TemplateResponse:
    """The page of an act that is about no rows: what will happen, and the fields that it needs."""
    action = {"title": title, "danger": danger, "description": description}
    return site_page(request, "admin/confirm.html", title, form=form, action=action, back=back)


# --- Recording views: each view of another user's row is in the audit log once; a page that refreshes is one view ---


def record_view(request: HttpRequest, by: User, *rows: Any) -> None:
    """Record that a page or a download shows the content of rows; several parts of one run are one view."""
    fresh = [row for row in rows if row is not None and not _is_recorded(request, row, by)]
    for row in {_row_key(owned_row(row)[0] or row): row for row in fresh}.values():
        record_row_view(row=row, by=by, now=clock())


def view_token(by: User, *rows: Any) -> str:
    """Proof, for the next refresh of a page, that this user's view of these rows is recorded."""
    return SIGNER.sign(" ".join([f"by:{by.pk}", *map(_row_key, rows)]))


def _is_recorded(request: HttpRequest, row: Any, by: User) -> bool:
    try:
        known = SIGNER.unsign(request.GET.get("look", ""), max_age=VIEW_LASTS).split()
    except BadSignature:
        return False
    return known[0] == f"by:{by.pk}" and _row_key(row) in known


def _row_key(row: Any) -> str:
    return f"{row._meta.label_lower}:{row.pk}"


# --- Lists and pages of rows ---


def found_by(model: type[models.Model], term: str, *, ids: Sequence[str], names: Sequence[str]) -> models.Q:
    """Select rows by the beginning of an id, which an index serves, and by words among the newest rows."""
    found = newest(model) & models.Q(*((f"{name}__icontains", term) for name in names), _connector=models.Q.OR)
    if between := id_range(term):
        found |= models.Q(*((f"{name}__range", between) for name in ids), _connector=models.Q.OR)
    return found


class ViewForm(StyledForm):
    name = forms.CharField(max_length=NAME_CHARS, help_text="A view of yours with the same name is replaced.")
    shared = forms.BooleanField(
        required=False, label="Shared", help_text="Everybody who may view the list finds it. Off by default."
    )


def list_query(given: QueryDict) -> str:
    """The search, filters and sorting of a list, without what belongs to one visit: the page and messages."""
    kept = given.copy()
    for name in (PAGE_VAR, ERROR_FLAG, "look"):
        kept.pop(name, None)
    return kept.urlencode()


def number_in(request: HttpRequest, name: str) -> int:
    """A number that the address holds; 0 if it holds none."""
    return _number(request.GET.get(name, ""))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < ID_DIGITS else 0


class RowList(BoundedList):
    """One page of a list. What its rows need is looked up for all of them at once.

    A list that a person sorts by a column holds the newest rows only: no index serves the columns. Fields that hold a
    time are shown in one short form.
    """

    def __init__(
        self,
        request: HttpRequest,
        model: type[models.Model],
        columns: Sequence[Any],
        links: Sequence[Any] | None,
        *more: Any,
    ) -> None:
        times = {
            field.name: time_column(field) for field in model._meta.fields if isinstance(field, models.DateTimeField)
        }

        def with_times(names: Sequence[Any] | None) -> list[Any] | None:
            return None if names is None else [times.get(name, name) for name in names]

        super().__init__(request, model, with_times(columns), with_times(links), *more)
        self.sortable_by: Sequence[Any] | None = with_times(self.sortable_by)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> models.QuerySet[Any]:
        rows: models.QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows.filter(newest(self.model)) if ORDER_VAR in self.params else rows

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        if self.model_admin.is_live:
            latest = self.queryset.order_by("-pk").values_list("pk", flat=True).first() or 0
            self.newer_address = self.model_admin.newer_link(latest, request)
        self.model_admin.prepare_rows(rows)
        if self.model_admin.has_views:
            self.saved_views = self.model_admin.views_shown(request)
        if self.model_admin.list_shows_content:
            record_list(rows, by=current_user(request), now=clock())


class RowSelection(RowList):
    """The rows of a list as it is filtered and sorted, without a page of them: to count or to export."""

    def get_results(self, request: HttpRequest) -> None:
        self.result_count = self.full_result_count = 0
        self.result_list = self.queryset.none()
        self.can_show_all = self.multi_page = False


class DetailAdmin(ReadOnlyAdmin):
    """A list of rows, a read-only page for each, and row actions.

    The page shows the columns of the row; `exclude` leaves some out. A page of its own names a `change_form_template`
    and returns what it shows from `extra_context`, a `title` or other `facts` included.
    """

    exclude: ClassVar[Sequence[str] | None] = ("id",)
    empty_value_display = "—"  # plain: filters put it into attributes
    change_form_template: ClassVar[str | None] = "admin/detail.html"
    sortable_by: ClassVar[Sequence[str] | None] = ()
    ordering: ClassVar[Sequence[str]] = ("-id",)
    row_actions: ClassVar[tuple[RowAction, ...]] = ()
    row_views: ClassVar[tuple[str, ...]] = ()  # further addresses of a row: `export` is served by `export_view`
    list_shows_content: ClassVar[bool] = False  # opening the list is then a view of its rows
    has_views: ClassVar[bool] = False  # searches of the list can be saved under a name
    is_live: ClassVar[bool] = False  # the list says how many rows are newer than those that it shows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RowList]:
        return RowSelection if getattr(request, "only_selects", False) else RowList

    def selected_rows(self, request: HttpRequest) -> models.QuerySet[Any]:
        """The rows of the list as its address filters and sorts them."""
        request.only_selects = True  # type: ignore[attr-defined]
        rows: models.QuerySet[Any] = self.get_changelist_instance(request).queryset
        return rows

    def newer_link(self, latest: int, request: HttpRequest) -> str:
        address = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_newer", args=[latest])
        return f"{address}?{request.GET.urlencode()}"

    def newer_view(self, request: HttpRequest, pk: int) -> JsonResponse:
        """Count the rows of the list that are newer than this one, up to a limit. Open lists ask every few seconds."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self.selected_rows(request).filter(pk__gt=pk).order_by()
        return JsonResponse({"newer": rows[: MOST_NEWER + 1].count(), "most": MOST_NEWER})

    # --- Saved views ---

    def views_shown(self, request: HttpRequest) -> dict[str, Any]:
        """The views of the list, the one that is open marked, and links to save this one and to count their rows."""
        query = list_query(request.GET)
        prefix = f"admin:{self.opts.app_label}_{self.opts.model_name}"
        views = list(views_of(current_user(request), str(self.opts.model_name))[:MOST_VIEWS])
        return {
            "views": [(view, view.query == query) for view in views],
            "counts": reverse(f"{prefix}_view_counts"),
            "save": f"{reverse(f'{prefix}_views')}?{query}",
        }

    def view_counts_view(self, request: HttpRequest) -> JsonResponse:
        """Count the rows of each view, up to a limit. An open list asks for it once it is there."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        views = views_of(current_user(request), str(self.opts.model_name))[:MOST_VIEWS]
        return JsonResponse({str(view.pk): self._count_of(request, view.query) for view in views})

    def _count_of(self, request: HttpRequest, query: str) -> str:
        """How many rows a query finds, in words; empty if the list does not know its filters any more."""
        asked = copy(request)
        asked.GET = QueryDict(query)
        try:
            found = self.selected_rows(asked).order_by()[: MOST_NEWER + 1].count()
        except (IncorrectLookupParameters, SuspiciousOperation):
            return ""
        return str(found) if found <= MOST_NEWER else f"{MOST_NEWER}+"

    def views_view(self, request: HttpRequest) -> HttpResponse:
        """Save the search that the address holds under a name, or delete a view."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        by, name = current_user(request), str(self.opts.model_name)
        query = list_query(request.GET)
        if request.method == "POST" and "delete" in request.POST:
            view = get_object_or_404(views_of(by, name), pk=_number(request.POST["delete"]))
            try:
                view_delete(view=view, by=by, now=clock())
            except NotFound as error:
                raise Http404(str(error)) from error
            messages.success(request, f"View {view.name} deleted.")
            return HttpResponseRedirect(self.list_link())
        form = ViewForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                view = view_save(list_name=name, query=query, by=by, now=clock(), **form.cleaned_data)
            except REFUSALS as error:
                add_refusal(form, error)
            else:
                messages.success(request, f"View {view.name} saved.")
                return HttpResponseRedirect(f"{self.list_link()}?{query}")
        return site_page(
            request,
            "admin/saved_views.html",
            f"Views of {self.opts.verbose_name_plural}",
            form=form,
            counted=self._count_of(request, query),
            views=views_of(by, name),
            may_delete=by.has_perm(DELETE_PERMISSION),
            back=f"{self.list_link()}?{query}",
        )

    def prepare_rows(self, rows: list[Any]) -> None:
        """Put on the rows of a page what its columns need beyond them, by a fixed number of statements."""

    @display(description="run")
    def of_session(self, row: Any) -> str:
        """The run of a row by its short id."""
        return run_link(row.session, short_id(row.session), "lq-link lq-code nowrap") if row.session else NOTHING

    def has_model_permission(self, request: HttpRequest, verb: str) -> bool:
        return current_user(request).has_perm(f"{self.opts.app_label}.{verb}_{self.opts.model_name}")

    def get_row(self, request: HttpRequest, object_id: object) -> Any:
        """The row that the address names, if there is one and the user may view it."""
        row = self.get_object(request, str(object_id))
        if row is None:
            raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row

    def row_link(self, object_id: object) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[object_id])

    def list_link(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return further context for the page of a row."""
        return {}

    def change_view(self, request: HttpRequest, object_id: str, **_: Any) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        return self.detail_page(request, self.get_row(request, object_id))

    def detail_page(self, request: HttpRequest, row: Any, **context: Any) -> TemplateResponse:
        context = {**self.extra_context(request, row), **context}
        title = context.pop("title", str(row))
        row.crumb = _crumb(title)
        return self.render_page(
            request,
            str(self.change_form_template),
            title,
            original=row,
            **{"facts": partial(self._facts, row, current_user(request)), **context},
            buttons=self.buttons(request, row),
        )

    def _facts(self, row: models.Model, by: User) -> list[dict[str, Any]]:
        return [_fact(row, field, by) for field in row._meta.concrete_fields if field.name not in (self.exclude or ())]

    def render_page(
        self, request: HttpRequest, template: str, title: str, *, status: int = 200, **context: Any
    ) -> TemplateResponse:
        """A page of this model. The view of the rows that it shows is recorded: `original`, and all in `shown_rows`.

        The way to the page ends with the row, if this is the row's own page, else with the title.
        """
        row = context.get("original")
        record_view(request, current_user(request), row, *context.pop("shown_rows", ()))
        if not hasattr(row, "crumb"):
            name_page(request, title)
        if row is not None and not hasattr(row, "crumb"):
            row.crumb = _crumb(getattr(row, "purpose", "") or str(row))
        return site_page(request, template, title, status=status, opts=self.opts, **context)

    def history_view(self, request: HttpRequest, object_id: str, **_: Any) -> HttpResponse:
        """Django's history of a row; its heading shows the row."""
        record_view(request, current_user(request), self.get_row(request, object_id))
        response: HttpResponse = super().history_view(request, object_id)
        return response

    # --- Row actions ---

    def get_urls(self) -> list[URLPattern]:
        more = [self.url(f"<int:pk>/{name}/", name) for name in self.row_views]
        more += [self.url("newer/<int:pk>/", "newer")] if self.is_live else []
        more += [self.url("views/", "views"), self.url("views/counts/", "view_counts")] if self.has_views else []
        return [self.url("<path:object_id>/act/<slug:name>/", "act"), *more, *super().get_urls()]

    def url(self, address: str, name: str) -> Any:
        """An address that the method `<name>_view` serves."""
        view = self.admin_site.admin_view(never_cache(getattr(self, f"{name}_view")))
        return path(address, view, name=f"{self.opts.app_label}_{self.opts.model_name}_{name}")

    def may_run(self, request: HttpRequest, action: RowAction) -> bool:
        if action.permission:
            return current_user(request).has_perm(action.permission)
        return self.has_model_permission(request, "delete" if action.name == "delete" else "change")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The bulk actions, in the form in which Django's list expects them."""
        return {
            action.name: (_bulk_view(action), action.name, action.title)
            for action in self.row_actions
            if action.bulk and self.may_run(request, action)
        }

    def response_action(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> Any:
        if all(pk.isdecimal() and len(pk) < ID_DIGITS for pk in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            return super().response_action(request, queryset)
        messages.error(request, "Nothing was done: the selection names a row that cannot exist. Select rows again.")
        return None

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[RowAction, str]]:
        """The actions that the user may do to this row, with their links, for its page."""
        return [
            (action, self.action_link(row, action.name))
            for action in self.row_actions
            if self.may_run(request, action) and action.available(row)
        ]

    def action_link(self, row: Any, name: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_act", args=[row.pk, name])

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        action = next((action for action in self.row_actions if action.name == name), None)
        if action is None:
            raise Http404
        if not self.may_run(request, action):
            raise PermissionDenied
        back = self._list_shown(request) or self.row_link(object_id)
        return self.run_action(request, action, [self.get_row(request, object_id)], back=back)

    def _list_shown(self, request: HttpRequest) -> str:
        """The address of the list, as it was filtered, that a button of a row was pressed in; else empty."""
        if request.GET.get("from") != "list":
            return ""
        shown, listed = urlsplit(request.META.get("HTTP_REFERER", "")), self.list_link()
        return f"{listed}?{shown.query}" if shown.path == listed and shown.query else listed

    def run_action(
        self, request: HttpRequest, action: RowAction, rows: Sequence[Any], *, back: str, from_list: bool = False
    ) -> HttpResponse:
        """Show the confirm page; after its POST, run the action."""
        if conflict := action.conflict(rows):
            messages.error(request, conflict)
            return HttpResponseRedirect(back)
        by = current_user(request)
        confirmed = request.method == "POST" and "confirmed" in request.POST
        first, *others = [action.initial(row) for row in rows] or [{}]
        initial = {name: value for name, value in first.items() if all(other[name] == value for other in others)}
        form = action.form(request.POST if confirmed else None, by=by, rows=rows, initial=initial)
        if confirmed and form.is_valid():
            try:
                result = action.run(ActionRequest(by, rows, form.cleaned_data, clock(), request))
            except REFUSALS as error:
                form.add_error(None, error_text(error))
            else:
                if not from_list and self.get_object(request, str(rows[0].pk)) is None:
                    back = self.list_link()  # the row is gone
                return result if isinstance(result, HttpResponse) else self._redirect(request, result, back)
        listed = [(row, action.label(row), action.content(row)) for row in rows]
        return self.render_page(
            request,
            action.template,
            action.title,
            action=action,
            rows=rows,
            listed=listed,
            shown_rows=[row for row, _, content in listed if content or action.shows_content],
            form=form,
            back=back,
            from_list=from_list,
            selected=ACTION_CHECKBOX_NAME,
        )

    def _redirect(self, request: HttpRequest, result: ActionResult, back: str) -> HttpResponse:
        messages.success(request, result.message)
        for error in result.errors:
            messages.error(request, error)
        return HttpResponseRedirect(back)


def _bulk_view(action: RowAction) -> Callable[[DetailAdmin, HttpRequest, models.QuerySet[Any]], HttpResponse | None]:
    def run(page: DetailAdmin, request: HttpRequest, queryset: models.QuerySet[Any]) -> HttpResponse | None:
        rows = list(queryset[: MAX_ROWS + 1])
        if len(rows) > MAX_ROWS:
            messages.error(request, f"Select at most {MAX_ROWS} rows.")
            return None
        return page.run_action(request, action, rows, back=request.get_full_path(), from_list=True)

    return run


def name_page(request: HttpRequest, title: str) -> None:
    """Let the breadcrumbs of the page end with this title."""
    request.lqops_title = _crumb(title)  # type: ignore[attr-defined]  # read by templates


def _crumb(title: str) -> str:
    return visible(cut(title, CRUMB_CHARS))


def _fact(row: models.Model, field: Any, by: User) -> dict[str, Any]:
    """One column for reading: its name, its value as text, and a link for those who may follow it."""
    value = getattr(row, field.name)
    label = capfirst(field.verbose_name)
    if isinstance(value, AgentSession):
        return {"label": "Run", "text": value.chain, "link": page_link(value, by)}
    if isinstance(value, models.Model):
        return {"label": label, "text": visible(str(value)), "link": page_link(value, by)}
    text = _text(field, value)
    return {"label": label, "text": text, "long": len(text) > LONG_CHARS or "\n" in text}


def _text(field: Any, value: Any) -> str:
    if value is None or value == "":
        return "—"
    if isinstance(field, MicroUSDField):
        return exact_usd(value)
    if isinstance(field, models.JSONField):
        return pretty(value)
    if isinstance(value, datetime):
        return f"{moment(value)} UTC"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words(value) if field.choices else visible(str(value))


def page_link(row: models.Model, by: User) -> str:
    """Return the address of the page of a row, for those who may open it."""
    app, name = row._meta.app_label, row._meta.model_name
    return reverse(f"admin:{app}_{name}_change", args=[row.pk]) if by.has_perm(f"{app}.view_{name}") else ""


# --- Pages with a form ---


class FormAdmin(DetailAdmin):
    """A form to add and change rows by; `form` and `fieldsets` are Django's. `can_change` off: rows are only added.
    A `create` that cannot do all it was asked for adds the errors to the form, which is then shown again.

    Django's own form view cannot serve: it saves the row itself, inside a transaction, and has no place for a refusal.
    """

    form = StyledModelForm
    add_form_template = "admin/form.html"
    change_form_template = "admin/form.html"
    sortable_by: ClassVar[Sequence[str] | None] = None
    can_change: ClassVar[bool] = True
    save_label = "Save"

    @property
    def add_title(self) -> str:
        """The button that saves a new row, if it says more than that; else the kind of the row."""
        return f"Add {self.opts.verbose_name}" if self.save_label == FormAdmin.save_label else self.save_label

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_model_permission(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        deleted = getattr(obj, "deleted_at", None) is not None
        return self.can_change and not deleted and self.has_model_permission(request, "change")

    def create(self, request: HttpRequest, form: Any) -> Any:
        """Call the function that makes a row. Returns the row, or a whole response."""
        raise NotImplementedError

    def update(self, request: HttpRequest, row: Any, form: Any) -> Any:
        """Call the function that changes the row."""
        raise NotImplementedError

    def form_options(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return further arguments for the form."""
        return {}

    def build_form(self, request: HttpRequest, row: Any) -> Any:
        given = (request.POST, request.FILES) if request.method == "POST" else (None, None)
        options: dict[str, Any] = {"initial": {"owner": current_user(request).pk, **request.GET.dict()}}
        if row is not None:
            options = {"instance": self.model._meta.default_manager.get(pk=row.pk)}
        return self.form(*given, **options | self.form_options(request, row))

    def values_beside(self, row: Any) -> dict[str, Any]:
        """Return by name the values that the page of a row lets one change beside the fields of its form."""
        return {}

    def _seen_beside(self, row: Any) -> dict[str, str]:
        return {name: seen_digest(value) for name, value in self.values_beside(row).items()}

    def _refuse_if_changed_since(self, row: Any, form: Any) -> None:
        """Refuse to undo a change that was saved since this page was opened."""
        noted = form.noted()
        beside = [name for name, now in self._seen_beside(row).items() if noted.get(name, now) != now]
        form.refuse_if_overtaken([*form.changed_since(noted), *beside])

    def add_view(self, request: HttpRequest, **_: Any) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.form_page(request, None, may_save=True)

    def change_view(self, request: HttpRequest, object_id: str, **_: Any) -> HttpResponse:
        if not self.can_change:
            return super().change_view(request, object_id)
        row = self.get_row(request, object_id)
        return self.form_page(request, row, may_save=self.has_change_permission(request, row))

    def form_page(self, request: HttpRequest, row: Any, *, may_save: bool) -> HttpResponse:
        if request.method == "POST" and not may_save:
            raise PermissionDenied
        form = self.build_form(request, row)
        if request.method == "POST" and row is not None and form.is_valid():
            self._refuse_if_changed_since(row, form)
        if request.method == "POST" and form.is_valid():
            try:
                saved = self.create(request, form) if row is None else self.update(request, row, form)
            except REFUSALS as error:
                add_refusal(form, error)
            else:
                if form.is_valid():
                    return saved if isinstance(saved, HttpResponse) else self._saved(request, saved)
        return self.show_form(request, row, form, may_save=may_save)

    def show_form(
        self, request: HttpRequest, row: Any, form: Any, *, may_save: bool = True, **more: Any
    ) -> HttpResponse:
        """Render the page of a form, with further context."""
        if not may_save:
            for field in (field for one in (form, *form.row_forms) for field in one.fields.values()):
                field.disabled = True
        if row is not None:
            row.crumb = _crumb(str(row))
        return self.render_page(
            request,
            str(self.add_form_template if row is None else self.change_form_template),
            self.add_title if row is None else str(row),
            form=form,
            parts=_parts(form, self.fieldsets or ()),
            original=row,
            seen="" if row is None else form.seen_text(self._seen_beside(row)),
            may_save=may_save,
            save_label=self.save_label,
            buttons=[] if row is None else self.buttons(request, row),
            back=self.list_link(),
            **(self.add_context(request) if row is None else self.extra_context(request, row)),
            **more,
        )

    def add_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return further context for the page of a new row."""
        return {}

    def _saved(self, request: HttpRequest, row: Any) -> HttpResponse:
        kind = str(self.opts.verbose_name)
        name = kind if str(row) == kind else f"{kind} {row}"
        messages.success(request, f"{capfirst(name)} saved.")
        return HttpResponseRedirect(self.row_link(row.pk))


class NamedAdmin(FormAdmin):
    """Rows that people name: listed by name, found by name or owner."""

    list_select_related: ClassVar[Sequence[str]] = ["owner"]
    search_fields: ClassVar[Sequence[str]] = ["name", "owner__username"]
    ordering: ClassVar[Sequence[str]] = ["name", "id"]
    sortable_by: ClassVar[Sequence[str] | None] = ("name",)


def _parts(form: BaseForm, fieldsets: Any) -> list[dict[str, Any]]:
    """The form's fields under the headings of the fieldsets; fields that none names come first."""
    named = {name for _, options in fieldsets for name in options["fields"]}
    rest = [form[name] for name in form.fields if name not in named]
    parts: list[dict[str, Any]] = [{"title": "", "fields": rest}] if rest else []
    for title, options in fieldsets:
        fields = [form[name] for name in options["fields"] if name in form.fields]
        if fields:
            parts.append({"title": title, "description": options.get("description", ""), "fields": fields})
    return parts
