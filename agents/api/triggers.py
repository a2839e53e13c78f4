"""Triggers: what spawns sessions, with the caps that bound them. A patch with an explicit null clears a binding.

Who may not start sessions may look at triggers, pause them and delete them.
"""

from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_view
from rest_framework import exceptions, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, OwnRow, RunOptionsBody, Shown, UsdField, WordField, ref
from agents.api.paging import YesOrNo, public_id
from agents.api.schema import described
from agents.api.sessions import SessionShown
from agents.enums import EventOutcome, EventSeverity, TriggerKind
from agents.models import Agent, Collection, InboundEvent, Playbook, Project, PromptSkill, Trigger
from agents.policy.run_spec import OPTION_NAMES, RunSpec
from agents.triggers.events import TITLE_CHARS, WORD_CHARS, EventAnswer, EventIn, event_receive
from agents.triggers.firing import run_now
from agents.triggers.triggers import (
    KINDS,
    trigger_create,
    trigger_delete,
    trigger_edit,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    triggers_set_cap,
)

MOST_AT_ONCE = 200
KINDS_TO_MAKE = [(kind.value, kind.label) for kind in KINDS]


class TriggerShown(Shown):
    agent = ref("agent")
    project = ref("project")
    playbook = ref("playbook")
    skill = ref("skill")
    collection = ref("collection")

    class Meta:
        model = Trigger
        fields = [
            "id", "kind", "name", "enabled", "agent", "project", "playbook", "skill", "collection", "query",
            *OPTION_NAMES,
            "max_cost_usd", "max_cost_per_day_usd",
            "max_runs_per_hour", "pause_after", "cron", "zone", "catch_up_minutes", "next_run_at", "last_run_at",
            "source", "event_type", "category", "min_severity", "failed_in_a_row", "empty_in_a_row", "paused_at",
            "pause_reason", "created_at",
        ]  # fmt: skip


class TriggerPatch(RunOptionsBody):
    name = serializers.CharField(max_length=120)
    enabled = serializers.BooleanField(required=False)
    agent = OwnRow(Agent, required=False, allow_null=True)
    project = OwnRow(Project, required=False, allow_null=True, help_text="null takes the trigger out of its project.")
    playbook = OwnRow(Playbook, required=False, allow_null=True)
    skill = OwnRow(PromptSkill, shared=True, required=False, allow_null=True)
    collection = OwnRow(Collection, required=False, allow_null=True, help_text="A watch keeps the one it was made for.")
    query = serializers.CharField(max_length=500, required=False, allow_blank=True)
    max_cost_usd = UsdField(
        required=False, allow_null=True, help_text="For each session; null: the installation's default."
    )
    max_cost_per_day_usd = UsdField(required=False, allow_null=True, help_text="null: no cap of its own.")
    max_runs_per_hour = CountField(required=False)
    pause_after = CountField(required=False)
    cron = serializers.CharField(max_length=120, required=False, allow_blank=True)
    zone = serializers.CharField(max_length=64, required=False)
    catch_up_minutes = CountField(required=False)
    source = serializers.CharField(  # type: ignore[assignment]  # the column of that name, no place to read from
        max_length=120, required=False, allow_blank=True
    )
    event_type = serializers.CharField(max_length=120, required=False, allow_blank=True)
    category = serializers.CharField(max_length=120, required=False, allow_blank=True)
    min_severity = WordField(choices=EventSeverity.choices, required=False)


class TriggerBody(TriggerPatch):
    kind = WordField(choices=KINDS_TO_MAKE)


class PauseBody(Body):
    reason = serializers.CharField(max_length=24, required=False, help_text="One word, such as by_hand.")


class CapBody(Body):
    triggers = serializers.ListField(child=OwnRow(Trigger), min_length=1, max_length=MOST_AT_ONCE)
    max_cost_usd = UsdField(allow_null=True, help_text="For each session to come; null: the installation's default.")


class SecretShown(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown this once. Messages are signed with it as Standard Webhooks says.")
    generation = serializers.IntegerField()
    old_secret_until = serializers.DateTimeField(help_text="Until then the secret before this one counts too.")


class TriggerFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    kind = django_filters.ChoiceFilter(choices=TriggerKind.choices)
    agent = public_id("agent", "The id of an agent.")
    project = public_id("project", "The id of a project.")
    paused = YesOrNo(method="choose")

    def choose(self, rows: Any, name: str, value: str) -> Any:
        return rows.filter(paused_at__isnull=value == "false")


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


class Triggers(OwnedViewSet[Trigger]):
    """Your triggers, newest first. Deleted ones are left out."""

    queryset = Trigger.objects.all()
    serializer_class = TriggerShown
    filterset_class = TriggerFilter
    joins = ("agent", "project", "playbook", "skill", "collection")
    starts = frozenset({"create", "partial_update", "resume", "rotate_secret", "run", "set_cap"})

    @described("triggers_create", {201: TriggerShown}, body=TriggerBody, examples=[TRIGGER_EXAMPLE])
    def create(self, request: Request) -> Response:
        said = self.body(TriggerBody)
        return self.shown(trigger_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("triggers_edit", TriggerShown, body=TriggerPatch)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Changes what is named, for sessions to come; an explicit null clears a binding or a cap."""
        trigger, said = self.get_object(), self.body(TriggerPatch, partial=True)
        return self.shown(trigger_edit(trigger=trigger, by=self.person, now=self.now, **said))

    @described("triggers_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """It never fires again; its sessions stay."""
        trigger_delete(trigger=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("triggers_pause", TriggerShown, body=PauseBody)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, **_: Any) -> Response:
        trigger, said = self.get_object(), self.body(PauseBody)
        return self.shown(trigger_pause(trigger=trigger, by=self.person, now=self.now, **said))

    @described("triggers_resume", TriggerShown)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, **_: Any) -> Response:
        """Lets it fire again from now on; what the pause left out is not made up for."""
        return self.shown(trigger_resume(trigger=self.get_object(), by=self.person, now=self.now))

    @described("triggers_rotate_secret", SecretShown)
    @action(detail=True, methods=["post"], url_path="rotate-secret")
    def rotate_secret(self, request: Request, **_: Any) -> Response:
        """A new signing secret, shown this once; event triggers only. The one before it counts for a day more."""
        trigger = self.get_object()
        secret = trigger_rotate_secret(trigger=trigger, by=self.person, now=self.now)
        trigger.refresh_from_db()
        found = {"generation": trigger.secret_generation, "old_secret_until": trigger.old_secret_until}
        return Response(SecretShown({"secret": secret, **found}).data)

    @described("triggers_run", {201: SessionShown})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, **_: Any) -> Response:
        """Runs what the trigger would, now, under its caps; 422 if without an event it has nothing to read."""
        session = run_now(RunSpec(), owner=self.person, by=self.person, now=self.now, trigger=self.get_object())
        return Response(SessionShown(session).data, status=201)

    @described("triggers_set_cap", TriggerShown(many=True), body=CapBody, filters=False)
    @action(detail=False, methods=["post"], url_path="set-cap", pagination_class=None)
    def set_cap(self, request: Request) -> Response:
        """Sets the cap of the sessions to come of all the triggers that are named, or of none."""
        said = self.body(CapBody)
        rows = triggers_set_cap(triggers=said["triggers"], cap=said["max_cost_usd"], by=self.person, now=self.now)
        fresh = self.get_queryset().filter(pk__in=[row.pk for row in rows])
        return Response(TriggerShown(fresh, many=True).data)


# Events: sent in by integrations, judged by the rules of the person's own triggers, and kept with what came of them.
#
# What an event says is data: it chooses a trigger by rules that people wrote, and nothing else.


REFUSED_FROM = 400


class EventShown(Shown):
    trigger = ref("trigger")
    session = ref("session")

    class Meta:
        model = InboundEvent
        fields = [
            "id", "source", "event_type", "category", "severity", "title", "outcome", "trigger", "session",
            "received_at",
        ]  # fmt: skip


class EventDetail(EventShown):
    class Meta(EventShown.Meta):
        fields = [*EventShown.Meta.fields, "data"]


class EventBody(Body):
    source = serializers.CharField(  # type: ignore[assignment]  # the column of that name, no place to read from
        max_length=WORD_CHARS, required=False, allow_blank=True
    )
    event_type = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    category = serializers.CharField(max_length=WORD_CHARS, required=False, allow_blank=True)
    severity = WordField(choices=EventSeverity.choices, required=False)
    title = serializers.CharField(max_length=TITLE_CHARS, required=False, allow_blank=True)
    data = serializers.DictField(required=False)  # type: ignore[assignment]  # the event's, not the serializer's
    target_agent = serializers.CharField(
        max_length=WORD_CHARS,
        required=False,
        allow_blank=True,
        help_text="The name or the id of an agent of yours: the event goes to it, even if none of its rules fits.",
    )


class EventAnswerShown(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="spawned, no_match, or would_spawn for a dry run.")
    message = serializers.CharField()
    event = serializers.UUIDField(source="event_id", allow_null=True)
    session = serializers.UUIDField(source="session_id", allow_null=True)
    trigger = serializers.UUIDField(source="trigger_id", allow_null=True)
    score = serializers.IntegerField(allow_null=True, help_text="How well the rule of the trigger fits.")


class EventRefused(exceptions.APIException):
    """The trigger that the event is for does not fire now; the answer says why and, if known, when to ask again."""

    def __init__(self, answer: EventAnswer) -> None:
        self.status_code, self.default_code, self.wait = answer.status, answer.code, answer.retry_after
        super().__init__(answer.message)


class EventFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    outcome = django_filters.ChoiceFilter(choices=EventOutcome.choices)
    trigger = public_id("trigger", "The id of a trigger.")


EVENT_EXAMPLE = OpenApiExample(
    "An alarm",
    {"source": "monitor", "event_type": "contract.uploaded", "severity": "warning", "title": "New draft of the lease"},
    request_only=True,
)


@extend_schema_view(
    list=extend_schema(operation_id="events_list"), retrieve=extend_schema(operation_id="events_retrieve")
)
class Events(OwnedViewSet[InboundEvent]):
    """Events that came in for you, newest first, with what came of each."""

    queryset = InboundEvent.objects.all()
    filterset_class = EventFilter
    joins = ("trigger", "session")
    throttle_kind = "events"
    changes_nothing = frozenset({"dry_run"})
    starts = frozenset({"create"})

    def get_serializer_class(self) -> type[EventShown]:
        return EventShown if self.action == "list" else EventDetail

    @described("events_send", EventAnswerShown, body=EventBody, examples=[EVENT_EXAMPLE])
    def create(self, request: Request) -> Response:
        """Spawns a session of the trigger whose rule fits best. That none fits is remembered, and is no error."""
        return self._answered(event_receive(owner=self.person, event=self._event(), now=self.now))

    @described("events_dry_run", EventAnswerShown, body=EventBody, filters=False)
    @action(detail=False, methods=["post"], url_path="dry-run", pagination_class=None)
    def dry_run(self, request: Request) -> Response:
        """Says which trigger it would be. Nothing is spawned, stored or recorded."""
        return self._answered(event_receive(owner=self.person, event=self._event(), now=self.now, dry_run=True))

    def _event(self) -> EventIn:
        return EventIn(**self.body(EventBody))

    def _answered(self, answer: EventAnswer) -> Response:
        if answer.status >= REFUSED_FROM:
            raise EventRefused(answer)
        return Response(EventAnswerShown(answer).data, status=answer.status)
