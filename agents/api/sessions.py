"""Sessions: where each stands, its live receipt, what it found, wrote and called; and the levers: halt and restart."""

from typing import Any
from uuid import UUID

import django_filters
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import Acting, ApiView, OwnedViewSet
from agents.api.fields import Body, NoteField, OwnRow, RunOptionsBody, Shown, UsdField, WordField, ref
from agents.api.knowledge import DocumentShown
from agents.api.paging import YesOrNo, public_id
from agents.api.schema import described
from agents.enums import AgentState, Outcome, Status, TriggerKind
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
from agents.people.access import row_view
from agents.policy.run_spec import GOAL_CHARS, RunSpec
from agents.policy.transitions import agent_state
from agents.sessions.approvals import Decision, tool_call_resolve
from agents.sessions.halts import HaltAnswer, session_halt, sessions_halt
from agents.sessions.reads import PURPOSES, purpose_kind, purposes
from agents.sessions.standing import PERMISSION
from agents.sessions.transcripts import INTERNAL
from agents.triggers.firing import run_now, session_restart
from audit.receipts import UnknownChain, build_receipt
from audit.redaction import redact, redact_data
from audit.rows import UnreadableRow

# Calls of sessions, from the journal; and a person's word on what became of a call that a crash left unknown.


class CallShown(Shown):
    """Arguments are redacted as they came in, and again as they go out. Results are content, and not shown."""

    session = ref("session")
    arguments = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()

    class Meta:
        model = ToolCall
        fields = [
            "id", "session", "key", "attempt", "intent", "name", "version", "phase", "arguments", "digest", "outcome",
            "detail", "error", "approved_usd", "charged_usd", "actual_usd", "model", "tokens", "started_at",
            "settled_at", "resolved_at",
        ]  # fmt: skip

    def get_arguments(self, call: Any) -> dict[str, Any]:
        return dict(redact_data(call.arguments))

    def get_error(self, call: Any) -> str:
        return redact(call.error)


class ResolveBody(Body):
    decision = WordField(choices=[str(decision) for decision in Decision])
    result = serializers.JSONField(required=False, default=None, help_text="What the run is told that it got back.")


class CallFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    outcome = django_filters.ChoiceFilter(choices=Outcome.choices)


class ToolCalls(OwnedViewSet[ToolCall]):
    """Calls of your sessions; who may resolve approvals also reaches everybody's calls of unknown outcome."""

    queryset = ToolCall.objects.all()
    serializer_class = CallShown
    filterset_class = CallFilter
    joins = ("session",)
    decisions = frozenset({"resolve"})
    reaches_others = True

    def reachable(self, rows: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
        mine = Q(session__owner_id=self.person.pk)
        if self.person.has_perm(PERMISSION):
            mine |= Q(outcome=Outcome.UNKNOWN)
        return rows.filter(mine)

    def retrieve(self, request: Request, **_: Any) -> Response:
        call = self.get_object()
        row_view(row=call, by=self.person, now=self.now)
        return Response(CallShown(call).data)

    @described("tool_calls_resolve", CallShown, body=ResolveBody)
    @action(detail=True, methods=["post"])
    def resolve(self, request: Request, **_: Any) -> Response:
        """Says whether a call of unknown outcome happened. Needs the permission to resolve approvals."""
        call, said = self.get_object(), self.body(ResolveBody)
        decided = tool_call_resolve(
            call.pk, Decision(said["decision"]), by=self.person, now=self.now, result=said["result"]
        )
        return Response(CallShown(decided).data)


class PurposeShown(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(
        choices=PURPOSES,
        help_text="`chat`: a message, also one that came as an ask; `run_now`: a person ran it by hand.",
    )
    title = serializers.CharField(help_text="What it is for, in the words at the head of its page.")


class SessionShown(Shown):
    state = serializers.SerializerMethodField()
    purpose = serializers.SerializerMethodField(help_text="Why the session exists.")
    agent = ref("agent")
    trigger = ref("trigger")
    project = ref("project")
    restarted_from = ref("restarted_from")

    class Meta:
        model = AgentSession
        fields = [
            "id", "purpose", "status", "state", "halt_state", "waiting_on", "terminal_reason", "current_phase", "mode",
            "trigger_kind", "agent", "trigger", "project", "restarted_from", "depth", "max_cost_usd", "cost_total_usd",
            "cost_reserved_usd", "cost_actual_usd", "cost_cap_reached", "token_budget", "total_tokens", "created_at",
            "started_at", "completed_at", "next_wake_at", "last_activity_at", "error",
        ]  # fmt: skip
        extra_kwargs = {
            "halt_state": {
                "help_text": "The operator's lever, apart from the status. `running` means that nobody has pulled it, "
                "and stays so when the session completes: `status` says whether it is over."
            }
        }

    @extend_schema_field(PurposeShown)
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


class SessionDetail(SessionShown):
    receipt = serializers.SerializerMethodField(
        help_text="Built from the record at this moment, also while the session runs; null before it has begun."
    )

    class Meta(SessionShown.Meta):
        fields = [*SessionShown.Meta.fields, "params", "context_version", "receipt"]

    def get_receipt(self, session: Any) -> dict[str, Any] | None:
        try:
            return build_receipt(session.chain)
        except (UnknownChain, UnreadableRow):
            return None


class FindingShown(Shown):
    document = ref("document")

    class Meta:
        model = Finding
        fields = [
            "id", "severity", "title", "content", "document", "quote", "quote_start", "quote_end", "quote_check",
            "judges_for", "judges_asked", "created_at",
        ]  # fmt: skip


class HaltBody(Body):
    reason = NoteField(help_text="For people; the record carries the id of the halt, not its words.")


class RestartBody(Body):
    max_cost_usd = UsdField(
        required=False, allow_null=True, help_text="A cap for the new run; null: what its trigger, or the old run, had."
    )


class HaltShown(serializers.Serializer[Any]):
    answer = serializers.ChoiceField(choices=[str(answer) for answer in HaltAnswer])
    session = SessionShown()


class HaltCountShown(serializers.Serializer[Any]):
    requested = serializers.IntegerField()
    already_halted = serializers.IntegerField()
    terminal = serializers.IntegerField()
    failed = serializers.IntegerField()


class SessionFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    status = django_filters.MultipleChoiceFilter(choices=Status.choices)
    trigger_kind = django_filters.ChoiceFilter(choices=TriggerKind.choices)
    trigger = public_id("trigger", "The id of a trigger.")
    agent = public_id("agent", "The id of an agent.")
    project = public_id("project", "The id of a project.")


HALT = OpenApiExample("Halt", {"reason": "It reads the wrong folder."}, request_only=True)


class Sessions(OwnedViewSet[AgentSession]):
    """Your sessions, newest first."""

    queryset = AgentSession.objects.all()
    filterset_class = SessionFilter
    joins = ("agent", "trigger", "project", "restarted_from")
    always_allowed = frozenset({"halt", "halt_all"})
    starts = frozenset({"restart"})

    def get_queryset(self) -> QuerySet[AgentSession]:
        open_calls = ToolCall.objects.open().of_tools().filter(session=OuterRef("pk"))
        return super().get_queryset().annotate(calls_open=Exists(open_calls))

    def paginate_queryset(self, queryset: Any) -> Any:
        """What the sessions of a page are for is looked up for all of them at once."""
        page = super().paginate_queryset(queryset)
        if self.action == "list" and page:
            titles = purposes(page)
            for session in page:
                session.title = titles[session.pk]
        return page

    def get_serializer_class(self) -> type[SessionShown]:
        return SessionShown if self.action == "list" else SessionDetail

    @described("sessions_findings", FindingShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def findings(self, request: Request, **_: Any) -> Response:
        """In the order in which the run wrote them down."""
        rows = self.get_object().findings.select_related("document").order_by("created_at", "id")
        return self.listed(rows, FindingShown)

    @described("sessions_artifacts", DocumentShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def artifacts(self, request: Request, **_: Any) -> Response:
        rows = self.get_object().artifacts.filter(owner_id=self.person.pk, deleted_at__isnull=True)
        return self.listed(rows.select_related("session").order_by("-id"), DocumentShown)

    @described("sessions_calls", CallShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def calls(self, request: Request, **_: Any) -> Response:
        return self.listed(self.get_object().tool_calls.select_related("session").order_by("-id"), CallShown)

    @described("sessions_halt", HaltShown, body=HaltBody, examples=[HALT])
    @action(detail=True, methods=["post"])
    def halt(self, request: Request, **_: Any) -> Response:
        """Asks the session to stop: no call of it starts after this. Said again, it changes nothing."""
        session, said = self.get_object(), self.body(HaltBody)
        answer = session_halt(session.pk, by=self.person, reason=said["reason"], now=self.now)
        fresh = self.get_queryset().get(pk=session.pk)
        return Response(HaltShown({"answer": answer, "session": fresh}, context=self.get_serializer_context()).data)

    @described("sessions_halt_all", HaltCountShown, body=HaltBody, filters=False)
    @action(detail=False, methods=["post"], url_path="halt-all", pagination_class=None)
    def halt_all(self, request: Request) -> Response:
        """Halts every session of yours that is under way, each on its own."""
        mine = AgentSession.objects.active().filter(owner_id=self.person.pk)
        pks = list(mine.order_by("pk").values_list("pk", flat=True))
        counted = sessions_halt(pks, by=self.person, reason=self.body(HaltBody)["reason"], now=self.now)
        return Response(HaltCountShown(counted).data)

    @described("sessions_restart", {201: SessionDetail}, body=RestartBody)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, **_: Any) -> Response:
        """Runs the same work again as a new session, which names the one that it came from.

        A run that its cap has stopped needs a higher one, or it is stopped again.
        """
        said = self.body(RestartBody)
        session = session_restart(session=self.get_object(), by=self.person, now=self.now, **said)
        return self.shown(session, created=True)


# Run now: one session, at once, by one playbook or skill, or towards a goal. The same brakes, the same receipt.


class RunBody(RunOptionsBody):
    playbook = OwnRow(
        Playbook, required=False, allow_null=True, help_text="What to check against; or a skill, or a goal."
    )
    skill = OwnRow(PromptSkill, shared=True, required=False, allow_null=True)
    goal = serializers.CharField(
        max_length=GOAL_CHARS,
        required=False,
        allow_blank=True,
        help_text="What is to be reached, in words: worked towards in steps, with skills. It needs nothing to read.",
    )
    collection = OwnRow(Collection, required=False, allow_null=True, help_text="Reads all of it.")
    document = OwnRow(Document, required=False, allow_null=True)
    query = serializers.CharField(max_length=500, required=False, allow_blank=True)
    project = OwnRow(Project, required=False, allow_null=True)
    agent = OwnRow(Agent, required=False, allow_null=True)
    max_cost_usd = UsdField(required=False, allow_null=True, help_text="null: the installation's default.")


EXAMPLE = OpenApiExample(
    "A playbook over a collection",
    {
        "playbook": "2c1f4c0e-3f57-4d0b-9d3e-5d2a1f0b7c11",
        "collection": "8a6b2f8e-0c1d-4e5f-9a7b-1c2d3e4f5a6b",
        "max_cost_usd": "0.50",
    },
    request_only=True,
)


class RunNow(ApiView):
    serializer_class = SessionShown
    starts = frozenset({"post"})

    @described("run_now", {201: SessionShown}, body=RunBody, examples=[EXAMPLE])
    def post(self, request: Request) -> Response:
        """Starts a run; 422 unless there is a goal, or exactly one playbook or skill.

        What is read is a document, a collection or what fits a query. A goal can have them, too. A run that is given
        none of them, and no goal, asks no model and says so. GET sessions/{id} follows the run.
        """
        said: dict[str, Any] = self.body(RunBody)
        bound = {name: said.pop(name) for name in ("agent", "project") if name in said}
        session = run_now(RunSpec.of(**said), owner=self.person, by=self.person, now=self.now, **bound)
        return Response(SessionShown(session).data, status=201)


# Transcripts: what was said in a run that works in steps. What lqops itself wrote is shown only if it is asked for.


class AskedCall(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.CharField(help_text="JSON, as the model wrote it.")


class EntryShown(serializers.ModelSerializer[Message]):
    """One entry. Redacted as it came in, and again as it goes out."""

    content = serializers.SerializerMethodField()
    calls = AskedCall(many=True, help_text="What the agent asked to have done.")

    class Meta:
        model = Message
        fields = ["seq", "turn", "role", "content", "calls", "call_id", "failed", "stop", "reason", "created_at"]
        read_only_fields = fields
        extra_kwargs = {"call_id": {"help_text": "Of a result: the call that it belongs to."}}

    def get_content(self, entry: Any) -> str:
        return redact(entry.content)


class TranscriptFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    internal = YesOrNo(label="true: also what lqops itself wrote, such as requests to go on.")

    def filter_queryset(self, queryset: QuerySet[Message]) -> QuerySet[Message]:
        return queryset if self.form.cleaned_data["internal"] == "true" else queryset.exclude(INTERNAL)


class Transcript(Acting, generics.GenericAPIView[Message]):
    """What was said in one of your sessions, in order."""

    queryset = Message.objects.none()
    serializer_class = EntryShown
    filterset_class = TranscriptFilter

    @described("sessions_transcript", EntryShown(many=True))
    def get(self, request: Request, id: UUID) -> Response:  # noqa: A002 as the address has it
        """What was said in the session, in order: messages, the agent's words, its calls and their results."""
        session = get_object_or_404(AgentSession, public_id=id, owner_id=self.person.pk)
        said = Message.objects.filter(session=session).order_by("seq")
        rows = self.paginate_queryset(self.filter_queryset(said))
        return self.get_paginated_response(EntryShown(rows, many=True).data)
