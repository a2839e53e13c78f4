"""Approvals: the queue of calls that need a person's decision, the page of one, and the decisions.

The page shows the call in full, as it is stored. Every form carries the digest of the call that it shows; a decision on
any other call is refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Case, F, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_POST
from unfold.decorators import display

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, for_each
from agents.admin.base import DetailAdmin, RowList, current_user, found_by
from agents.admin.display import (
    DECISION_LABELS,
    LEVEL_LABELS,
    RISK_LABELS,
    OptionFilter,
    ago,
    changes,
    column,
    cut,
    difference,
    run_link,
    short_usd,
    two_lines,
    usd,
    with_purposes,
    words,
)
from agents.admin.forms import ARGUMENT_CHARS, REFUSALS, ArgumentsField, StyledForm, error_text, style_fields, with_line
from agents.conf import clock
from agents.engine.skills import SIMULATION_PREFIX
from agents.enums import (
    ApprovalMode,
    ApprovalStatus,
    ChannelKind,
    Level,
    NoticeKind,
    Phase,
    Purpose,
    QuestionStatus,
    Risk,
    ToolIntent,
)
from agents.exceptions import Invalid
from agents.guard.calls import fitting
from agents.models import AgentSession, Approval, InferenceLog, Question, ToolCall
from agents.people.channels import channels_for
from agents.people.delegations import delegations_in_force, is_approver
from agents.policy.consent import ARGUMENTS, named_arguments
from agents.sessions.approvals import (
    MAX_STANDING_USES,
    PERMISSION,
    approval_approve,
    approval_approve_edited,
    approval_reject,
    call_shown,
    edited,
    is_single,
    last_alike,
    standing_create,
    together_refusal,
)
from agents.sessions.questions import MAX_CHARS, may_answer, question_answer
from agents.sessions.reads import asked_by, read_by
from agents.sessions.second_eyes import MOST_OPEN, may_deny, open_to, waits_text, with_decisions
from agents.text.shown import Field, field_lines, fields, visible
from agents.walk import drafting

LISTED_CHARS: Final = 300  # of one argument
LISTED_FIELDS: Final = 12
MOST_FIELDS: Final = 30  # arguments with a field for each; more are changed as JSON
LINE_CHARS: Final = 80  # a longer text has a box of several lines
OPEN_TO_SEE: Final = "Open the call to see all."

# --- Decisions: approve, deny, approve with changes, approve for the rest of the run ---


def note_field(help_text: str, label: str = "Note") -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 2})
    return forms.CharField(label=label, required=False, max_length=2_000, widget=widget, help_text=help_text)


class DecisionForm(StyledForm):
    """Carries the digest of the call as it was shown. The names of the fields are those of the function it is for."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        self.approval = approval
        super().__init__(*args, **kwargs)
        self.initial["digest"] = approval.digest


class ApproveForm(DecisionForm):
    note = note_field("Stored with the decision.")


class DenyForm(DecisionForm):
    note = note_field("Stored with the decision and shown to the agent.", "Reason")


class EditedForm(ApproveForm):
    """Changed arguments."""

    field_order = ["digest", "arguments", "note"]
    arguments = ArgumentsField(help_text="One JSON object. The next page shows the changes before you approve.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["arguments"] = _editable(self.approval.arguments)

    def clean_arguments(self) -> dict[str, Any]:
        return _checked(self.approval, self.cleaned_data["arguments"], self.data.get("arguments", ""))


class FieldsForm(ApproveForm):
    """Changed arguments with a field for each, where `is_flat` holds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        named = named_arguments(self.approval.arguments)
        self.arguments = dict(sorted(named.items())) if is_flat(named) else {}
        added = {f"argument_{number}": _argument_field(*one) for number, one in enumerate(self.arguments.items())}
        style_fields(added.values())
        self.fields |= added
        self.order_fields(["digest", *added, "note"])

    def clean(self) -> dict[str, Any]:
        """Put the arguments together; those that nobody changed stay exactly what they were."""
        given = super().clean() or {}
        if not self.arguments:
            raise forms.ValidationError("These arguments are changed as JSON.")
        if self.errors:
            return given
        values = [given.pop(f"argument_{number}") for number in range(len(self.arguments))]
        texts = [value.replace("\r\n", "\n") if isinstance(value, str) else value for value in values]
        pairs = zip(self.arguments.items(), texts, strict=True)
        arguments = {name: before if text == before else text for (name, before), text in pairs}
        is_inside = named_arguments(self.approval.arguments) is not self.approval.arguments
        whole = {**self.approval.arguments, ARGUMENTS: arguments} if is_inside else arguments
        if (chars := len(_compact(whole))) > ARGUMENT_CHARS:
            raise forms.ValidationError(f"The arguments have {chars} characters; the maximum is {ARGUMENT_CHARS}.")
        return {**given, "arguments": _checked(self.approval, whole)}


def is_flat(arguments: Mapping[str, Any]) -> bool:
    """Whether each argument is a text, a number or a flag without any character that a field would hide."""
    return 0 < len(arguments) <= MOST_FIELDS and all(
        isinstance(value, str | int | float) and _is_plain(name) and _is_plain(str(value))
        for name, value in arguments.items()
    )


def _is_plain(text: str) -> bool:
    return visible(text) == text and "\r" not in text


def _argument_field(name: str, value: Any) -> forms.Field:
    given: dict[str, Any] = {"label": name, "initial": value}
    match value:
        case bool():
            return forms.BooleanField(required=False, **given)
        case int():
            return forms.IntegerField(**given)
        case float():
            return forms.FloatField(**given)
        case _:
            is_long = "\n" in value or len(value) > LINE_CHARS
            widget = forms.Textarea if is_long else forms.TextInput
            return forms.CharField(required=False, strip=False, max_length=ARGUMENT_CHARS, widget=widget, **given)


def _checked(approval: Approval, given: dict[str, Any], text: str = "") -> dict[str, Any]:
    """Changed arguments with which the call can be made; an error names the line of the text that it is about."""
    if given == approval.arguments:
        raise forms.ValidationError("Nothing changed. Approve the call without changes instead.")
    try:
        edited(approval, given, fits=fitting)
    except Invalid as error:
        raise forms.ValidationError(with_line(str(error), text)) from error
    return given


class StandingForm(DecisionForm):
    """Approve this call and similar ones of this run."""

    free_arguments = forms.MultipleChoiceField(
        label="Arguments that may differ",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All others must be the same as here. An argument with an address cannot differ.",
    )
    uses = forms.IntegerField(
        label="Further calls", min_value=1, max_value=MAX_STANDING_USES, initial=5, help_text="In addition to this one."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(named_arguments(self.approval.arguments))
        self.fields["free_arguments"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


def _editable(arguments: dict[str, Any]) -> str:
    """JSON for editing; if a character is invisible, all beyond ASCII are escaped."""
    readable = json.dumps(arguments, indent=2, sort_keys=True, ensure_ascii=False)
    return readable if visible(readable) == readable else json.dumps(arguments, indent=2, sort_keys=True)


def _compact(arguments: dict[str, Any]) -> str:
    """JSON for a field that nobody reads, with escapes only if its characters cannot be sent."""
    text = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return text if text.isascii() or text == text.encode("utf-8", "replace").decode() else json.dumps(arguments)


@dataclass(frozen=True)
class Decision:
    """A form, the function that takes its data, and the message afterwards."""

    form: type[DecisionForm]
    write: Callable[..., object]
    message: str


DECISIONS: Final = {
    "approve": Decision(ApproveForm, approval_approve, "Approved. The call may be made once."),
    "deny": Decision(DenyForm, approval_reject, "Denied. The run continues without the call."),
    "edit": Decision(
        EditedForm, partial(approval_approve_edited, fits=fitting), "Approved with the changed arguments."
    ),
    "standing": Decision(StandingForm, standing_create, "Approved, with {uses} similar calls of this run."),
}


def decision_forms(approval: Approval) -> dict[str, DecisionForm]:
    """The forms of a pending call. A call that always needs its own approval has no standing form."""
    offered = [name for name in DECISIONS if name != "standing" or not is_single(approval.level, approval.risk_level)]
    kinds = {name: DECISIONS[name].form for name in offered}
    if is_flat(named_arguments(approval.arguments)):
        kinds["fields"] = FieldsForm
    return {name: kind(approval=approval, auto_id=f"id_{name}_%s") for name, kind in kinds.items()}


def decision_message(decision: Decision, result: object, data: Mapping[str, Any]) -> str:
    """The message after a decision; a yes may have to wait for others."""
    if isinstance(result, Approval) and _is_pending(result):
        return waits_text(result)
    return decision.message.format(**data)


class BulkForm(ActionForm):
    """A note for all calls, and the digest of each as it was shown."""

    note = note_field("Stored with the decision. The agent sees the note of a denial.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for row in self.rows:
            digest = getattr(row, "digest", "")
            self.fields[f"digest_{row.pk}"] = forms.CharField(max_length=64, initial=digest, widget=forms.HiddenInput)


# --- The context of a decision ---


LEVEL_WORDS: Final = {
    Level.SAFE: "calls of this level do no harm",
    Level.MONITORED: "calls of this level have little effect and are monitored",
    Level.CONTROLLED: "calls of this level change something",
    Level.RESTRICTED: "calls of this level reach beyond this installation or are hard to undo",
    Level.PRIVILEGED: "calls of this level are approved one by one, never in advance",
}
FLAGGED: Final = "The review of this run flagged concerns. Such runs need approval before they notify anybody."


def decision_context(approval: Approval) -> dict[str, Any]:
    """Return the facts beside the call itself, with a fixed number of statements."""
    concerns = review_concerns(approval)
    return {
        "read": read_by(approval.session),
        "concerns": concerns,
        "seen": call_shown(approval),
        "why": approval_reason(approval, flagged=bool(concerns)),
        "level_words": LEVEL_WORDS.get(Level(approval.level), ""),
        "recipient": recipient(approval),
        "prediction": approval.simulation.removeprefix(SIMULATION_PREFIX),
        "predicted_by": predicted_by(approval) if approval.simulation else "",
    }


def predicted_by(approval: Approval) -> str:
    """The model that predicted the result of the call, from the model calls of its session."""
    asked = InferenceLog.objects.filter(session_id=approval.session_id, purpose=Purpose.SIMULATION)
    return asked.order_by("-pk").values_list("model", flat=True).first() or "a model"


def review_concerns(approval: Approval) -> str:
    """The concerns of the run's ethics review, from the journal; empty if there are none."""
    reviews = ToolCall.objects.filter(session_id=approval.session_id, key=drafting.REVIEW_KEY)
    arguments = reviews.order_by("-attempt").values_list("arguments", flat=True).first() or {}
    if arguments.get("severity") != "warn":
        return ""
    return str(arguments.get("content", "")).removesuffix(drafting.CAVEAT).strip()


def approval_reason(approval: Approval, *, flagged: bool) -> str:
    if approval.rules:
        return " ".join(
            f"The rule “{rule['name']}” (version {rule['version']}) asks"
            + (f" people of the role {rule['role']}." if rule["role"] else ".")
            for rule in approval.rules
        )
    if approval.risk_level == Risk.HIGH:
        return FLAGGED if flagged else "Calls rated high risk always need approval."
    agent = approval.session.agent
    if agent is not None and agent.mode != ApprovalMode.AUTO:
        return f"The agent {agent.name} is in mode {agent.mode}: calls of level {approval.level} need approval."
    return f"Calls of level {approval.level} need approval."


def recipient(approval: Approval) -> str:
    """Return the recipients of the call, if they are known."""
    if approval.intent != ToolIntent.NOTIFY:
        return ""
    owner = approval.session.owner
    kind = NoticeKind.RUN_FINDINGS if approval.phase == Phase.DELIVERY else NoticeKind.AGENT
    ways = [
        f"e-mail to {owner.email}" if channel.kind == ChannelKind.EMAIL else f"{channel.name} ({channel.shown_address})"
        for channel, _ in channels_for(owner.pk, kind)
    ]
    copies = f", and copies by {', '.join(ways)}" if ways else ""
    return f"{owner}, the owner of the run: a notification{copies}"


def compared(approval: Approval) -> dict[str, Any]:
    """The last decided call of its kind, and the lines in which this one differs from it."""
    last = last_alike(approval)
    if last is None:
        return {"last": None}
    is_same = last.arguments == approval.arguments
    return {"last": last, "is_same": is_same, "changes": [] if is_same else changes(last.arguments, approval.arguments)}


@dataclass(frozen=True)
class Place:
    """Where an approval stands among those that a person may decide on: its neighbours, and how many there are."""

    previous: Approval | None
    following: Approval | None
    number: int
    total: str

    @classmethod
    def of(cls, approval: Approval, *, by: User) -> "Place":
        rows = open_to(by, clock())
        others = [row for row in rows if row.pk != approval.pk]
        turn = (approval.created_at, approval.pk)
        before = [row for row in others if (row.created_at, row.pk) < turn]
        after = others[len(before) :]
        first = (*after, *before)[:1]
        number = len(before) + 1 if len(others) < len(rows) else 0
        total = f"{MOST_OPEN}+" if len(rows) == MOST_OPEN else str(len(rows))
        return cls(before[-1] if before else None, first[0] if first else None, number, total)


# --- The queues of approvals and of questions ---


def _queue_options(decided: Sequence[str]) -> dict[str, tuple[str, Q]]:
    """Pending rows unless others are asked for; an index serves those, however long the list is."""
    others = {status: (words(status).capitalize(), Q(status=status)) for status in decided}
    return {"": ("Pending", Q(status="pending")), "all": ("All", Q()), **others}


class ApprovalFilter(OptionFilter):
    title = "status"
    parameter_name = "queue"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = _queue_options(ApprovalStatus.values[1:])


class QuestionFilter(ApprovalFilter):
    options: ClassVar[Mapping[str, tuple[str, Q]]] = _queue_options(QuestionStatus.values[1:])


class QueueAdmin(DetailAdmin):
    """A queue of rows that wait for a person: pending rows oldest first, then the others newest first."""

    list_select_related: ClassVar[Sequence[str]] = ["session__agent", "session__owner", "session__trigger"]
    list_before_template = "admin/queue.html"
    search_fields: ClassVar[Sequence[str]] = ["session__public_id__exact"]
    search_help_text = "The full id of a run."
    asked_at: ClassVar[str] = "created_at"
    agent_owner = column(lambda row: _agent_owner(row.session), title="agent and owner")
    expires = column(lambda row: ago(row.expires_at, clock()) if _is_pending(row) else "—", title="expires")

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        is_pending = Q(status="pending")
        waiting_since = Case(When(is_pending, then=F(self.asked_at)))
        turn = Case(When(is_pending, then=F("id")), default=-F("id"))
        return [waiting_since.asc(nulls_last=True), turn.asc()]

    def prepare_rows(self, rows: list[Any]) -> None:
        with_purposes(row.session for row in rows)


def _agent_owner(session: AgentSession) -> str:
    return f"{session.agent} for {session.owner}" if session.agent else str(session.owner)


def _is_pending(row: Approval | Question) -> bool:
    return row.status == "pending"


# --- Approvals ---


def _decide_each(write: Callable[..., Approval], done: str) -> Callable[[ActionRequest], ActionResult]:
    def run(action: ActionRequest) -> ActionResult:
        decided: list[Approval] = []

        def decide(row: Approval) -> None:
            digest = action.data[f"digest_{row.pk}"]
            decided.append(write(row.pk, by=action.by, digest=digest, now=action.now, note=action.data["note"]))

        result = for_each(action, decide, done)
        waiting = sum(map(_is_pending, decided))
        text = f"{result.message} {waiting} of them still need others to say yes." if waiting else result.message
        return replace(result, message=text)

    return run


def listed(approval: Approval) -> str:
    """The arguments by field; what would fill the screen is cut and says so. Nothing is decided in the list itself."""
    found = fields(approval.arguments)
    rows = [(field.name, _listed_text(field)) for field in found[:LISTED_FIELDS]]
    if len(found) > LISTED_FIELDS:
        rows.append(("…", f"{len(found) - LISTED_FIELDS} more arguments. {OPEN_TO_SEE}"))
    body = format_html_join(" ", "<div><dt>{}</dt> <dd>{}</dd></div>", rows)
    return format_html('<dl class="lq-args">{}</dl>', body)


def _listed_text(field: Field) -> str:
    text = field.text or "\n".join(field_lines(field.inner))
    if len(text) <= LISTED_CHARS:
        return text
    return f"{text[:LISTED_CHARS]}\n… {len(text) - LISTED_CHARS} more characters. {OPEN_TO_SEE}"


def left_of_cap(approval: Approval) -> str:
    return usd(approval.session.left_usd, empty="no cap")


class ApprovalList(RowList):
    """One page of the queue, with the yeses and what the user may do about each call."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        with_decisions(list(self.result_list), by=current_user(request), now=clock())


@admin.register(Approval)
class ApprovalAdmin(QueueAdmin):
    call = column("action", title="call", sort="action")
    canonical = column(listed, title="arguments")
    level_ = column("level", label=LEVEL_LABELS, sort="level")
    risk = column("risk_level", title="risk", label=RISK_LABELS, sort="risk_level")
    left = column(lambda row: short_usd(row.session.left_usd, "no cap"), title="left of cap")
    status_ = column("status", words, label=DECISION_LABELS, sort="status")
    expires = column(
        lambda row: two_lines(ago(row.expires_at, clock()) if _is_pending(row) else "—", row.said),
        title="expires",
        sort="expires_at",
    )
    agent_owner = column(lambda row: _agent_owner(row.session), title="agent and owner", sort="session__agent__name")
    sortable_by = None
    is_live = True
    has_views = True
    search_help_text = "The name of a call, an agent, a trigger or an owner, or the beginning of an id."
    list_display = ["call", "about", "canonical", "level_", "risk", "agent_owner", "left", "expires", "status_"]
    list_filter = [ApprovalFilter, "level", "risk_level"]
    empty_text = "No pending approvals. A call that needs one appears here, and its approvers are notified."
    change_form_template = "admin/approval.html"
    row_views = ("decide",)
    row_actions = (
        RowAction(
            "approve",
            "Approve",
            _decide_each(approval_approve, "approved"),
            BulkForm,
            PERMISSION,
            available=_is_pending,
            conflict=together_refusal,
            template="admin/approval_confirm.html",
            shows_content=True,
            description="Allows each call once, exactly as shown. Every brake checks it again.",
        ),
        RowAction(
            "deny",
            "Deny",
            _decide_each(approval_reject, "denied"),
            BulkForm,
            PERMISSION,
            available=_is_pending,
            conflict=together_refusal,
            danger=True,
            template="admin/approval_confirm.html",
            shows_content=True,
            description="The run continues without the call. The same call is refused from then on.",
        ),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RowList]:
        chosen = super().get_changelist(request)
        return ApprovalList if chosen is RowList else chosen

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        names = ("action", "session__agent__name", "session__trigger__name", "session__owner__username")
        ids = ("public_id", "session__public_id")
        return (queryset.filter(found_by(Approval, term, ids=ids, names=names)) if term else queryset), False

    def may_run(self, request: HttpRequest, action: RowAction) -> bool:
        """Decisions are also for those who decide while somebody is away."""
        return is_approver(current_user(request), clock())

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """The first column links to the call; who may decide sees a button, or why they may not say yes."""
        first = "call_to_decide" if is_approver(current_user(request), clock()) else "call"
        return [first, *self.list_display[1:]]

    @display(description="call", ordering="action")
    def call_to_decide(self, approval: Any) -> str:
        if not _is_pending(approval):
            return str(approval.action)
        if approval.refusal:
            return two_lines(approval.action, approval.refusal)
        return format_html('{}<br><span class="lq-button small main">Decide</span>', approval.action)

    @display(description="about")
    def about(self, approval: Any) -> str:
        """The purpose of the run and its trigger, which tell calls of the same name apart."""
        session = approval.session
        return two_lines(run_link(session, cut(session.purpose, 80)), visible(asked_by(session)))

    def extra_context(self, request: HttpRequest, row: Approval) -> dict[str, Any]:
        row.refresh_from_db()
        self.prepare_rows([row])
        by, now = current_user(request), clock()
        with_decisions([row], by=by, now=now)
        last = compared(row)
        first = row.said.yeses[0].user if row.said.yeses else row.resolved_by  # type: ignore[attr-defined]
        return {
            **decision_context(row),
            "title": f"{row.action}: {row.session.purpose}",  # type: ignore[attr-defined]
            "approval": row,
            "left": left_of_cap(row),
            "changed": difference(row.original_arguments, row.arguments) if row.original_arguments else [],
            "changed_by": first,
            "delegations": delegations_in_force(now).order_by("until"),
            "forms": self._forms(row, by),
            "rests": "after" in request.GET,
            "place": Place.of(row, by=by) if is_approver(by, now) else None,
            **last,
            "shown_rows": [last["last"]],
        }

    def _forms(self, row: Any, by: User) -> dict[str, DecisionForm]:
        """The decisions that are open to this user: whom the call binds can at most deny it."""
        if not _is_pending(row) or not may_deny(row, by=by, now=clock()):
            return {}
        forms = decision_forms(row)
        return {"deny": forms["deny"]} if row.refusal else forms

    @method_decorator(require_POST)
    def decide_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take one decision on one call. Changed arguments are shown as a diff first and decided on after that."""
        by = current_user(request)
        if not is_approver(by, clock()):
            raise PermissionDenied
        approval = self.get_row(request, pk)
        name = request.POST.get("decision", "")
        decision = DECISIONS.get(name)
        if decision is None:
            return self.detail_page(request, approval, fault="Choose a decision.", status=422)
        by_field = name == "edit" and "by_field" in request.POST
        form = (FieldsForm if by_field else decision.form)(request.POST, approval=approval)
        if not form.is_valid():
            shown_as = "fields" if by_field else name
            bound = {**decision_forms(approval), shown_as: form} if _is_pending(approval) else {}
            return self.detail_page(request, approval, forms=bound, status=422)
        if name == "edit" and "seen" not in request.POST:
            return self._changes_page(request, approval, form)
        try:
            result = decision.write(approval.pk, by=by, now=clock(), **form.cleaned_data)
        except REFUSALS as error:
            status = getattr(error, "http_status", 422)
            return self.detail_page(request, approval, fault=error_text(error), status=status)
        place = Place.of(approval, by=by)
        message = decision_message(decision, result, form.cleaned_data)
        self.message_user(request, self._decided_message(approval, message, place))
        if place.following is None:
            return HttpResponseRedirect(self.row_link(approval.pk))
        return HttpResponseRedirect(f"{self.row_link(place.following.pk)}?after={approval.pk}")

    def _decided_message(self, approval: Approval, message: str, place: Place) -> str:
        """Say which call was decided and how many are left; it is shown on the page of the next one."""
        if place.following is None:
            return f"{message} No approval is left for you."
        decided = format_html('<a href="{}">{}</a>', self.row_link(approval.pk), visible(approval.action))
        return format_html("{} Decided: {}. {} left for you.", message, decided, place.total)

    def get_urls(self) -> Any:
        return [self.url("by-id/<uuid:public_id>/", "by_id"), *super().get_urls()]

    def by_id_view(self, request: HttpRequest, public_id: UUID) -> HttpResponse:
        """The page of an approval by its public id: where notifications lead to."""
        return HttpResponseRedirect(self.row_link(get_object_or_404(Approval, public_id=public_id).pk))

    def _changes_page(self, request: HttpRequest, approval: Approval, form: Any) -> HttpResponse:
        return self.render_page(
            request,
            "admin/approval_edit.html",
            "Approve with these changes",
            original=approval,
            approval=approval,
            lines=difference(approval.arguments, form.cleaned_data["arguments"]),
            warnings=call_shown(approval, form.cleaned_data["arguments"]).warnings,
            form=form,
            arguments=_compact(form.cleaned_data["arguments"]),
            back=self.row_link(approval.pk),
        )


# --- Questions of agents to people: the queue, the page of one, and its answer. The run waits for the answer ---


class AnswerForm(StyledForm):
    answer = forms.CharField(
        max_length=MAX_CHARS,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="The run continues with this answer. It cannot be changed later.",
    )


@admin.register(Question)
class QuestionAdmin(QueueAdmin):
    list_shows_content = True
    asked_at = "asked_at"
    text_ = column(lambda row: visible(cut(row.text, 160)), title="question")
    about = column(lambda row: run_link(row.session, cut(row.session.purpose, 80)), title="run")
    asked = column("asked_at", lambda at: ago(at, clock()), title="asked")
    status_ = column("status", label=DECISION_LABELS)
    list_display = ["text_", "about", "agent_owner", "asked", "expires", "status_"]
    list_filter = [QuestionFilter]
    empty_text = "No open questions. A run that needs an answer appears here, and its owner is notified."
    change_form_template = "admin/question.html"
    row_views = ("answer",)

    def extra_context(self, request: HttpRequest, row: Question) -> dict[str, Any]:
        row.refresh_from_db()
        self.prepare_rows([row])
        return {
            "title": cut(row.text, 120),
            "question": row,
            "form": AnswerForm(),
            "may_answer": _is_pending(row) and may_answer(row.session, current_user(request)),
        }

    @method_decorator(require_POST)
    def answer_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the answer, from the question's own page, the page of its run, or its chat."""
        by = current_user(request)
        question = self.get_row(request, pk)
        if not may_answer(question.session, by):
            raise PermissionDenied
        form = AnswerForm(request.POST)
        if not form.is_valid():
            return self.detail_page(request, question, form=form, status=422)
        try:
            question_answer(question, answer=form.cleaned_data["answer"], by=by, now=clock())
        except REFUSALS as error:
            form.add_error(None, error_text(error))
            return self.detail_page(request, question, form=form, status=getattr(error, "http_status", 422))
        self.message_user(request, "Answer sent. The run continues.")
        return HttpResponseRedirect(self._back(request, question))

    def _back(self, request: HttpRequest, question: Question) -> str:
        """The page that the form was on. The form gives a name, never an address."""
        match request.POST.get("from"):
            case "session":
                return reverse("admin:agents_agentsession_change", args=[question.session_id])
            case "chat" if chat := question.session.params.get("chat"):
                return reverse("admin:chat", args=[chat])
        return self.row_link(question.pk)
