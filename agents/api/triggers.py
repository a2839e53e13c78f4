"""Triggers, which start sessions under caps, and inbound events.

Users without the permission to start sessions can still read, pause and delete their triggers. The content of an event
is data: it selects a trigger by its rules, and nothing else.
"""

from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiExample
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import CappedViewSet, OwnedViewSet, act_with, create_with, delete_with, month_cap
from agents.api.fields import Body, CountField, OwnedRowField, RowSerializer, UsdField, WordField, ref
from agents.api.paging import BooleanFilter, public_id_filter
from agents.api.schema import describe, detail_action, list_action
from agents.api.sessions import RunOptionsBody, SessionSerializer
from agents.definitions.schema import TRIGGER_KINDS
from agents.enums import BudgetScope, EventOutcome, EventSeverity, InputState, TriggerKind
from agents.models import InboundEvent, Trigger, UnreadInput
from agents.policy.run_spec import OPTION_NAMES, RunSpec
from agents.triggers.events import TITLE_CHARS, WORD_CHARS, EventAnswer, EventIn, event_receive
from agents.triggers.firing import run_now
from agents.triggers.inputs import input_dismiss, input_retry
from agents.triggers.triggers import (
    trigger_create,
    trigger_delete,
    trigger_edit,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    triggers_set_cap,
)

MOST_AT_ONCE = 200
KINDS_TO_MAKE = [(kind.value, kind.label) for kind in TRIGGER_KINDS]
REFUSED_FROM = 400


# --- Triggers ---


class TriggerSerializer(RowSerializer):
    agent = ref("agent")
    project = ref("project")
    playbook = ref("playbook")
    skill = ref("skill")
    collection = ref("collection")
    max_cost_per_month_usd = month_cap()

    class Meta:
        model = Trigger
        fields = [
            "id", "kind", "name", "enabled", "agent", "project", "playbook", "skill", "collection", "query",
            *OPTION_NAMES,
            "max_cost_usd", "max_cost_per_day_usd", "max_cost_per_month_usd",
            "max_runs_per_hour", "pause_after", "cron", "zone", "catch_up_minutes", "next_run_at", "last_run_at",
            "source", "event_type", "category", "min_severity", "failed_in_a_row", "empty_in_a_row", "paused_at",
            "pause_reason", "created_at",
        ]  # fmt: skip


class TriggerPatch(RunOptionsBody):
    name = serializers.CharField(max_length=120)
    enabled = serializers.BooleanField(required=False)
    max_cost_per_day_usd = UsdField(required=False, allow_null=True, help_text="Cap per day; null: no cap of its own.")
    max_runs_per_hour = CountField(required=False)
    pause_after = CountField(required=False)
    cron = serializers.CharField(max_length=120, required=False, allow_blank=True)
    zone = serializers.CharField(max_length=64, required=False)
    catch_up_minutes = CountField(required=False)
    source = serializers.CharField(  # type: ignore[assignment]  # a field, not where to read from
        max_length=120, required=False, allow_blank=True
    )
    event_type = serializers.CharField(max_length=120, required=False, allow_blank=True)
    category = serializers.CharField(max_length=120, required=False, allow_blank=True)
    min_severity = WordField(choices=EventSeverity.choices, required=False)


class TriggerBody(TriggerPatch):
    kind = WordField(choices=KINDS_TO_MAKE)


class PauseBody(Body):
    reason = serializers.CharField(max_length=24, required=False, help_text="One word, such as by_hand.")
    with_runs = serializers.BooleanField(
        required=False, help_text="Also pauses the sessions that it has now, until it is resumed. Default: they go on."
    )


class CapBody(Body):
    triggers = serializers.ListField(child=OwnedRowField(Trigger), min_length=1, max_length=MOST_AT_ONCE)
    max_cost_usd = UsdField(allow_null=True, help_text="Cap per future session; null: the installation's default.")


class SecretSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown once. Signs messages as defined by Standard Webhooks.")
    generation = serializers.IntegerField()
    old_secret_until = serializers.DateTimeField(help_text="The old secret stays valid until then.")


TRIGGER_EXAMPLE = OpenApiExample(
    "A schedule",
    {
        "kind": "schedule",
        "name": "Monday review",
        "cron": "0 6 * * 1",
        "zone": "Europe/Berlin",
        "playbook": "2c1f4c0e-3f57-4d0b-9d3e-5d2a1f0b7c11",
        "collection": "8a6b2f8e-0c1d-4e5f-9a7b-1c2d3e4f5a6b",
        "max_cost_usd": "0.50",
    },
    request_only=True,
)


class TriggerViewSet(CappedViewSet[Trigger]):
    """Your triggers, newest first."""

    budget_scope = BudgetScope.TRIGGER
    queryset = Trigger.objects.all()
    serializer_class = TriggerSerializer
    filters = {
        "kind": django_filters.ChoiceFilter(choices=TriggerKind.choices),
        "agent": public_id_filter("agent"),
        "project": public_id_filter("project"),
        "paused": BooleanFilter(field_name="paused_at", lookup_expr="isnull", exclude=True),
    }
    joins = ("agent", "project", "playbook", "skill", "collection")
    starts = frozenset({"create", "partial_update", "resume", "rotate_secret", "run", "set_cap", "caps"})
    create = create_with(trigger_create, TriggerBody, examples=[TRIGGER_EXAMPLE])
    destroy = delete_with(trigger_delete, "Delete the trigger. Its sessions stay.")
    pause = act_with("pause", trigger_pause, body=PauseBody)
    resume = act_with("resume", trigger_resume, "Resume the trigger. Runs that the pause skipped are not made up for.")

    @describe(body=TriggerPatch)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Change the fields that are sent, for future sessions. null clears a binding or a cap."""
        return self.act(trigger_edit, TriggerPatch, partial=True)

    @detail_action(SecretSerializer)
    def rotate_secret(self, request: Request, **_: Any) -> Response:
        """Create a new signing secret, shown once; event triggers only. The old secret stays valid for 24 hours."""
        trigger = self.get_object()
        secret = trigger_rotate_secret(trigger=trigger, **self.actor)
        trigger.refresh_from_db()
        found = {"generation": trigger.secret_generation, "old_secret_until": trigger.old_secret_until}
        return Response(SecretSerializer({"secret": secret, **found}).data)

    @detail_action({201: SessionSerializer})
    def run(self, request: Request, **_: Any) -> Response:
        """Run the trigger now, under its caps. 422 if it has nothing to read without an event."""
        session = run_now(RunSpec(), owner=self.user, **self.actor, trigger=self.get_object())
        return Response(SessionSerializer(session).data, status=201)

    @list_action(TriggerSerializer(many=True), body=CapBody)
    def set_cap(self, request: Request) -> Response:
        """Set the cap of future sessions of all these triggers, or, on an error, of none."""
        data = self.body(CapBody)
        rows = triggers_set_cap(triggers=data["triggers"], cap=data["max_cost_usd"], **self.actor)
        fresh = self.get_queryset().filter(pk__in=[row.pk for row in rows])
        return Response(TriggerSerializer(fresh, many=True).data)


# --- Inbound events ---


class EventSerializer(RowSerializer):
    trigger = ref("trigger")
    session = ref("session")

    class Meta:
        model = InboundEvent
        fields = [
            "id", "source", "event_type", "category", "severity", "title", "outcome", "trigger", "session",
            "received_at",
        ]  # fmt: skip


class EventDetailSerializer(EventSerializer):
    class Meta(EventSerializer.Meta):
        fields = [*EventSerializer.Meta.fields, "data"]


class EventBody(Body):
    source = serializers.CharField(  # type: ignore[assignment]  # a field, not where to read from
        max_length=WORD_CHARS, required=False, allow_blank=True
    )
    event_type = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    category = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    severity = WordField(choices=EventSeverity.choices, required=False)
    title = serializers.CharField(max_length=TITLE_CHARS, required=False, allow_blank=True)
    data = serializers.DictField(required=False)  # type: ignore[assignment]  # a field, not the serializer's
    target_agent = serializers.CharField(
        max_length=WORD_CHARS,
        required=False,
        allow_blank=True,
        help_text="Name or id of one of your agents: the event goes to it, even if none of its rules match.",
    )


class EventAnswerSerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="spawned, no_match, or would_spawn for a dry run.")
    message = serializers.CharField()
    event = serializers.UUIDField(source="event_id", allow_null=True)
    session = serializers.UUIDField(source="session_id", allow_null=True)
    trigger = serializers.UUIDField(source="trigger_id", allow_null=True)
    score = serializers.IntegerField(allow_null=True, help_text="How well the trigger's rule matches.")


class EventRefused(exceptions.APIException):
    """The trigger of the event does not fire now; the message says why and, if known, when to retry."""

    def __init__(self, answer: EventAnswer) -> None:
        self.status_code, self.default_code, self.wait = answer.status, answer.code, answer.retry_after
        super().__init__(answer.message)


EVENT_EXAMPLE = OpenApiExample(
    "An alarm",
    {"source": "monitor", "event_type": "contract.uploaded", "severity": "warning", "title": "New draft of the lease"},
    request_only=True,
)


class EventViewSet(OwnedViewSet[InboundEvent]):
    """Events received for you, newest first, each with its outcome."""

    queryset = InboundEvent.objects.all()
    serializer_class = EventSerializer
    detail_serializer_class = EventDetailSerializer
    filters = {
        "outcome": django_filters.ChoiceFilter(choices=EventOutcome.choices),
        "trigger": public_id_filter("trigger"),
    }
    joins = ("trigger", "session")
    resource = "events"
    throttle_kind = "events"
    changes_nothing = frozenset({"dry_run"})
    starts = frozenset({"create"})

    @describe({200: EventAnswerSerializer}, body=EventBody, examples=[EVENT_EXAMPLE], operation_id="events_send")
    def create(self, request: Request) -> Response:
        """Start a session of the trigger whose rule matches best. An event without a match is stored too."""
        return self._receive()

    @list_action(EventAnswerSerializer, body=EventBody)
    def dry_run(self, request: Request) -> Response:
        """Which trigger would fire. Nothing is started, stored or recorded."""
        return self._receive(dry_run=True)

    def _receive(self, *, dry_run: bool = False) -> Response:
        event = EventIn(**self.body(EventBody))
        answer = event_receive(owner=self.user, event=event, now=self.now, dry_run=dry_run)
        if answer.status >= REFUSED_FROM:
            raise EventRefused(answer)
        return Response(EventAnswerSerializer(answer).data, status=answer.status)


# --- Unread inputs ---


class UnreadInputSerializer(RowSerializer):
    trigger = ref("trigger")
    session = ref("session")

    class Meta:
        model = UnreadInput
        fields = ["id", "state", "reason", "tries", "due_at", "failed_at", "trigger", "session"]


class UnreadInputViewSet(OwnedViewSet[UnreadInput]):
    """Inputs that sessions of your triggers did not read, newest first. Inputs that were read are not listed."""

    queryset = UnreadInput.objects.all()
    serializer_class = UnreadInputSerializer
    filters = {
        "state": django_filters.ChoiceFilter(choices=InputState.choices),
        "trigger": public_id_filter("trigger"),
    }
    joins = ("trigger", "session")
    row_name = "unread_input"
    starts = frozenset({"retry"})
    retry = act_with("retry", input_retry, "Start another session for it at once, with a new count of tries.")
    dismiss = act_with("dismiss", input_dismiss, "Leave it unread. It can still be retried.")
