"""Conversations with agents: a person's own, and nobody else's. Each message is a session with a cap and a receipt."""

from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from agents.admin.actions import REFUSALS, reason
from agents.admin.base import person
from agents.admin.display import cut, visible
from agents.admin.forms import DressedForm, usd_field
from agents.admin.looks import STATUS_LOOKS
from agents.admin.owned import OwnedChoices
from agents.admin.questions import AnswerForm
from agents.admin.sessions import CHANGE, standing_words
from agents.ask.chats import MAX_CHARS
from agents.ask.entry import say
from agents.conf import clock
from agents.enums import Status
from agents.models import Agent
from agents.sessions.standing import PERMISSION as DECIDE
from agents.sessions.transcripts import Exchange, chats_of, conversations, exchanges, without_calls, written_so_far

VIEW: Final = "agents.view_agentsession"
SAY: Final = "agents.add_agentsession"
ON_A_PAGE = 30
REFRESH_SECONDS = 4


class MessageForm(DressedForm):
    message = forms.CharField(
        max_length=MAX_CHARS, widget=forms.Textarea(attrs={"rows": 3, "placeholder": "Say something"})
    )


class FirstMessageForm(OwnedChoices, MessageForm):
    """The first message says to whom one speaks. The choices are the person's own agents."""

    agent = forms.ModelChoiceField(
        Agent.objects.none(), required=False, empty_label="an assistant without a name", help_text="Who is to answer."
    )
    max_cost_usd = usd_field(
        label="Cap (USD)", required=False, help_text="What the answer may cost. Empty: the installation's default."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents: Any = self.fields["agent"]
        agents.queryset = agents.queryset.filter(enabled=True)


@never_cache
def chats_page(request: HttpRequest) -> HttpResponse:
    """The list, newest first, and the beginning of another."""
    by = _demand(request, VIEW)
    form = FirstMessageForm(request.POST or None, initial=request.GET.dict(), owner=by)
    if request.method == "POST" and (answered := _say(request, form)):
        return answered
    numbered = Paginator(chats_of(by.pk), ON_A_PAGE).get_page(request.GET.get("p"))
    rows = [
        {"chat": chat, "standing": standing_words(chat.last), "look": STATUS_LOOKS.get(chat.last.status, "")}
        for chat in conversations(numbered)
    ]
    return _page(
        request, "admin/chats.html", "Chats", rows=rows, numbered=numbered, form=form, may_say=by.has_perm(SAY)
    )


@never_cache
def chat_page(request: HttpRequest, chat: UUID) -> HttpResponse:
    """One conversation, and the next message in it."""
    by = _demand(request, VIEW)
    said, left_out = exchanges(by.pk, chat)
    if not said:
        raise Http404(f"There is no chat {chat}.")
    last = said[-1]
    form = MessageForm(request.POST or None)
    if request.method == "POST" and (answered := _say(request, form, chat=chat)):
        return answered
    return _page(
        request,
        "admin/chat.html",
        visible(cut(said[0].message, 80)),
        said=[_shown(exchange) for exchange in said],
        left_out=left_out,
        agent=last.session.agent,
        every=REFRESH_SECONDS if any(exchange.is_open for exchange in said) else None,
        form=form,
        answer_form=AnswerForm(),
        may_say=by.has_perm(SAY),
        may_halt=by.has_perm(CHANGE),
        may_decide=by.has_perm(DECIDE),
        back=reverse("admin:chats"),
    )


def _shown(exchange: Exchange) -> dict[str, Any]:
    text, after = written_so_far(exchange.session) if exchange.is_open else ("", 0)
    return {
        "exchange": exchange,
        "session": exchange.session,
        "standing": standing_words(exchange.session),
        "look": STATUS_LOOKS.get(exchange.session.status, ""),
        "text": text,
        "shown": without_calls(text),
        "answer": without_calls(exchange.answer).strip() or exchange.answer,
        "after": after,
        "listens": exchange.session.status in {Status.QUEUED, Status.RUNNING},
    }


def _say(request: HttpRequest, form: MessageForm, *, chat: UUID | None = None) -> HttpResponse | None:
    """Sends the message; None when it was refused, and the form says why."""
    by = _demand(request, SAY)
    if not form.is_valid():
        return None
    given = {name: form.cleaned_data[name] for name in ("agent", "max_cost_usd") if name in form.cleaned_data}
    try:
        session = say(text=form.cleaned_data["message"], by=by, now=clock(), chat=chat, **given)
    except REFUSALS as error:
        form.add_error(None, reason(error))
        return None
    return HttpResponseRedirect(f"{reverse('admin:chat', args=[session.params['chat']])}#say")


def _demand(request: HttpRequest, permission: str) -> Any:
    by = person(request)
    if not by.has_perm(permission):
        raise PermissionDenied
    return by


def _page(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    request.current_app = admin.site.name
    status = 422 if context["form"].is_bound else 200
    shown = {**admin.site.each_context(request), "title": title, **context}
    return TemplateResponse(request, template, shown, status=status)
