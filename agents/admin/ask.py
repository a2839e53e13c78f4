"""The ask box and chats.

Common requests are answered at once, without a model; others start a run, or make a draft that the user confirms here.
Read-only requests are for everybody who may view runs, all others for those who may start them. Chats are private.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agents.admin.approvals import AnswerForm
from agents.admin.base import current_user, require_permission, site_page
from agents.admin.display import SHORT_ID, cut, moment, plain_sentence, run_color, run_text, status_text, usd, words
from agents.admin.forms import REFUSALS, OwnedChoices, StyledForm, error_text, usd_field
from agents.admin.sessions import CHANGE
from agents.ask.chats import MAX_CHARS
from agents.ask.entry import ask, send_message
from agents.ask.fast_paths import scope_of
from agents.ask.naming import KINDS as NAMED_KINDS
from agents.ask.naming import Answer, Kind
from agents.conf import clock
from agents.enums import Mode, Status
from agents.models import Agent, AgentSession, Approval, Precedent, Question, Trigger
from agents.people.access import START_PERMISSION
from agents.people.delegations import is_approver
from agents.roster.agents import agent_edit
from agents.sessions.reads import as_uuid
from agents.sessions.transcripts import Exchange, chats_of, conversations, exchanges, without_calls, written_so_far
from agents.text.shown import visible
from agents.triggers.triggers import trigger_edit

# --- Answers: a table of the rows found, links to the rows named ---


KINDS: Final[dict[str, type[models.Model]]] = {
    "session": AgentSession,
    **NAMED_KINDS,
    "approval": Approval,
    "precedent": Precedent,
    "question": Question,
}
HIDDEN: Final = frozenset({"id", "arguments", "digest", "repeat"})


def table_of(answer: Answer, by: User) -> dict[str, Any] | None:
    """Headings and rows of the answer, if it has any, each row with a link for users who may view it."""
    for name, found in answer.data.items():
        if isinstance(found, list) and found and all(isinstance(row, Mapping) for row in found):
            return _table(name.removesuffix("s"), found, by)
    return None


def links_of(answer: Answer, by: User) -> list[tuple[str, str]]:
    """The addresses of the single rows that the answer names, each with its kind."""
    links = []
    for kind in KINDS:
        named = answer.data.get(kind)
        public_id = named.get("id") if isinstance(named, Mapping) else named
        found = _addresses(kind, [str(public_id)], by) if isinstance(public_id, str) else {}
        links += [(address, kind) for address in found.values()]
    return links


def _table(kind: str, found: list[Any], by: User) -> dict[str, Any]:
    names = [name for name in found[0] if name not in HIDDEN]
    links: dict[str, str] = {}
    for one in {row.get("kind", kind) for row in found} & KINDS.keys() or {kind} & KINDS.keys():
        links |= _addresses(one, [str(row["id"]) for row in found if "id" in row], by)
    rows = [
        {
            "link": links.get(str(row.get("id")), ""),
            "name": str(row.get("id", ""))[:SHORT_ID],
            "cells": [_cell(name, row.get(name)) for name in names],
        }
        for row in found
    ]
    return {"heads": [words(name.removesuffix("_usd").removesuffix("_at")) for name in names], "rows": rows}


def _addresses(kind: str, public_ids: list[str], by: User) -> dict[str, str]:
    model = KINDS[kind]
    app, name = model._meta.app_label, model._meta.model_name
    if not by.has_perm(f"{app}.view_{name}"):
        return {}
    rows: models.QuerySet[Any] = models.QuerySet(model).filter(public_id__in=public_ids)
    pks = rows.values_list("public_id", "pk")
    return {str(public_id): reverse(f"admin:{app}_{name}_change", args=[pk]) for public_id, pk in pks}


def _cell(name: str, value: Any) -> str:
    """A cell, with amounts and times as on every page."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool):
        return "on" if value else "off"
    if name.endswith("_usd"):
        return usd(Decimal(value))
    if name.endswith("_at"):
        return moment(datetime.fromisoformat(value))
    return words(value) if name in {"status", "terminal_reason"} else visible(str(value))


# --- The ask box ---


VIEW: Final = "agents.view_agentsession"
DRAFTED: Final = ("trigger", "agent")


class AskForm(StyledForm):
    text = forms.CharField(
        label="Ask",
        max_length=MAX_CHARS,
        widget=forms.TextInput(attrs={"placeholder": "Which runs are active?", "autocomplete": "off"}),
        help_text="In your own words. “help” lists the requests that are answered at once; others go to a model.",
    )


def may_ask(request: HttpRequest) -> bool:
    return current_user(request).has_perm(VIEW)


@never_cache
def ask_page(request: HttpRequest) -> HttpResponse:
    """The ask box and the answer. A change redirects, so that reloading the page repeats nothing."""
    by = require_permission(request, VIEW)
    form = AskForm(request.POST or None)
    if request.method != "POST":
        return _ask_page(request, form, **_draft_to_confirm(request))
    if not form.is_valid():
        return _ask_page(request, form, status=422)
    text = form.cleaned_data["text"]
    if scope_of(text, by) == "write" and not by.has_perm(START_PERMISSION):
        form.add_error("text", "You can view runs, but only operators can start or change something.")
        return _ask_page(request, form, status=403)
    try:
        answer = ask(text=text, by=by, now=clock())
    except REFUSALS as error:
        form.add_error("text", error_text(error))
        return _ask_page(request, form, status=getattr(error, "http_status", 422))
    if answer.changed or answer.kind != Kind.ANSWER:
        return HttpResponseRedirect(_done(request, answer))
    return _ask_page(request, AskForm(), asked=text, **_answer_context(answer, request))


def _answer_context(answer: Answer, request: HttpRequest) -> dict[str, Any]:
    by = current_user(request)
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
    """Queue a message about what was done; return the address of the chat, the draft or the ask box."""
    session = answer.session
    if session is not None and session.mode == Mode.CHAT:
        return reverse("admin:chat", args=[session.params["chat"]])
    named = links_of(answer, current_user(request))
    links = format_html_join(" ", '<a class="lq-link" href="{}">Open {}</a>', named)
    messages.success(request, format_html("{} {}", visible(plain_sentence(answer.text)), links))
    draft = _draft(answer) if answer.kind == Kind.DRAFT else None
    return f"{reverse('admin:ask')}{f'?{urlencode(draft)}' if draft else ''}"


def _draft(answer: Answer) -> dict[str, Any] | None:
    """The draft of the answer, as the parameters of its confirm button."""
    return next(({"kind": kind, "id": answer.data[kind]} for kind in DRAFTED if kind in answer.data), None)


def _draft_to_confirm(request: HttpRequest) -> dict[str, Any]:
    """The draft that the address names, while it is disabled."""
    if "kind" not in request.GET or not current_user(request).has_perm(START_PERMISSION):
        return {}
    row, address = _drafted(request, request.GET)
    named = {"kind": row._meta.model_name, "id": row.public_id, "name": row.name, "address": address}
    return {} if row.enabled else {"draft": named}


@never_cache
@require_POST
def confirm(request: HttpRequest) -> HttpResponse:
    """Enable a draft. Its subject checks the permission, as on the draft's own page."""
    by = require_permission(request, START_PERMISSION)
    draft, address = _drafted(request, request.POST)
    try:
        if isinstance(draft, Trigger):
            trigger_edit(trigger=draft, by=by, now=clock(), enabled=True)
        else:
            agent_edit(agent=draft, by=by, now=clock(), enabled=True)
    except REFUSALS as error:
        messages.error(request, error_text(error))
    else:
        messages.success(request, f"{draft} enabled.")
    return HttpResponseRedirect(address)


def _drafted(request: HttpRequest, params: QueryDict) -> tuple[Trigger | Agent, str]:
    """The user's own row that the form or the address names, and its page."""
    kind, public_id = params.get("kind"), as_uuid(params.get("id"))
    if kind not in DRAFTED or public_id is None:
        raise Http404("There is no such draft.")
    own: QuerySet[Any] = QuerySet(KINDS[kind]).filter(owner=current_user(request), public_id=public_id)
    row = get_object_or_404(own.filter(deleted_at__isnull=True) if kind == "trigger" else own)
    return row, reverse(f"admin:agents_{kind}_change", args=[row.pk])


def _ask_page(request: HttpRequest, form: AskForm, **context: Any) -> TemplateResponse:
    return site_page(request, "admin/ask.html", "Ask", form=form, **context)


# --- Chats: the user's own. Each message is a run with a cap and a receipt ---


SAY: Final = "agents.add_agentsession"
ON_A_PAGE = 30
REFRESH_SECONDS = 4


class MessageForm(StyledForm):
    message = forms.CharField(max_length=MAX_CHARS, widget=forms.Textarea(attrs={"rows": 3, "placeholder": "Message"}))


class FirstMessageForm(OwnedChoices, MessageForm):
    """The first message also chooses one of the user's own agents."""

    agent = forms.ModelChoiceField(
        Agent.objects.none(),
        required=False,
        empty_label="Assistant without an agent",
        help_text="The agent that answers.",
    )
    max_cost_usd = usd_field(
        label="Cap (USD)", required=False, help_text="Maximum cost of the answer. Empty: the installation's default."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents: Any = self.fields["agent"]
        agents.queryset = agents.queryset.filter(enabled=True)


@never_cache
def chats_page(request: HttpRequest) -> HttpResponse:
    """The list of chats, newest first, and the form of a new one."""
    by = require_permission(request, VIEW)
    form = FirstMessageForm(request.POST or None, initial=request.GET.dict(), owner=by)
    if request.method == "POST" and (answered := _send(request, form)):
        return answered
    numbered = Paginator(chats_of(by.pk), ON_A_PAGE).get_page(request.GET.get("p"))
    rows = [
        {"chat": chat, "status": run_text(chat.last), "color": run_color(chat.last)} for chat in conversations(numbered)
    ]
    return _chat_page(
        request, "admin/chats.html", "Chats", rows=rows, numbered=numbered, form=form, may_say=by.has_perm(SAY)
    )


@never_cache
def chat_page(request: HttpRequest, chat: UUID) -> HttpResponse:
    """One chat and the form of its next message."""
    by = require_permission(request, VIEW)
    messages_, left_out = exchanges(by.pk, chat)
    if not messages_:
        raise Http404(f"There is no chat {chat}.")
    last = messages_[-1]
    form = MessageForm(request.POST or None)
    if request.method == "POST" and (answered := _send(request, form, chat=chat)):
        return answered
    return _chat_page(
        request,
        "admin/chat.html",
        visible(cut(messages_[0].message, 80)),
        exchanges=[_exchange_context(exchange) for exchange in messages_],
        left_out=left_out,
        agent=last.session.agent,
        every=REFRESH_SECONDS if any(exchange.is_open for exchange in messages_) else None,
        form=form,
        answer_form=AnswerForm(),
        may_say=by.has_perm(SAY),
        may_halt=by.has_perm(CHANGE),
        may_decide=is_approver(by, clock()),
        back=reverse("admin:chats"),
    )


def _exchange_context(exchange: Exchange) -> dict[str, Any]:
    text, after = written_so_far(exchange.session) if exchange.is_open else ("", 0)
    return {
        "exchange": exchange,
        "session": exchange.session,
        "status": status_text(exchange.session),
        "color": run_color(exchange.session),
        "text": text,
        "shown": without_calls(text),
        "answer": without_calls(exchange.answer).strip() or exchange.answer,
        "after": after,
        "listens": exchange.session.status in {Status.QUEUED, Status.RUNNING},
    }


def _send(request: HttpRequest, form: MessageForm, *, chat: UUID | None = None) -> HttpResponse | None:
    """Send the message. None if it was refused: the form has the error."""
    by = require_permission(request, SAY)
    if not form.is_valid():
        return None
    given = {name: form.cleaned_data[name] for name in ("agent", "max_cost_usd") if name in form.cleaned_data}
    try:
        session = send_message(text=form.cleaned_data["message"], by=by, now=clock(), chat=chat, **given)
    except REFUSALS as error:
        form.add_error(None, error_text(error))
        return None
    return HttpResponseRedirect(f"{reverse('admin:chat', args=[session.params['chat']])}#say")


def _chat_page(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    return site_page(request, template, title, status=422 if context["form"].is_bound else 200, **context)
