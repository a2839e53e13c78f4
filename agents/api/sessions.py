"""Sessions: state, live receipt, findings, artifacts, calls and transcript; halt, restart and run now."""

from collections.abc import Callable
from dataclasses import Field
from functools import partial
from typing import Any, Final
from uuid import UUID

import django_filters
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, When
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ListView, OwnedViewSet, SingleView
from agents.api.fields import (
    Body,
    NoteField,
    OwnedRowField,
    RedactedDictField,
    RedactedField,
    RowSerializer,
    UsdField,
    WordField,
    ref,
)
from agents.api.knowledge import DocumentSerializer
from agents.api.operations import PauseReasonBody
from agents.api.paging import BooleanFilter, ChoicesFilter, public_id_filter
from agents.api.schema import describe, detail_action, detail_list, list_action
from agents.conf import base_url
from agents.enums import AgentState, Outcome, RunResult, Status, TriggerKind
from agents.ledger.loans import runs_wait_of
from agents.ledger.outages import model_wait_of
from agents.models import (
    Agent,
    AgentSession,
    Collection,
    Document,
    Finding,
    Message,
    Playbook,
    Project,
    PromptSkill,
    ToolCall,
)
from agents.models.expressions import Likely
from agents.people.notifications import finding_path
from agents.policy.run_spec import GOAL_CHARS, MAX_NUMBER, OPTION_CHARS, OPTIONS, RunSpec
from agents.policy.transitions import agent_state
from agents.sessions.approvals import PERMISSION, Decision, tool_call_resolve
from agents.sessions.halts import HaltAnswer, session_halt, sessions_halt
from agents.sessions.leases import session_try_now
from agents.sessions.pauses import session_pause, session_resume
from agents.sessions.reads import PURPOSES, progress_of, purpose_kind, purposes
from agents.sessions.transcripts import INTERNAL
from agents.triggers.firing import run_estimate, run_now, session_restart
from audit.receipts import UnknownChain, build_receipt
from audit.rows import UnreadableRow

# --- Tool calls ---


class CallSerializer(RowSerializer):
    """One call. Results are content and are not included."""

    session = ref("session")
    arguments = RedactedDictField(read_only=True)
    error = RedactedField(read_only=True)
    spent_usd = UsdField(
        read_only=True, help_text="Cost: the larger of `charged_usd` (approved) and `actual_usd` (reported)."
    )

    class Meta:
        model = ToolCall
        fields = [
            "id", "session", "key", "attempt", "intent", "name", "version", "phase", "arguments", "digest", "outcome",
            "detail", "error", "spent_usd", "approved_usd", "charged_usd", "actual_usd", "model", "tokens",
            "started_at", "settled_at", "resolved_at",
        ]  # fmt: skip


class ResolveBody(Body):
    decision = WordField(choices=[str(decision) for decision in Decision])
    result = serializers.JSONField(required=False, default=None, help_text="The result that the run gets.")


class ToolCallViewSet(OwnedViewSet[ToolCall]):
    """Calls of your sessions; if you may resolve approvals, also all calls with unknown outcome."""

    queryset = ToolCall.objects.all()
    serializer_class = CallSerializer
    filters = {
        "outcome": django_filters.ChoiceFilter(choices=Outcome.choices),
    }
    joins = ("session",)
    decisions = frozenset({"resolve"})
    shows_others_rows = True

    def visible(self, rows: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
        visible = self.of_own_runs()
        if self.user.has_perm(PERMISSION):
            visible |= Q(unknown_since__isnull=False)
        return rows.filter(visible)

    @detail_action(body=ResolveBody)
    def resolve(self, request: Request, **_: Any) -> Response:
        """State whether a call with unknown outcome took place. Needs the permission to resolve approvals."""
        call = self.get_object()
        data = self.body(ResolveBody)
        resolved = tool_call_resolve(call.pk, Decision(data["decision"]), result=data["result"], **self.actor)
        return Response(CallSerializer(resolved).data)


# --- Sessions ---


class PurposeSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(
        choices=PURPOSES,
        help_text="`chat`: a message, also one sent as an ask; `run_now`: started by a person.",
    )
    title = serializers.CharField(help_text="The title of its page.")


class ProgressSerializer(serializers.Serializer[Any]):
    section = serializers.IntegerField(help_text="The section that is read now, from 1.")
    sections = serializers.IntegerField()
    estimate_usd = UsdField(help_text="About what all sections cost.")


class SessionSerializer(RowSerializer):
    state = serializers.SerializerMethodField()
    result = serializers.ChoiceField(
        choices=["", *RunResult.values],
        source="run_result",
        read_only=True,
        help_text="Result of the session; empty until it is over. `ok`, `findings`, `empty`: it did its work; "
        "`partial`: a part of it; `failed`: none. `status` says how it ended.",
    )
    progress = serializers.SerializerMethodField(
        help_text="How far it has read; null unless it is reading in several sections."
    )
    purpose = serializers.SerializerMethodField(help_text="Why the session exists.")
    agent = ref("agent")
    trigger = ref("trigger")
    project = ref("project")
    started_by = ref("parent")
    restarted_from = ref("restarted_from")
    spent_usd = UsdField(
        read_only=True,
        help_text="Cost: the larger of `cost_total_usd` (approved) and `cost_actual_usd` (reported).",
    )

    class Meta:
        model = AgentSession
        fields = [
            "id", "purpose", "status", "state", "halt_state", "paused_at", "waiting_on", "terminal_reason", "result",
            "result_reason", "progress", "current_phase", "mode", "trigger_kind", "agent", "trigger", "project",
            "started_by", "restarted_from", "depth", "max_cost_usd", "starting_cap_usd", "spent_usd",
            "cost_total_usd",
            "cost_reserved_usd", "cost_actual_usd",
            "cost_cap_reached", "token_budget", "total_tokens", "created_at", "started_at", "completed_at",
            "next_wake_at", "last_activity_at", "error", "archived_at",
        ]  # fmt: skip
        extra_kwargs = {
            "halt_state": {
                "help_text": "The operator's control, separate from the status. `running`: nobody halted the session. "
                "`idle`: it makes no call, and is halted if that goes on. It stays `running` after the session has "
                "ended; see `status`."
            }
        }

    @extend_schema_field(ProgressSerializer(allow_null=True))
    def get_progress(self, session: Any) -> dict[str, Any] | None:
        found = progress_of(session)
        return None if found is None else dict(ProgressSerializer(found).data)

    @extend_schema_field(PurposeSerializer)
    def get_purpose(self, session: Any) -> dict[str, str]:
        title = getattr(session, "title", None) or purposes([session])[session.pk]
        return {"kind": purpose_kind(session), "title": title}

    def get_state(self, session: Any) -> AgentState:
        return agent_state(
            status=session.status,
            waiting_on=session.waiting_on,
            terminal_reason=session.terminal_reason,
            calls_open=session.status == Status.RUNNING and session.calls_open,
        )


class ModelWaitSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    since = serializers.DateTimeField()
    next_try_at = serializers.DateTimeField(allow_null=True, help_text="null: the model is suspended.")
    error = serializers.CharField()


class RunsWaitSerializer(serializers.Serializer[Any]):
    runs = serializers.ListField(
        source="ids",
        child=serializers.UUIDField(),
        help_text="Started runs that are not over, or hold a part of its cap.",
    )
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True, help_text="When it goes on without them.")


class SessionDetailSerializer(SessionSerializer):
    model_wait = serializers.SerializerMethodField(help_text="The model that does not answer; null: none is awaited.")
    runs_wait = serializers.SerializerMethodField(help_text="The started runs that it waits for; null: for none.")
    receipt = serializers.SerializerMethodField(
        help_text="Built from the audit log at request time, also while the session runs; null before it has started. "
        "Of an archived session the short receipt that was kept, with the files in `archived`."
    )

    class Meta(SessionSerializer.Meta):
        fields = [*SessionSerializer.Meta.fields, "params", "context_version", "model_wait", "runs_wait", "receipt"]

    @extend_schema_field(ModelWaitSerializer(allow_null=True))
    def get_model_wait(self, session: Any) -> dict[str, Any] | None:
        found = model_wait_of(session)
        return None if found is None else dict(ModelWaitSerializer(found).data)

    @extend_schema_field(RunsWaitSerializer(allow_null=True))
    def get_runs_wait(self, session: Any) -> dict[str, Any] | None:
        found = runs_wait_of(session)
        return None if found is None else dict(RunsWaitSerializer(found).data)

    def get_receipt(self, session: Any) -> dict[str, Any] | None:
        try:
            return build_receipt(session.chain)
        except (UnknownChain, UnreadableRow):
            return None


class FindingSerializer(RowSerializer):
    session = ref("session")
    document = ref("document")
    playbook = ref("playbook")
    precedent = ref("precedent")
    assignee = serializers.CharField(source="assignee.username", allow_null=True, default=None, help_text="A username.")
    triaged_by = serializers.CharField(source="triaged_by.username", allow_null=True, default=None)
    link = serializers.SerializerMethodField(help_text="The page where it is settled.")

    class Meta:
        model = Finding
        fields = [
            "id", "session", "severity", "title", "content", "document", "quote", "quote_start", "quote_end",
            "quote_check", "location", "judges_for", "judges_asked", "about_run", "playbook", "position", "state",
            "reason", "precedent", "assignee", "triaged_by", "triaged_at", "created_at", "link",
        ]  # fmt: skip

    def get_link(self, row: Finding) -> str:
        return f"{base_url()}{finding_path(row)}"


FINDING_JOINS: Final = ("session", "document", "playbook", "precedent", "assignee", "triaged_by")


class HaltBody(Body):
    reason = NoteField(help_text="For people. The audit log has the id of the halt, not its reason.")


class RestartBody(Body):
    max_cost_usd = UsdField(
        required=False,
        allow_null=True,
        help_text="Cap for the new run; null: the cap of its trigger or of the old run.",
    )


class HaltSerializer(serializers.Serializer[Any]):
    answer = serializers.ChoiceField(choices=[str(answer) for answer in HaltAnswer])
    session = SessionSerializer()


class HaltCountSerializer(serializers.Serializer[Any]):
    requested = serializers.IntegerField()
    already_halted = serializers.IntegerField()
    terminal = serializers.IntegerField()
    failed = serializers.IntegerField()


HALT = OpenApiExample("Halt", {"reason": "It reads the wrong folder."}, request_only=True)


class SessionViewSet(OwnedViewSet[AgentSession]):
    """Your sessions, newest first."""

    queryset = AgentSession.objects.all()
    serializer_class = SessionSerializer
    detail_serializer_class = SessionDetailSerializer
    filters = {
        "status": ChoicesFilter(choices=Status.choices),
        "result": ChoicesFilter(field_name="run_result", choices=RunResult.choices),
        "trigger_kind": django_filters.ChoiceFilter(choices=TriggerKind.choices),
        "trigger": public_id_filter("trigger"),
        "agent": public_id_filter("agent"),
        "project": public_id_filter("project"),
    }
    joins = ("agent", "trigger", "project", "parent", "restarted_from")
    always_allowed = frozenset({"halt", "halt_all", "pause"})
    starts = frozenset({"restart", "resume"})

    def visible(self, rows: QuerySet[AgentSession]) -> QuerySet[AgentSession]:
        """Return the user's sessions; SQLite looks for those in a rare status by the status."""
        statuses = self.request.query_params.getlist("status") if self.action == "list" else []
        is_rare = len(statuses) == 1 and statuses != [Status.COMPLETED]
        return rows.filter(Likely(Q(owner_id=self.user.pk))) if is_rare else super().visible(rows)

    def get_queryset(self) -> QuerySet[AgentSession]:
        open_calls = ToolCall.objects.open().of_tools().filter(session=OuterRef("pk"))
        while_running = Case(When(status=Status.RUNNING, then=Exists(open_calls)), default=False)
        return super().get_queryset().annotate(calls_open=while_running)

    def paginate_queryset(self, queryset: Any) -> Any:
        """Look up the titles of all sessions of a page at once."""
        page = super().paginate_queryset(queryset)
        if self.action == "list" and page:
            titles = purposes(page)
            for session in page:
                session.title = titles[session.pk]
        return page

    @detail_list(FindingSerializer)
    def findings(self, request: Request, **_: Any) -> Response:
        """The findings of the session, in order."""
        rows = self.get_object().findings.select_related(*FINDING_JOINS).order_by("created_at", "id")
        return self.page(rows, FindingSerializer)

    @detail_list(DocumentSerializer)
    def artifacts(self, request: Request, **_: Any) -> Response:
        rows = self.get_object().artifacts.filter(owner_id=self.user.pk, deleted_at__isnull=True)
        return self.page(rows.select_related("session").order_by("-id"), DocumentSerializer)

    @detail_list(CallSerializer)
    def calls(self, request: Request, **_: Any) -> Response:
        return self.page(self.get_object().tool_calls.select_related("session").order_by("-id"), CallSerializer)

    @detail_action(HaltSerializer, body=HaltBody, examples=[HALT])
    def halt(self, request: Request, **_: Any) -> Response:
        """Request a halt: no further call of the session starts. A repeated request changes nothing."""
        session = self.get_object()
        data = self.body(HaltBody)
        answer = session_halt(session.pk, reason=data["reason"], **self.actor)
        fresh = self.get_queryset().get(pk=session.pk)
        return Response(HaltSerializer({"answer": answer, "session": fresh}).data)

    @detail_action({200: SessionDetailSerializer}, body=PauseReasonBody)
    def pause(self, request: Request, **_: Any) -> Response:
        """Pause the session: the call in flight ends, no other begins. A repeated request changes nothing.

        409 if the session is over or being halted.
        """
        session = self.get_object()
        return self.respond(session_pause(session.pk, reason=self.body(PauseReasonBody)["reason"], **self.actor))

    @detail_action({200: SessionDetailSerializer})
    def resume(self, request: Request, **_: Any) -> Response:
        """Put a paused session back into the queue; it goes on where it was. 409 if nobody paused it.

        It stays paused while a pause of its agent, its trigger or all work covers it.
        """
        return self.respond(session_resume(self.get_object().pk, **self.actor))

    @detail_action({200: SessionDetailSerializer})
    def try_now(self, request: Request, **_: Any) -> Response:
        """Ask the model that the session waits for again at once. If it answers, all that wait for it go on."""
        return self.respond(session_try_now(self.get_object().pk, **self.actor))

    @list_action(HaltCountSerializer, body=HaltBody)
    def halt_all(self, request: Request) -> Response:
        """Halt every unfinished session of yours."""
        active = AgentSession.objects.active().filter(owner_id=self.user.pk)
        pks = list(active.order_by("pk").values_list("pk", flat=True))
        count = sessions_halt(pks, reason=self.body(HaltBody)["reason"], **self.actor)
        return Response(HaltCountSerializer(count).data)

    @detail_action({201: SessionDetailSerializer}, body=RestartBody)
    def restart(self, request: Request, **_: Any) -> Response:
        """Run the same work again as a new session, linked to this one.

        A run that stopped at its cost cap needs a higher cap, or it stops again.
        """
        data = self.body(RestartBody)
        session = session_restart(session=self.get_object(), **self.actor, **data)
        return self.respond(session, created=True)


# --- Run now ---


class RunOptionsBody(Body):
    """Inputs and cap of a run, and its options as agents/policy/run_spec.py declares them."""

    playbook = OwnedRowField(Playbook, required=False, allow_null=True, help_text="The playbook to check against.")
    skill = OwnedRowField(PromptSkill, shared=True, required=False, allow_null=True)
    collection = OwnedRowField(
        Collection, required=False, allow_null=True, help_text="Reads all its documents. A watch keeps its collection."
    )
    query = serializers.CharField(max_length=500, required=False, allow_blank=True)
    project = OwnedRowField(Project, required=False, allow_null=True)
    agent = OwnedRowField(Agent, required=False, allow_null=True)
    max_cost_usd = UsdField(
        required=False, allow_null=True, help_text="Cap per session; null: the installation's default."
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return super().get_fields() | {each.name: _option_field(each) for each in OPTIONS}


def _option_field(each: Field[Any]) -> serializers.Field[Any, Any, Any, Any]:
    about: dict[str, Any] = {"required": False, "help_text": each.metadata["help"]}
    if choices := each.metadata["choices"]:
        return WordField(choices=choices.choices, **about)
    fields: dict[type, Callable[..., serializers.Field[Any, Any, Any, Any]]] = {
        bool: serializers.BooleanField,
        int: partial(serializers.IntegerField, min_value=0, max_value=MAX_NUMBER),
        str: partial(serializers.CharField, allow_blank=True, max_length=OPTION_CHARS),
        dict: serializers.DictField,
    }
    return fields[each.metadata["type"]](**about)


class RunBody(RunOptionsBody):
    goal = serializers.CharField(
        max_length=GOAL_CHARS,
        required=False,
        allow_blank=True,
        help_text="A goal in plain language. The run works towards it in steps, with skills.",
    )
    document = OwnedRowField(Document, required=False, allow_null=True)


EXAMPLE = OpenApiExample(
    "A playbook over a collection",
    {
        "playbook": "2c1f4c0e-3f57-4d0b-9d3e-5d2a1f0b7c11",
        "collection": "8a6b2f8e-0c1d-4e5f-9a7b-1c2d3e4f5a6b",
        "max_cost_usd": "0.50",
    },
    request_only=True,
)


class RunNowView(SingleView):
    serializer_class = SessionSerializer
    starts = frozenset({"post"})

    @describe({201: SessionSerializer}, body=RunBody, examples=[EXAMPLE], operation_id="run_now")
    def post(self, request: Request) -> Response:
        """Start a run. 422 unless there is a goal, or exactly one playbook or skill.

        A document, a collection or a query selects what is read; a goal may have one too. A run without any of them
        and without a goal calls no model and says so. GET sessions/{id} follows the run.
        """
        data = self.body(RunBody)
        bound = {name: data.pop(name) for name in ("agent", "project") if name in data}
        session = run_now(RunSpec.of(**data), owner=self.user, **self.actor, **bound)
        return Response(SessionSerializer(session).data, status=201)


class PlanSerializer(serializers.Serializer[Any]):
    sections = serializers.IntegerField(help_text="How many sections the documents make, one question for each.")
    section_chars = serializers.IntegerField(source="room", help_text="The most characters of one section.")
    estimate_usd = UsdField(help_text="About what they cost, by the model's price and answers of usual length.")
    cap_usd = UsdField(help_text="A cap that also leaves room for the worst case of one question, which is reserved.")


class RunEstimateView(SingleView):
    serializer_class = PlanSerializer
    changes_nothing = frozenset({"post"})

    @describe(body=RunBody, examples=[EXAMPLE], operation_id="run_estimate")
    def post(self, request: Request) -> Response:
        """In how many sections `run-now` would read a document or a collection, and about what that costs.

        Nothing is started, stored or audited. 422 for a query, a goal and an agentic analysis.
        """
        data = self.body(RunBody)
        bound = {name: data.pop(name) for name in ("agent", "project") if name in data}
        plan = run_estimate(RunSpec.of(**data), owner=self.user, by=self.user, **bound)
        return Response(PlanSerializer(plan).data)


# --- Transcripts: messages that lqops itself wrote are included on request ---


class AskedCall(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.CharField(help_text="JSON, as the model wrote it.")


class EntrySerializer(RowSerializer):
    content = RedactedField(read_only=True)
    calls = AskedCall(many=True, help_text="The calls that the agent requested.")

    class Meta:
        model = Message
        fields = ["seq", "turn", "role", "content", "calls", "call_id", "failed", "stop", "reason", "created_at"]
        extra_kwargs = {"call_id": {"help_text": "For a result: the id of its call."}}


class TranscriptView(ListView[Message]):
    """The transcript of one of your sessions."""

    queryset = Message.objects.none()
    serializer_class = EntrySerializer
    filters = {
        "internal": BooleanFilter(
            method=lambda rows, name, value: rows,
            label="true: include messages that lqops wrote, such as requests to continue.",
        ),
    }

    @describe(EntrySerializer(many=True), operation_id="sessions_transcript")
    def get(self, request: Request, id: UUID) -> Response:  # noqa: A002 as in the URL
        """The transcript of the session, in order: messages, the agent's replies, its calls and their results."""
        session = get_object_or_404(AgentSession, public_id=id, owner_id=self.user.pk)
        rows = Message.objects.filter(session=session).order_by("seq")
        return self.page(rows if request.query_params.get("internal") == "true" else rows.exclude(INTERNAL))
