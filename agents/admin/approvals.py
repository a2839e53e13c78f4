"""The queue of calls that need a person. What is asked is shown as the server stored it, first and in full.

Every form carries the digest of the call that it shows; the service refuses a decision on any other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache

from agents.admin.actions import (
    REFUSALS,
    Act,
    ActingAdmin,
    ArgumentsField,
    Asked,
    DressedForm,
    NoteForm,
    Told,
    each,
    reason,
)
from agents.admin.base import column, person
from agents.admin.display import APPROVAL_LABELS, LEVEL_LABELS, RISK_LABELS, ago, cut, difference, pretty, usd, visible
from agents.conf import clock, mail_is_configured
from agents.engine.skills import PREFIX
from agents.enums import ApprovalMode, ApprovalStatus, Level, Purpose, Risk, ToolIntent
from agents.exceptions import Invalid
from agents.guard.calls import fitting
from agents.models import Approval, InferenceLog, ToolCall
from agents.policy.consent import named_arguments
from agents.sessions.approvals import (
    MAX_STANDING_USES,
    approval_approve,
    approval_approve_edited,
    approval_reject,
    edited,
    standing_create,
)
from agents.sessions.reads import asked_by, purposes, read_by
from agents.sessions.standing import PERMISSION, is_single
from agents.walk import drafting

# The four decisions on one call: yes, no, yes with changes, yes for the rest of the session; and many at once.


class DecisionForm(DressedForm):
    """Carries the digest of the call as it was shown."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        self.approval = approval
        kwargs.setdefault("initial", {"digest": approval.digest})
        super().__init__(*args, **kwargs)


class NotedForm(DecisionForm):
    note = forms.CharField(
        label="Note for the record", required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2})
    )


class DeniedForm(NotedForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].label = "Why not"
        self.fields["note"].help_text = "Kept, and shown to the agent."


class EditedForm(NotedForm):
    """Other arguments in place of those asked for."""

    field_order = ["digest", "arguments", "note"]
    arguments = ArgumentsField(help_text="One JSON object. The difference is shown before anything is approved.")

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        initial = {"digest": approval.digest, "arguments": _editable(approval.arguments)}
        super().__init__(*args, approval=approval, initial=initial, **kwargs)

    def clean_arguments(self) -> dict[str, Any]:
        given: dict[str, Any] = self.cleaned_data["arguments"]
        if given == self.approval.arguments:
            raise forms.ValidationError("Nothing is changed: approve the call as it stands instead.")
        try:
            edited(self.approval, given, fits=fitting)
        except Invalid as error:
            raise forms.ValidationError(str(error)) from error
        return given


class StandingForm(DecisionForm):
    """Yes to this call and, in this session, to its like."""

    free = forms.MultipleChoiceField(
        label="Arguments that may differ",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All others must be the same as here. An argument that holds an address cannot be left free.",
    )
    uses = forms.IntegerField(
        label="How many times", min_value=1, max_value=MAX_STANDING_USES, initial=5, help_text="Besides this one."
    )

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        super().__init__(*args, approval=approval, initial={"digest": approval.digest, "uses": 5}, **kwargs)
        names = sorted(named_arguments(approval.arguments))
        self.fields["free"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


def _editable(arguments: dict[str, Any]) -> str:
    """JSON as people type it; where a character could not be seen, all beyond ASCII are escapes."""
    readable = json.dumps(arguments, indent=2, sort_keys=True, ensure_ascii=False)
    return readable if visible(readable) == readable else json.dumps(arguments, indent=2, sort_keys=True)


@dataclass(frozen=True)
class Decision:
    name: str
    form: type[DecisionForm]
    run: Callable[[Approval, User, dict[str, Any], datetime], str]


def _approve_one(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    approval_approve(approval.pk, by=by, digest=given["digest"], now=now, note=given["note"])
    return "Approved: the call may be made once."


def _deny_one(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    approval_reject(approval.pk, by=by, digest=given["digest"], now=now, note=given["note"])
    return "Denied: the run goes on without the call."


def _edit(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    digest, arguments, note = given["digest"], given["arguments"], given["note"]
    approval_approve_edited(approval.pk, by=by, digest=digest, arguments=arguments, fits=fitting, now=now, note=note)
    return "Approved with the changed arguments."


def _standing(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    free, uses = tuple(given["free"]), given["uses"]
    standing_create(approval.pk, by=by, digest=given["digest"], now=now, free_arguments=free, uses=uses)
    return f"Approved, and {uses} more of its like in this session."


DECISIONS: Final = {
    decision.name: decision
    for decision in (
        Decision("approve", NotedForm, _approve_one),
        Decision("deny", DeniedForm, _deny_one),
        Decision("edit", EditedForm, _edit),
        Decision("standing", StandingForm, _standing),
    )
}


def decision_forms(approval: Approval) -> dict[str, DecisionForm]:
    """The forms of a pending call. One that is approved one by one has no standing form."""
    offered = [name for name in DECISIONS if name != "standing" or not is_single(approval.level, approval.risk_level)]
    return {name: DECISIONS[name].form(approval=approval, auto_id=f"id_{name}_%s") for name in offered}


class BulkForm(NoteForm):
    """A note for all, and for each call the digest of what was shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for row in self.rows:
            shown: Any = row
            self.fields[f"digest_{shown.pk}"] = forms.CharField(
                max_length=64, initial=shown.digest, widget=forms.HiddenInput
            )


# Why a call asks a person, and about what, in words: the concern, the level and the risk, and who would be told.


# Said of the kind of call, whatever this one holds.
LEVEL_WORDS: Final = {
    Level.SAFE: "a call of this kind does no harm by itself",
    Level.MONITORED: "a call of this kind does little, and is watched",
    Level.CONTROLLED: "a call of this kind changes something",
    Level.RESTRICTED: "a call of this kind reaches beyond this installation, or is hard to undo",
    Level.PRIVILEGED: "a call of this kind is approved one by one, and never in advance",
}
# Said of this one call.
RISK_WORDS: Final = {
    Risk.LOW: "this one was judged to be of little risk",
    Risk.MEDIUM: "this one was judged to be of some risk",
    Risk.HIGH: "this one was marked as risky, and such a call always waits for a person",
}
FLAGGED: Final = (
    "The review of this run flagged concerns, and runs like it wait for a person before they tell anybody of what they "
    "found."
)


def reasons_of(approval: Approval) -> dict[str, Any]:
    """What the page of a call shows besides the call itself, by a fixed number of statements."""
    concerns = concerns_of(approval)
    return {
        "purpose": purposes([approval.session])[approval.session_id],
        "read": read_by(approval.session),
        "concerns": concerns,
        "why": why(approval, flagged=bool(concerns)),
        "level_words": LEVEL_WORDS.get(Level(approval.level), ""),
        "risk_words": RISK_WORDS.get(Risk(approval.risk_level), "") if approval.risk_level else "",
        "recipient": recipient(approval),
        "standing": decided_words(approval.status),
        "stands": stands(approval),
        "guess": approval.simulation.removeprefix(PREFIX),
        "guessed_by": guessed_by(approval) if approval.simulation else "",
    }


def decided_words(status: str) -> str:
    """The status as the page's own buttons call it."""
    return "denied" if status == ApprovalStatus.REJECTED else str(status)


def stands(approval: Approval) -> str:
    """What the arguments on the page are: of a call to be made, that was made, or that never was."""
    if approval.consumed_at:
        return "The call, exactly as it was made."
    if approval.status in {ApprovalStatus.PENDING, ApprovalStatus.APPROVED}:
        return "The call, exactly as it will be made."
    return "The call as it was asked for. It was not made."


def guessed_by(approval: Approval) -> str:
    """The model that said what would come of the call, by the calls of models of its session."""
    asked = InferenceLog.objects.filter(session_id=approval.session_id, purpose=Purpose.SIMULATION)
    return asked.order_by("-pk").values_list("model", flat=True).first() or "a model"


def concerns_of(approval: Approval) -> str:
    """What the ethics review of the run found, as it stands in the journal; nothing where it found nothing."""
    said = ToolCall.objects.filter(session_id=approval.session_id, key=drafting.REVIEW_KEY)
    arguments = said.order_by("-attempt").values_list("arguments", flat=True).first() or {}
    if arguments.get("severity") != "warn":
        return ""
    return str(arguments.get("content", "")).removesuffix(drafting.CAVEAT).strip()


def why(approval: Approval, *, flagged: bool) -> str:
    if approval.risk_level == Risk.HIGH:
        return FLAGGED if flagged else "It was marked as a call of high risk: such a call always waits for a person."
    agent = approval.session.agent
    if agent is not None and agent.mode != ApprovalMode.AUTO:
        return f"The agent {agent.name} works in mode {agent.mode}, in which calls of level {approval.level} ask first."
    return f"Calls of level {approval.level} ask a person first."


def recipient(approval: Approval) -> str:
    """Who gets what the call sends, where that is known beforehand."""
    if approval.intent != ToolIntent.NOTIFY:
        return ""
    owner = approval.session.owner
    profile = getattr(owner, "lqops_profile", None)
    mailed = bool(mail_is_configured() and owner.email and profile and profile.email_notices)
    copy = f", and a copy by e-mail to {owner.email}" if mailed else ""
    return f"{owner}, who owns the run: a notice in this application{copy}"


LISTED_CHARS = 3_000


class QueueFilter(admin.SimpleListFilter):
    """What waits, unless something else is asked for: an index serves that, however long the list has grown."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        decided = ((status, decided_words(status).capitalize()) for status in ApprovalStatus.values[1:])
        return [("all", "All"), *decided]

    def choices(self, changelist: Any) -> Any:
        for choice in super().choices(changelist):
            yield (
                {**choice, "display": "Waiting"}
                if choice["query_string"] == changelist.get_query_string(remove=[self.parameter_name])
                else choice
            )

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if self.value() == "all":
            return queryset
        return queryset.filter(status=self.value() or ApprovalStatus.PENDING)


def _one_session(rows: Any) -> str:
    if len({row.session_id for row in rows}) > 1:
        return "Calls of several sessions cannot be decided on together: choose those of one session."
    return ""


def _approve_selected(asked: Asked) -> Told:
    def approve(row: Approval) -> Approval:
        digest = asked.given[f"digest_{row.pk}"]
        return approval_approve(row.pk, by=asked.by, digest=digest, now=asked.now, note=asked.given["note"])

    return each(asked, approve, "approved")


def _deny_selected(asked: Asked) -> Told:
    def reject(row: Approval) -> Approval:
        digest = asked.given[f"digest_{row.pk}"]
        return approval_reject(row.pk, by=asked.by, digest=digest, now=asked.now, note=asked.given["note"])

    return each(asked, reject, "denied")


def _is_pending(row: Approval) -> bool:
    return row.status == ApprovalStatus.PENDING


@admin.register(Approval)
class ApprovalAdmin(ActingAdmin):
    list_display = ["call", "about", "canonical", "level_", "risk", "asked_by", "left", "expires", "standing_"]
    list_filter = [QueueFilter, "level", "risk_level"]
    list_select_related = ["session__agent", "session__owner", "session__trigger"]
    list_before_template = "admin/approval_queue.html"
    search_fields = ["session__public_id__exact"]
    search_help_text = "The public id of a session, in full."
    empty = "Nothing waits for a decision. A run that needs one appears here by itself, and its approvers get a notice."
    sortable_by = ()
    acts = (
        Act("approve", "Approve", PERMISSION, _approve_selected, BulkForm, fits=_is_pending, against=_one_session,
            template="admin/approval_act.html", reveals=True,
            explained="Each call is allowed once, exactly as it stands here, and judged by every brake again."),
        Act("deny", "Deny", PERMISSION, _deny_selected, BulkForm, fits=_is_pending, against=_one_session, grave=True,
            template="admin/approval_act.html", reveals=True,
            explained="The run goes on without the call and is told so; the same call is refused from then on."),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        """Pending first, the oldest of them first; then what was decided, newest first."""
        pending = When(status=ApprovalStatus.PENDING, then=F("created_at"))
        rows: QuerySet[Approval] = super().get_queryset(request)
        return rows.annotate(waits=Case(pending))

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        turn = Case(When(status=ApprovalStatus.PENDING, then=F("id")), default=-F("id"))
        return [F("waits").asc(nulls_last=True), turn.asc()]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.decide_view))
        return [path("<int:pk>/decide/", view, name="agents_approval_decide"), *super().get_urls()]

    def prepare(self, rows: list[Any]) -> None:
        known = purposes([row.session for row in rows])
        for row in rows:
            row.purpose = known[row.session_id]

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """The first column leads to the call: for those who may decide it says so."""
        first = "call_to_decide" if person(request).has_perm(PERMISSION) else "call"
        return [first, *self.list_display[1:]]

    @column("call")
    def call(self, approval: Approval) -> str:
        return approval.action

    @column("call")
    def call_to_decide(self, approval: Approval) -> str:
        if not _is_pending(approval):
            return self.call(approval)
        return format_html('{}<br><span class="lq-button small main">Decide</span>', approval.action)

    @column("about")
    def about(self, approval: Any) -> str:
        """What the run is about and what started it: two calls of the same name are told apart by it."""
        return format_html(
            '<span><a class="lq-link lq-wrap" href="{}" title="{}">{}</a><br><span class="lq-faint">{}</span></span>',
            reverse("admin:agents_agentsession_change", args=[approval.session_id]),
            approval.session.chain,
            visible(cut(approval.purpose, 80)),
            visible(asked_by(approval.session)),
        )

    @column("arguments")
    def canonical(self, approval: Approval) -> str:
        return format_html('<pre class="lq-pre short">{}</pre>', listed(approval))

    @column("level", labels=LEVEL_LABELS)
    def level_(self, approval: Approval) -> str:
        return approval.level

    @column("risk", labels=RISK_LABELS)
    def risk(self, approval: Approval) -> str:
        return approval.risk_level

    @column("asked by")
    def asked_by(self, approval: Approval) -> str:
        session = approval.session
        return f"{session.agent} for {session.owner}" if session.agent else str(session.owner)

    @column("left of the cap")
    def left(self, approval: Approval) -> str:
        return left_of(approval)

    @column("expires")
    def expires(self, approval: Approval) -> str:
        return ago(approval.expires_at, clock()) if _is_pending(approval) else "—"

    @column("status", labels=APPROVAL_LABELS)
    def standing_(self, approval: Approval) -> tuple[str, str]:
        return approval.status, decided_words(approval.status)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        return self._show(request, self.found(request, object_id))

    def decide_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One decision on one call. A change of arguments is shown as a difference first, and decided on after that."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        by = person(request)
        if not by.has_perm(PERMISSION):
            raise PermissionDenied
        approval = self.found(request, str(pk))
        decision = DECISIONS.get(request.POST.get("decision", ""))
        if decision is None:
            return self._show(request, approval, fault="Choose a decision.", status=422)
        form = decision.form(request.POST, approval=approval)
        if not form.is_valid():
            return self._show(request, approval, bound={decision.name: form}, status=422)
        if decision.name == "edit" and "seen" not in request.POST:
            return self._show_difference(request, approval, form)
        try:
            told = decision.run(approval, by, form.cleaned_data, clock())
        except REFUSALS as error:
            return self._show(request, approval, fault=reason(error), status=getattr(error, "http_status", 422))
        self.message_user(request, told)
        return HttpResponseRedirect(self.row_link(approval.pk))

    def _show(
        self,
        request: HttpRequest,
        approval: Approval,
        *,
        fault: str = "",
        bound: dict[str, forms.Form] | None = None,
        status: int = 200,
    ) -> HttpResponse:
        approval.refresh_from_db()
        deciding = _is_pending(approval) and person(request).has_perm(PERMISSION)
        changed = difference(approval.original_arguments, approval.arguments) if approval.original_arguments else []
        reasons = reasons_of(approval)
        return self.page(
            request,
            "admin/approval.html",
            f"{approval.action}: {reasons['purpose']}",
            status=status,
            original=approval,
            approval=approval,
            left=left_of(approval),
            **reasons,
            changed=changed,
            fault=fault,
            forms={**decision_forms(approval), **(bound or {})} if deciding else {},
        )

    def _show_difference(self, request: HttpRequest, approval: Approval, form: Any) -> HttpResponse:
        return self.page(
            request,
            "admin/approval_edit.html",
            "Approve with these changes",
            original=approval,
            approval=approval,
            lines=difference(approval.arguments, form.cleaned_data["arguments"]),
            form=form,
            back=self.row_link(approval.pk),
        )


def listed(approval: Approval) -> str:
    """The arguments in full; only what would fill the screen is cut, and then says so."""
    text = pretty(approval.arguments)
    if len(text) <= LISTED_CHARS:
        return text
    return f"{text[:LISTED_CHARS]}\n… {len(text) - LISTED_CHARS} more characters: open the call to see all of it."


def left_of(approval: Approval) -> str:
    """What is left of the session's cap, open calls counted as spent."""
    session = approval.session
    if session.max_cost_usd is None:
        return "no cap"
    left = session.max_cost_usd - session.cost_total_usd - session.cost_reserved_usd
    return usd(max(left, Decimal(0)))
