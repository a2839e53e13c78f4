"""Sessions: where each stands, its live receipt, what it found, wrote and called; and the levers: halt and restart."""

from typing import Any

import django_filters
from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.documents import DocumentShown
from agents.api.fields import Body, NoteField, Shown, UsdField, ref
from agents.api.filtering import public_id
from agents.api.schema import described
from agents.api.tool_calls import CallShown
from agents.enums import AgentState, Status, TriggerKind
from agents.models import AgentSession, Finding, ToolCall
from agents.policy.transitions import agent_state
from agents.sessions.halts import HaltAnswer, session_halt, sessions_halt
from agents.sessions.reads import PURPOSES, purpose_kind, purposes
from agents.triggers.firing import session_restart
from audit.receipts import UnknownChain, build_receipt
from audit.rows import UnreadableRow


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
