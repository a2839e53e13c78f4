"""The ask box, the console and chats.

Common requests are answered at once, without a model; questions go to the console, which answers in a chat of its own.
Nothing is changed by asking: what somebody wants changed gets a button, which `confirm` takes. Chats are private.
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
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from agents.admin.approvals import AnswerForm
from agents.admin.base import current_user, number_in, require_permission, site_page
from agents.admin.display import SHORT_ID, cut, moment, plain_sentence, run_color, run_text, status_text, usd, words
from agents.admin.forms import REFUSALS, OwnedChoices, StyledForm, error_text, usd_field
from agents.admin.sessions import CHANGE
from agents.ask.chats import MAX_CHARS, Way
from agents.ask.console import REFERENCE, Link, links_for, proposals_for, proposals_of
from agents.ask.console import links_of as rows_of_answer
from agents.ask.entry import EMERGENCY, ask, send_message
from agents.ask.naming import KINDS as NAMED_KINDS
from agents.ask.naming import Answer
from agents.ask.proposals import confirm as confirm_proposal
from agents.conf import clock, manual_folder
from agents.enums import Status
from agents.models import Agent, AgentSession, Approval, Precedent, Question
from agents.people.delegations import is_approver
from agents.sessions.reads import as_uuid
from agents.sessions.transcripts import (
    MOST_COUNTED_CHATS,
    Exchange,
    chats_counted,
    chats_of,
    conversations,
    exchanges,
    without_calls,
    written_so_far,
)
from agents.text.manual import page
from agents.text.shown import visible

# --- Answers: a table of the rows found, links to the rows named, buttons ---


KINDS: Final[dict[str, type[models.Model]]] = {
    "session": AgentSession,
    **NAMED_KINDS,
    "approval": Approval,
    "precedent": Precedent,
    "question": Question,
}
HIDDEN: Final = frozenset({"id", "arguments", "digest"})
RESULTS: Final = "results"


def table_of(answer: Answer, by: User) -> dict[str, Any] | None:
    """Headings and rows of the answer, if it has any, each row with a link for users who may view it."""
    for name, found in answer.data.items():
        if name != RESULTS and isinstance(found, list) and found and all(isinstance(row, Mapping) for row in found):
            return _table(name.removesuffix("s"), found, by)
    return None


def links_of(data: Mapping[str, Any], by: User) -> list[tuple[str, str]]:
    """The addresses of the single rows that an answer names, each with its kind."""
    links = []
    for kind in KINDS:
        named = data.get(kind)
        public_id = named.get("id") if isinstance(named, Mapping) else named
        found = _addresses(kind, [str(public_id)], by) if isinstance(public_id, str) else {}
        links += [(address, kind) for address in found.values()]
    return links


def _table(kind: str, found: list[Any], by: User) -> dict[str, Any]:
    names = [name for name in found[0] if name not in HIDDEN]
    links: dict[str, str] = {}
    for one in {row.get("kind", kind) for row in found} & KINDS.keys() or {kind} & KINDS.keys():
        links |= _addresses(one, [str(row["id"]) for row in found if row.get("id")], by)
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


# --- Links to rows in an answer of the console ---


def address_of(link: Link, by: User) -> str:
    """The page of a row; of a sensor its agent's, of an event without its own page its run's. Empty: none for them."""
    if link.row is None:
        page, _, anchor = link.ref.partition(":")[2].partition("#")
        return f"{reverse('admin:manual', args=[page])}#{anchor}"
    row = link.row.agent if link.kind == "sensor" else link.row
    if link.kind == "event" and not by.has_perm("audit.view_auditevent"):
        row = AgentSession.objects.filter(owner=by, public_id=as_uuid(link.row.chain) or UUID(int=0)).first()
    if row is None:
        return ""
    app, name = row._meta.app_label, row._meta.model_name
    return reverse(f"admin:{app}_{name}_change", args=[row.pk]) if by.has_perm(f"{app}.view_{name}") else ""


def linked(links: list[Link], by: User) -> list[dict[str, str]]:
    return [{"kind": link.kind, "name": visible(link.name), "address": address_of(link, by)} for link in links]


def answer_with_links(text: str, links: list[Link], by: User) -> str:
    """The text of a model, escaped, with a link in the place of each reference to a row that lqops found."""
    known = {link.ref: link for link in links}
    parts: list[str] = []
    end = 0
    for match in REFERENCE.finditer(text):
        link = known.get(match[0])
        address = address_of(link, by) if link else ""
        if link and address:
            name = visible(cut(link.name, 60))
            parts += [visible(text[end : match.start()]), _anchor(address, f"{link.kind}: {name}")]
            end = match.end()
    return format_html_join("", "{}", ((part,) for part in (*parts, visible(text[end:]))))


def _anchor(address: str, name: str) -> str:
    return format_html('<a class="lq-link" href="{}">{}</a>', address, name)


# --- The ask box ---


VIEW: Final = "agents.view_agentsession"


class AskForm(StyledForm):
    text = forms.CharField(
        label="Ask",
        max_length=MAX_CHARS,
        widget=forms.TextInput(attrs={"placeholder": "Which runs failed last night?", "autocomplete": "off"}),
        help_text="In your own words. Nothing is changed by asking. “help” lists what is answered without a model.",
    )


def may_ask(request: HttpRequest) -> bool:
    return current_user(request).has_perm(VIEW)


@never_cache
def ask_page(request: HttpRequest) -> HttpResponse:
    """The ask box and the answer. A question to the console's model leads to its chat."""
    by = require_permission(request, VIEW)
    form = AskForm(request.POST or None)
    if request.method != "POST":
        return _ask_page(request, form)
    if not form.is_valid():
        return _ask_page(request, form, status=422)
    text = form.cleaned_data["text"]
    try:
        answer = ask(text=text, by=by, now=clock())
    except REFUSALS as error:
        form.add_error("text", error_text(error))
        return _ask_page(request, form, status=getattr(error, "http_status", 422))
    if answer.session is not None:
        return HttpResponseRedirect(reverse("admin:chat", args=[answer.session.params["chat"]]))
    return _ask_page(request, AskForm(), asked=text, **_answer_context(answer, by))


def _answer_context(answer: Answer, by: User) -> dict[str, Any]:
    table = table_of(answer, by)
    refs = [row["ref"] for row in answer.data.get(RESULTS, [])]
    head, _, rest = answer.text.partition("\n")
    return {
        "answer": answer,
        "head": head,
        "rest": "" if table or RESULTS in answer.data else rest,
        "table": table,
        "links": links_of(answer.data, by),
        "results": linked(list(links_for(refs, by)), by),
        "proposals": proposals_for([("", one) for one in answer.wanted], by),
        "emergency": answer.path == EMERGENCY,
    }


@never_cache
@require_POST
def confirm(request: HttpRequest) -> HttpResponse:
    """Do what a button says, if nothing that was shown has changed. Each action checks the permission again."""
    by = require_permission(request, VIEW)
    back = request.POST.get("chat", "")
    try:
        done = confirm_proposal(request.POST.get("token", ""), by=by, now=clock())
    except REFUSALS as error:
        messages.error(request, visible(error_text(error)))
    else:
        links = format_html_join(" ", '<a class="lq-link" href="{}">Open {}</a>', links_of(done.data, by))
        messages.success(request, format_html("{} {}", visible(plain_sentence(done.text)), links))
    chat = as_uuid(back)
    return HttpResponseRedirect(reverse("admin:chat", args=[chat]) if chat else reverse("admin:ask"))


def _ask_page(request: HttpRequest, form: AskForm, **context: Any) -> TemplateResponse:
    return site_page(request, "admin/ask.html", "Ask", form=form, **context)


def manual_page(request: HttpRequest, name: str) -> HttpResponse:
    """One page of the documentation, as text, with its sections."""
    require_permission(request, VIEW)
    sections = page(manual_folder(), name)
    if not sections:
        raise Http404(f"There is no page {name}.")
    return site_page(request, "admin/manual.html", sections[0].title, sections=sections)


# --- Chats: the user's own. Each message is a run with a cap and a receipt ---


SAY: Final = "agents.add_agentsession"
ON_A_PAGE = 30
LAST_PAGE: Final = 100_000
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


class ChatPaginator(Paginator):  # type: ignore[type-arg]  # Django's class takes no arguments in brackets
    """Counts chats up to a limit beyond the page that is asked for, so that all of them can be reached."""

    def __init__(self, owner_id: int, *, asked_for: int) -> None:
        super().__init__(chats_of(owner_id), ON_A_PAGE)
        self._owner_id = owner_id
        self._most = min(asked_for, LAST_PAGE) * ON_A_PAGE + MOST_COUNTED_CHATS

    @cached_property
    def count(self) -> int:
        return chats_counted(self._owner_id, self._most)

    @property
    def is_counted_to_the_end(self) -> bool:
        """Otherwise the number of pages is that of the limit, and grows with the page that is asked for."""
        return self.count < self._most


@never_cache
def chats_page(request: HttpRequest) -> HttpResponse:
    """The list of chats, newest first, and the form of a new one."""
    by = require_permission(request, VIEW)
    form = FirstMessageForm(request.POST or None, initial=request.GET.dict(), owner=by)
    if request.method == "POST" and (answered := _send(request, form)):
        return answered
    numbered = ChatPaginator(by.pk, asked_for=number_in(request, "p")).get_page(request.GET.get("p"))
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
        exchanges=[_exchange_context(exchange, by) for exchange in messages_],
        is_console=messages_[0].session.params.get("way") == Way.CONSOLE,
        chat=chat,
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


def _exchange_context(exchange: Exchange, by: User) -> dict[str, Any]:
    text, after = written_so_far(exchange.session) if exchange.is_open else ("", 0)
    answer = without_calls(exchange.answer).strip() or exchange.answer
    is_answered = bool(answer) and exchange.session.params.get("way") == Way.CONSOLE
    links = rows_of_answer(exchange.session, answer, by) if is_answered else []
    return {
        "answer": answer_with_links(answer, links, by) if is_answered else visible(answer),
        "links": linked(links, by),
        "proposals": [] if exchange.is_open else proposals_of(exchange.session, by),
        "exchange": exchange,
        "session": exchange.session,
        "status": status_text(exchange.session),
        "color": run_color(exchange.session),
        "text": text,
        "shown": without_calls(text),
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
