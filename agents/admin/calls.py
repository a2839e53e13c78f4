"""Calls and halts as the journal has them; and what became of a call whose outcome a crash left unknown."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from agents.admin.actions import Act, ActingAdmin, Asked, Told
from agents.admin.base import column
from agents.admin.display import cut, moment, usd, words
from agents.admin.facts import FactsAdmin
from agents.admin.filters import WordedFilter
from agents.admin.forms import ActForm, ArgumentsField
from agents.admin.looks import OUTCOME_LABELS
from agents.enums import Outcome
from agents.models import Halt, ToolCall
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.standing import PERMISSION


class HappenedForm(ActForm):
    result = ArgumentsField(
        label="What it gave back",
        required=False,
        help_text="One JSON object for the run to go on with, if you know it. May be left empty.",
    )


def _happened(asked: Asked) -> Told:
    result = asked.given["result"]
    for call in asked.rows:
        tool_call_resolve(call.pk, Decision.HAPPENED, by=asked.by, now=asked.now, result=result)
    return Told("Noted: it happened. It is not made again.")


def _did_not_happen(asked: Asked) -> Told:
    for call in asked.rows:
        tool_call_resolve(call.pk, Decision.DID_NOT_HAPPEN, by=asked.by, now=asked.now)
    return Told("Noted: it did not happen. The run makes the call again.")


def _is_open(call: ToolCall) -> bool:
    return call.outcome == Outcome.UNKNOWN and call.resolved_at is None


@admin.register(ToolCall)
class ToolCallAdmin(ActingAdmin):
    list_display = ["what", "of_session", "phase", "ended", "charged", "actual", "model", "began"]
    list_filter = [("outcome", WordedFilter), ("intent", WordedFilter), ("phase", WordedFilter)]
    empty = "No run has made a call yet."
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact"]
    search_help_text = "The public id of a session, in full."
    ordering = ["-id"]
    sortable_by = ()
    acts = (
        Act("happened", "It happened", PERMISSION, _happened, HappenedForm, many=False, fits=_is_open,
            explained="The call took effect. The run goes on with what you say it gave back, and does not repeat it."),
        Act("did_not_happen", "It did not happen", PERMISSION, _did_not_happen, many=False, fits=_is_open, grave=True,
            explained="The call had no effect. The run will make it again: if you are wrong, it happens twice."),
    )  # fmt: skip

    @column("call")
    def what(self, call: ToolCall) -> str:
        return f"{call.intent} · {call.name}" if call.name and call.name != call.intent else call.intent

    @column("outcome", labels=OUTCOME_LABELS)
    def ended(self, call: ToolCall) -> tuple[str, str]:
        return call.outcome, words(call.outcome)

    @column("charged")
    def charged(self, call: ToolCall) -> str:
        return usd(call.charged_usd)

    @column("booked")
    def actual(self, call: ToolCall) -> str:
        return usd(call.actual_usd)

    @column("started")
    def began(self, call: ToolCall) -> str:
        return moment(call.started_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        call = self.found(request, object_id)
        return self.page(
            request,
            "admin/call.html",
            self.what(call),
            original=call,
            call=call,
            open=_is_open(call),
            buttons=self.buttons(request, call),
        )


@admin.register(Halt)
class HaltAdmin(FactsAdmin):
    list_display = ["what", "of_session", "why", "requested_by", "asked", "released"]
    list_filter = [("scope", WordedFilter)]
    empty = "Nothing was ever halted. Halts of sessions, and of everything, are kept here with their reasons."
    list_select_related = ["session", "requested_by"]

    @column("what")
    def what(self, halt: Halt) -> str:
        return words(halt.scope)

    @column("reason")
    def why(self, halt: Halt) -> str:
        return cut(halt.reason, 120)

    @column("requested at")
    def asked(self, halt: Halt) -> str:
        return moment(halt.requested_at)

    @column("released at")
    def released(self, halt: Halt) -> str:
        return moment(halt.released_at)
