"""The box for requests in words. Common ones are answered at once, without a model; the rest is a session, or a draft
that somebody confirms here. What only looks is for everybody who may see runs; all else for those who may start them.
"""

from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, reason
from agents.admin.ask_tables import links_of, table_of
from agents.admin.base import person
from agents.admin.display import told, visible
from agents.admin.forms import DressedForm
from agents.ask.chats import MAX_CHARS
from agents.ask.entry import ask
from agents.ask.fast_paths import scope_of
from agents.ask.naming import Answer, Kind
from agents.conf import clock
from agents.enums import Mode
from agents.models import Agent, Trigger
from agents.people.access import START
from agents.roster.agents import agent_edit
from agents.triggers.triggers import trigger_edit

VIEW: Final = "agents.view_agentsession"
DRAFTED: Final[tuple[type[Trigger] | type[Agent], ...]] = (Trigger, Agent)


class AskForm(DressedForm):
    text = forms.CharField(
        label="Ask for something",
        max_length=MAX_CHARS,
        widget=forms.TextInput(attrs={"placeholder": "Which sessions are running?", "autocomplete": "off"}),
        help_text="In your own words. “help” lists what is answered at once; anything else goes to a model.",
    )


def may_ask(request: HttpRequest) -> bool:
    return person(request).has_perm(VIEW)


@never_cache
def ask_page(request: HttpRequest) -> HttpResponse:
    """The box; and, when something was asked, what came of it.

    What was done is told on another page: to load that one again does nothing twice.
    """
    by = person(request)
    if not may_ask(request):
        raise PermissionDenied
    form = AskForm(request.POST or None)
    if request.method != "POST":
        return _page(request, form, **_draft_to_confirm(request))
    if not form.is_valid():
        return _page(request, form, status=422)
    text = form.cleaned_data["text"]
    if scope_of(text, by) == "write" and not by.has_perm(START):
        form.add_error("text", "You may look, but not start or change anything: that is for operators.")
        return _page(request, form, status=403)
    try:
        answer = ask(text=text, by=by, now=clock())
    except REFUSALS as error:
        form.add_error("text", reason(error))
        return _page(request, form, status=getattr(error, "http_status", 422))
    if answer.changed or answer.kind != Kind.ANSWER:
        return HttpResponseRedirect(_done(request, answer))
    return _page(request, AskForm(), asked=text, **_shown(answer, request))


def _shown(answer: Answer, request: HttpRequest) -> dict[str, Any]:
    by = person(request)
    table = table_of(answer, by)
    head, _, rest = answer.text.partition("\n")
    return {
        "answer": answer,
        "head": head,
        "rest": "" if table else rest,
        "table": table,
        "links": links_of(answer, by),
    }


def _done(request: HttpRequest, answer: Answer) -> str:
    """Says what was done, and the address where to go on: the chat, the draft, or the box and a link to the session."""
    session = answer.session
    if session is not None and session.mode == Mode.CHAT:
        return reverse("admin:chat", args=[session.params["chat"]])
    shown = [(link.address, link.kind) for link in links_of(answer, person(request))]
    links = format_html_join(" ", '<a class="lq-link" href="{}">Open the {}</a>', shown)
    messages.success(request, format_html("{} {}", visible(told(answer.text)), links))
    draft = _draft(answer) if answer.kind == Kind.DRAFT else None
    return f"{reverse('admin:ask')}{f'?{urlencode(draft)}' if draft else ''}"


def _draft(answer: Answer) -> dict[str, Any] | None:
    """What is confirmed by one press."""
    kinds = [str(model._meta.model_name) for model in DRAFTED]
    return next(({"kind": kind, "id": answer.data[kind]} for kind in kinds if kind in answer.data), None)


def _draft_to_confirm(request: HttpRequest) -> dict[str, Any]:
    """The draft that the address names, while it is switched off."""
    if "kind" not in request.GET or not person(request).has_perm(START):
        return {}
    row, address = _drafted(request, request.GET)
    named = {"kind": row._meta.model_name, "id": row.public_id, "name": row.name, "address": address}
    return {} if row.enabled else {"draft": named}


@never_cache
def confirm(request: HttpRequest) -> HttpResponse:
    """Switches a draft on. Whether the person may is judged by the service, as on the draft's own page."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    by = person(request)
    if not by.has_perm(START):
        raise PermissionDenied
    draft, address = _drafted(request, request.POST)
    try:
        if isinstance(draft, Trigger):
            trigger_edit(trigger=draft, by=by, now=clock(), enabled=True)
        else:
            agent_edit(agent=draft, by=by, now=clock(), enabled=True)
    except REFUSALS as error:
        messages.error(request, reason(error))
    else:
        messages.success(request, f"{draft} is switched on.")
    return HttpResponseRedirect(address)


def _drafted(request: HttpRequest, said: QueryDict) -> tuple[Trigger | Agent, str]:
    """The person's own row that the form or the address names, and its page."""
    for model in DRAFTED:
        name = model._meta.model_name
        if said.get("kind") != name:
            continue
        try:
            public_id = UUID(said.get("id", ""))
        except ValueError:
            break
        own: QuerySet[Any] = QuerySet(model).filter(owner=person(request), public_id=public_id)
        row = own.filter(deleted_at__isnull=True).first() if model is Trigger else own.first()
        if row is not None:
            return row, reverse(f"admin:agents_{name}_change", args=[row.pk])
        break
    raise Http404("There is no such draft.")


def _page(request: HttpRequest, form: AskForm, *, status: int = 200, **context: Any) -> TemplateResponse:
    request.current_app = admin.site.name
    shown = {**admin.site.each_context(request), "title": "Ask", "form": form, **context}
    return TemplateResponse(request, "admin/ask.html", shown, status=status)
