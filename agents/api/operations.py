"""The user's account and channels, today's costs, the installation's halt and release, and its health."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import django_filters
from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Greatest
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.accounts import email_copies_set, limits_of, limits_set, profile_set
from agents.api.access import require_scope
from agents.api.base import OwnedViewSet, SingleView, act_with, delete_with
from agents.api.fields import Body, NoteField, RowSerializer, UsdField, WordField, ref
from agents.api.paging import MOST_COUNTED
from agents.api.schema import describe, detail_action
from agents.enums import (
    ApprovalMode,
    ApprovalStatus,
    BudgetPeriod,
    BudgetScope,
    ChannelKind,
    Level,
    News,
    NewsChoice,
    OutboxStatus,
)
from agents.exceptions import NotFound
from agents.models import (
    Agent,
    AgentSession,
    ApiKey,
    Approval,
    Budget,
    Channel,
    Halt,
    Installation,
    Notification,
    OutboxMessage,
    Pause,
    Profile,
    SuspendedModel,
    ToolCall,
    Trigger,
)
from agents.models.expressions import Likely
from agents.models.fields import MicroUSDField
from agents.models.sessions import spent_by_run
from agents.people.access import LOOSEN_PERMISSION, NOT_FOUND, require_halt_permission, require_start_permission
from agents.people.channels import (
    ADDRESS_CHARS,
    NAME_CHARS,
    channel_create,
    channel_delete,
    channel_rotate_secret,
    channel_secret,
    channel_update,
    email_is_on,
)
from agents.people.delegations import is_approver
from agents.people.keys import Scope
from agents.people.outbox import channel_test, copy_discard, copy_replay
from agents.policy.news import choice_of
from agents.roster.release import Released, work_release
from agents.sessions.control_room import budgets_binding
from agents.sessions.halts import halt_all_work, halt_reach
from agents.sessions.pauses import work_pause, work_paused, work_resume


class MeSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    opted_in = serializers.BooleanField(help_text="Whether agents may run for you.")
    email_notices = serializers.BooleanField(
        help_text="Whether notifications are also e-mailed, if you have an address."
    )
    may_resolve_approvals = serializers.BooleanField(help_text="In your own right, or for somebody who is away.")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=[str(scope) for scope in Scope]))
    key_expires_at = serializers.DateTimeField(allow_null=True, help_text="null in a browser.")


class MePatch(Body):
    opted_in = serializers.BooleanField(required=False)
    halt_all = serializers.BooleanField(
        required=False, help_text="With opted_in false: also halts all your sessions. Default: they may finish."
    )
    email_notices = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("halt_all") and attrs.get("opted_in") is not False:
            raise serializers.ValidationError({"halt_all": ["Only allowed together with opted_in false."]})
        return attrs


class MeView(SingleView):
    serializer_class = MeSerializer
    always_allowed = frozenset({"patch"})  # opting in cannot need an opt-in

    def get(self, request: Request) -> Response:
        return Response(self._me())

    @describe(body=MePatch)
    def patch(self, request: Request) -> Response:
        """Opt in or out, and switch e-mail notifications. After opting out nothing new starts, and loops end."""
        data = self.body(MePatch)
        if "opted_in" in data:
            profile_set(user=self.user, **self.actor, opted_in=data["opted_in"], halt_all=data.get("halt_all", False))
        if "email_notices" in data:
            email_copies_set(user=self.user, **self.actor, enabled=data["email_notices"])
        return Response(self._me())

    def _me(self) -> dict[str, Any]:
        key = self.request.auth if isinstance(self.request.auth, ApiKey) else None
        profile = Profile.objects.filter(user_id=self.user.pk).first() or Profile()
        me = {
            "username": self.user.username,
            "opted_in": profile.opted_in,
            "email_notices": email_is_on(self.user.pk),
            "may_resolve_approvals": is_approver(self.user, self.now),
            "scopes": key.scopes if key else list(Scope),
            "key_expires_at": key.expires_at if key else None,
        }
        return dict(MeSerializer(me).data)


# --- Ceilings of people ---


class CeilingsSerializer(serializers.Serializer[Any]):
    mode = serializers.ChoiceField(choices=ApprovalMode.choices, help_text="The laxest approval mode of an agent.")
    highest_level = serializers.ChoiceField(choices=Level.choices, help_text="The highest level of an agent's skills.")
    max_cost_usd = UsdField(help_text="Highest cap of a run.")
    max_cost_per_day_usd = UsdField(help_text="Highest cap per day of one agent or trigger.")
    together_per_day_usd = UsdField(allow_null=True, help_text="Cap per UTC day of all runs together; null: none.")


class CeilingsPatch(Body):
    mode = WordField(choices=ApprovalMode.choices, required=False, allow_null=True, help_text="null: the default.")
    highest_level = WordField(choices=Level.choices, required=False, allow_null=True, help_text="null: the default.")
    max_cost_usd = UsdField(required=False, allow_null=True, help_text="null: the default.")
    max_cost_per_day_usd = UsdField(required=False, allow_null=True, help_text="null: the default.")
    together_per_day_usd = UsdField(required=False, allow_null=True, help_text="null: none.")


class CeilingsView(SingleView):
    serializer_class = CeilingsSerializer

    @describe(operation_id="ceilings_retrieve")
    def get(self, request: Request, name: str) -> Response:
        """What a person's agents, triggers and runs are at most. Of others with the permission agents.loosen."""
        return Response(CeilingsSerializer(limits_of(self._person(name))).data)

    @describe(body=CeilingsPatch, operation_id="ceilings_edit")
    def patch(self, request: Request, name: str) -> Response:
        """Set a person's ceilings. Needs the permission agents.loosen; a key also needs the scope `admin`."""
        limits = limits_set(user=self._person(name), **self.actor, **self.body(CeilingsPatch, partial=True))
        return Response(CeilingsSerializer(limits).data)

    def _person(self, name: str) -> User:
        user = User.objects.filter(username=name).first()
        if user is None or (user.pk != self.user.pk and not self.user.has_perm(LOOSEN_PERMISSION)):
            raise NotFound(NOT_FOUND)
        return user


# --- Channels, and what was delivered there ---


class ChannelSerializer(RowSerializer):
    address = serializers.CharField(source="shown_address", read_only=True, help_text="Without its secret parts.")
    choices = serializers.SerializerMethodField(help_text="When it gets each group of notifications.")

    class Meta:
        model = Channel
        fields = [
            "id", "kind", "name", "address", "enabled", "choices", "zone", "quiet_from", "quiet_until", "digest_at",
            "failures", "retry_at", "error", "last_sent_at", "created_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.DictField(child=serializers.ChoiceField(choices=NewsChoice.values)))
    def get_choices(self, row: Channel) -> dict[str, str]:
        return {news.value: choice_of(row.choices, news).value for news in News}


class ChannelPatch(Body):
    name = serializers.CharField(max_length=NAME_CHARS, required=False)
    address = serializers.CharField(
        max_length=ADDRESS_CHARS, required=False, help_text="https://… of a webhook, or slack://… and others of a chat."
    )
    enabled = serializers.BooleanField(required=False, help_text="false: nothing is sent, and what waits is dropped.")
    choices = serializers.DictField(
        child=serializers.CharField(max_length=20),
        required=False,
        help_text=f"Groups: {', '.join(News.values)}. Choices: {', '.join(NewsChoice.values)}. Else the default.",
    )
    zone = serializers.CharField(max_length=64, required=False, help_text="IANA name, of quiet hours and digest.")
    quiet_from = serializers.TimeField(required=False, allow_null=True)
    quiet_until = serializers.TimeField(required=False, allow_null=True)
    digest_at = serializers.TimeField(required=False)


class ChannelBody(ChannelPatch):
    kind = WordField(choices=[str(ChannelKind.WEBHOOK), str(ChannelKind.CHAT)])
    name = serializers.CharField(max_length=NAME_CHARS)
    address = serializers.CharField(max_length=ADDRESS_CHARS)


class ChannelCreatedSerializer(ChannelSerializer):
    """A new channel, with its signing secret."""

    secret = serializers.SerializerMethodField(
        help_text="Shown once: what messages to a webhook are signed with, as Standard Webhooks defines. null: a chat."
    )

    class Meta(ChannelSerializer.Meta):
        fields = [*ChannelSerializer.Meta.fields, "secret"]

    def get_secret(self, row: Channel) -> str | None:
        return channel_secret(row) if row.kind == ChannelKind.WEBHOOK else None


class ChannelSecretSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown once. Messages are signed with it as Standard Webhooks defines.")
    generation = serializers.IntegerField()
    old_secret_until = serializers.DateTimeField(allow_null=True, help_text="The old secret signs too until then.")


class ChannelTestSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField(help_text="Whether the receiver took the test message.")
    text = serializers.CharField(help_text="The answer of the receiver, or why it was not reached.")


class ChannelViewSet(OwnedViewSet[Channel]):
    """Where you are told outside the application. The e-mail channel is there once a first e-mail was written."""

    queryset = Channel.objects.all()
    serializer_class = ChannelSerializer
    always_allowed = frozenset({"create", "partial_update", "destroy", "rotate_secret", "test"})
    destroy = delete_with(channel_delete, "Delete a webhook or a chat. E-mail is switched off instead.")

    @describe({201: ChannelCreatedSerializer}, body=ChannelBody)
    def create(self, request: Request) -> Response:
        """Add a webhook or a chat. The signing secret of a webhook is in this answer and in no other."""
        channel = channel_create(owner=self.user, **self.actor, **self.body(ChannelBody))
        fresh = self.get_queryset().get(pk=channel.pk)
        return Response(ChannelCreatedSerializer(fresh).data, status=201)

    @describe(body=ChannelPatch)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Change a channel. `choices` replaces all choices."""
        return self.act(channel_update, ChannelPatch, partial=True)

    @detail_action(ChannelSecretSerializer)
    def rotate_secret(self, request: Request, **_: Any) -> Response:
        """Create a signing secret, shown once; webhooks only. For 24 hours the old one signs too."""
        row = self.get_object()
        secret = channel_rotate_secret(channel=row, **self.actor)
        row.refresh_from_db()
        found = {"generation": row.secret_generation, "old_secret_until": row.old_secret_until}
        return Response(ChannelSecretSerializer({"secret": secret, **found}).data)

    @detail_action(ChannelTestSerializer)
    def test(self, request: Request, **_: Any) -> Response:
        """Send a test message now, and say whether it arrived. Answers 200 also if it did not."""
        return Response(ChannelTestSerializer(channel_test(channel=self.get_object(), **self.actor)).data)


class DeliverySerializer(RowSerializer):
    channel = ref("channel")
    notification = ref("notification")
    title = serializers.CharField(source="notification.title", read_only=True)

    class Meta:
        model = OutboxMessage
        fields = [
            "id", "channel", "notification", "title", "status", "attempts", "due_at", "digest_for", "sent_at", "error",
            "created_at",
        ]  # fmt: skip


class DeliveryViewSet(OwnedViewSet[OutboxMessage]):
    """Messages to your channels: sent, waiting and not delivered."""

    queryset = OutboxMessage.objects.all()
    serializer_class = DeliverySerializer
    filters = {"status": django_filters.ChoiceFilter(choices=OutboxStatus.choices)}
    joins = ("channel", "notification")
    row_name = "copy"
    always_allowed = frozenset({"replay", "destroy"})
    replay = act_with("replay", copy_replay, "Send a message again that could not be delivered, under its old id.")
    destroy = delete_with(copy_discard, "Discard a message that could not be delivered.")

    def visible(self, rows: QuerySet[OutboxMessage]) -> QuerySet[OutboxMessage]:
        return rows.filter(channel__owner_id=self.user.pk)


# --- Costs of the current UTC day ---


AMOUNTS = ("spent_usd", "charged_usd", "reserved_usd", "actual_usd")
MOST_LISTED = 50


class SpendSerializer(serializers.Serializer[Any]):
    spent_usd = UsdField(help_text="Cost: the larger of `charged_usd` and `actual_usd`.")
    charged_usd = UsdField(help_text="Approved estimates of the calls that were made.")
    reserved_usd = UsdField(help_text="Reserved for calls in flight.")
    actual_usd = UsdField(help_text="Cost reported by the providers.")
    cap_usd = UsdField(allow_null=True, help_text="Cap for the day; null: no cap of its own.")


class SubjectSpendSerializer(SpendSerializer):
    id = serializers.UUIDField()
    name = serializers.CharField()
    session_cap_usd = UsdField(allow_null=True, help_text="Cap per session; triggers only.")


class TotalSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Number of rows, listed or not.")
    spent_usd = UsdField(help_text="The sum of what each of them spent.")
    charged_usd = UsdField()
    reserved_usd = UsdField()
    actual_usd = UsdField()


class BudgetSerializer(SpendSerializer):
    scope = serializers.ChoiceField(choices=BudgetScope.choices)
    name = serializers.CharField()
    period = serializers.ChoiceField(choices=BudgetPeriod.choices)
    reserved_usd = UsdField(source="open_usd", help_text="Reserved for calls in flight.")
    cap_usd = UsdField(help_text="Cap for the period.")


class CostsSerializer(serializers.Serializer[Any]):
    day = serializers.DateField()
    sessions_spent_usd = UsdField(help_text="Your sessions that started today.")
    sessions_charged_usd = UsdField(help_text="Their approved estimates, for clients from before.")
    triggers = SubjectSpendSerializer(many=True, help_text=f"At most {MOST_LISTED}, the most expensive first.")
    triggers_total = TotalSerializer()
    agents = SubjectSpendSerializer(many=True, help_text=f"At most {MOST_LISTED}, the most expensive first.")
    agents_total = TotalSerializer()
    installation = SpendSerializer(help_text="All users together. Its cap also stops your sessions.")
    budgets = BudgetSerializer(
        many=True, help_text="The budgets of this day and month with a cap that stops your sessions, at most 50."
    )


class CostsView(SingleView):
    serializer_class = CostsSerializer

    def get(self, request: Request) -> Response:
        today = self.now.astimezone(UTC).date()
        begin = datetime.combine(today, time.min, UTC)
        started = {"created_at__gte": begin, "created_at__lt": begin + timedelta(days=1)}
        sessions = AgentSession.objects.filter(owner_id=self.user.pk, **started)
        sums = sessions.aggregate(spent=Sum(spent_by_run()), charged=Sum("cost_total_usd"))
        triggers = Trigger.objects.filter(owner_id=self.user.pk, deleted_at__isnull=True).order_by("-id")
        agents = Agent.objects.filter(owner_id=self.user.pk).order_by("-id")
        budgets = Budget.objects.daily().filter(day=today)
        whole = budgets.filter(scope=BudgetScope.INSTALLATION).first()
        found = {
            "day": today,
            "sessions_spent_usd": sums["spent"] or 0,
            "sessions_charged_usd": sums["charged"] or 0,
            **_costs_of("triggers", triggers, budgets.filter(scope=BudgetScope.TRIGGER)),
            **_costs_of("agents", agents, budgets.filter(scope=BudgetScope.AGENT)),
            "installation": _spend(whole, Installation.objects.filter(pk=1).first()),
            "budgets": budgets_binding(self.user, self.now),
        }
        return Response(CostsSerializer(found).data)


def _costs_of(name: str, subjects: QuerySet[Any], budgets: QuerySet[Budget]) -> dict[str, Any]:
    """The most expensive subjects, then the newest, and the total of all."""
    budgets = budgets.filter(subject_id__in=subjects.order_by().values("pk"))
    spent = Greatest("charged_usd", "actual_usd", output_field=MicroUSDField())
    rows = {row.subject_id: row for row in budgets.order_by(spent.desc(), "-subject_id")[:MOST_LISTED]}
    found = subjects.in_bulk(rows)
    listed = [found[pk] for pk in rows] + list(subjects.exclude(pk__in=rows)[: MOST_LISTED - len(rows)])
    sums = budgets.aggregate(**{amount: Sum(spent if amount == "spent_usd" else amount) for amount in AMOUNTS})
    return {
        name: [
            {
                "id": subject.public_id,
                "name": subject.name,
                "session_cap_usd": getattr(subject, "max_cost_usd", None),
                **_spend(rows.get(subject.pk), subject),
            }
            for subject in listed
        ],
        f"{name}_total": {"count": subjects.count(), **{amount: sums[amount] or 0 for amount in AMOUNTS}},
    }


def _spend(budget: Budget | None, subject: Any) -> dict[str, Any]:
    amounts = {amount: getattr(budget or Budget(), amount) for amount in AMOUNTS}
    return {**amounts, "cap_usd": subject.max_cost_per_day_usd if subject else None}


# --- Halt and release of all work, of all users ---


class HaltAllBody(Body):
    reason = NoteField(help_text="Reason, for people who find it halted.")
    end_waiting = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Also ends sessions that only wait for a person. Default: they are paused until the release.",
    )


class ReleaseBody(Body):
    keep_paused = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Keeps the sessions that the halt spared paused, to be resumed one by one. Default: they go on.",
    )
    start_again = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Starts the agents again whose loops or heartbeats the halt has ended. A key needs the scope write.",
    )
    run_again = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Starts a new run for each run that the halt has ended. A key needs the scope write.",
    )


class PauseReasonBody(Body):
    reason = NoteField(help_text="Reason, for people who find it paused.")


class AllWorkSerializer(serializers.Serializer[Any]):
    halted = serializers.SerializerMethodField(help_text="Whether all work is halted now.")
    reason = serializers.CharField(help_text="The reason of the first request, if the halt was requested again.")
    requested_by = serializers.CharField(
        source="requested_by.username", allow_null=True, help_text="null: a command without a user."
    )
    requested_at = serializers.DateTimeField()
    released_at = serializers.DateTimeField(allow_null=True)
    sessions = serializers.SerializerMethodField(
        help_text="Number of sessions that the halt ends; of a release, those that it ended."
    )
    spared = serializers.SerializerMethodField(help_text="Number of sessions that wait for a person and are paused.")

    def get_halted(self, halt: Halt) -> bool:
        return halt.released_at is None

    def get_spared(self, halt: Halt) -> int:
        spared: int = self.context.get("spared", 0)
        return spared

    def get_sessions(self, halt: Halt) -> int:
        active: int | None = self.context.get("active")
        return halt_reach(halt) if active is None else active


class ReleasedSerializer(AllWorkSerializer):
    started_again = serializers.SerializerMethodField(help_text="Agents that were started again.")
    run_again = serializers.SerializerMethodField(help_text="Ids of the ended sessions that were run again.")
    refused = serializers.SerializerMethodField(help_text="What was not started again, and why.")
    not_running = serializers.SerializerMethodField(
        help_text="Agents that were started earlier, do not run, and do not start again by themselves."
    )

    @property
    def _released(self) -> Released:
        found: Released = self.context["released"]
        return found

    def get_started_again(self, halt: Halt) -> list[str]:
        return [agent.name for agent in self._released.agents]

    def get_run_again(self, halt: Halt) -> list[str]:
        return [str(run.public_id) for run in self._released.runs]

    def get_refused(self, halt: Halt) -> list[str]:
        return list(self._released.refused)

    def get_not_running(self, halt: Halt) -> list[str]:
        return list(self._released.not_running)


class HaltView(SingleView):
    serializer_class = AllWorkSerializer
    always_allowed = frozenset({"post"})

    @describe(body=HaltAllBody, operation_id="halt_everything")
    def post(self, request: Request) -> Response:
        """Halt every session of the installation, except those that only wait for a person: they are paused.

        Nothing starts until the release.

        The answer does not wait for the sessions to end. A repeated request changes nothing. Needs the permission
        agents.halt_everything.
        """
        require_halt_permission(self.user)
        data = self.body(HaltAllBody)
        found = halt_all_work(reason=data["reason"], spare_waiting=not data["end_waiting"], **self.actor)
        context = {"active": found.ending, "spared": found.spared}
        return Response(AllWorkSerializer(found.halt, context=context).data)


class ReleaseView(SingleView):
    serializer_class = ReleasedSerializer
    decisions = frozenset({"post"})  # releasing an emergency halt is a person's decision

    @describe(body=ReleaseBody, operation_id="release_everything")
    def post(self, request: Request) -> Response:
        """Let new work start again. Halted sessions stay halted; what they did can be started again with the release.

        409 if work is not halted. Needs the permission agents.halt_everything; a key also needs the scope `decide`.
        """
        require_halt_permission(self.user)
        data = self.body(ReleaseBody)
        again = {"start_again": data["start_again"], "run_again": data["run_again"]}
        if any(again.values()):
            require_scope(Scope.WRITE, request)
            require_start_permission(self.user)
        found = work_release(resume_spared=not data["keep_paused"], **again, **self.actor)
        return Response(ReleasedSerializer(found.halt, context={"released": found}).data)


class PauseSerializer(serializers.Serializer[Any]):
    paused = serializers.SerializerMethodField(help_text="Whether all work is paused now.")
    reason = serializers.CharField(help_text="The reason of the first request, if the pause was requested again.")
    requested_by = serializers.CharField(
        source="requested_by.username", allow_null=True, help_text="null: a command without a user."
    )
    requested_at = serializers.DateTimeField()

    def get_paused(self, pause: Pause) -> bool:
        return pause.resumed_at is None


class PauseView(SingleView):
    serializer_class = PauseSerializer
    always_allowed = frozenset({"post"})

    @describe(body=PauseReasonBody, operation_id="pause_everything")
    def post(self, request: Request) -> Response:
        """Pause every session of the installation: calls in flight end, no other begins, and what starts waits.

        A repeated request changes nothing. Needs the permission agents.halt_everything.
        """
        paused = work_pause(reason=self.body(PauseReasonBody)["reason"], **self.actor)
        return Response(PauseSerializer(paused.pause).data)


class ResumeView(SingleView):
    serializer_class = PauseSerializer
    decisions = frozenset({"post"})  # as for the release of a halt

    @describe(operation_id="resume_everything")
    def post(self, request: Request) -> Response:
        """Let all work go on. Sessions and agents that were paused on their own stay paused. 409 if it is not paused.

        Needs the permission agents.halt_everything; a key also needs the scope `decide`.
        """
        pause = work_resume(**self.actor)
        pause.refresh_from_db()
        return Response(PauseSerializer(pause).data)


# --- Health: counts are of the user's own rows ---


class HealthSerializer(serializers.Serializer[Any]):
    ok = serializers.BooleanField(help_text="False while all work is halted.")
    halted = serializers.BooleanField(help_text="Whether all work of the installation is halted.")
    paused = serializers.BooleanField(help_text="Whether all work of the installation is paused.")
    suspended_models = serializers.ListField(child=serializers.CharField())
    sessions = serializers.DictField(child=serializers.IntegerField(), help_text="Your unfinished sessions, by status.")
    approvals_pending = serializers.IntegerField(help_text="Pending approvals of your sessions.")
    outcomes_unknown = serializers.IntegerField(help_text="Calls of your sessions with unknown outcome.")
    notifications_unread = serializers.IntegerField()


class HealthView(SingleView):
    serializer_class = HealthSerializer

    def get(self, request: Request) -> Response:
        pk = self.user.pk
        active = AgentSession.objects.active_of(pk)
        unread = Notification.objects.filter(owner_id=pk, read_at__isnull=True).order_by("pk")
        halted = not Installation.objects.filter(pk=1, halt__isnull=True).exists()
        pending = Approval.objects.filter(session__owner_id=pk, status=ApprovalStatus.PENDING)
        unknown = ToolCall.objects.unknown().filter(Likely(Q(session__owner_id=pk)))
        found = {
            "ok": not halted,
            "halted": halted,
            "paused": work_paused() is not None,
            "suspended_models": list(SuspendedModel.objects.order_by("model").values_list("model", flat=True)),
            "sessions": dict(active.values_list("status").annotate(Count("pk")).order_by("status")),
            "approvals_pending": pending.count(),
            "outcomes_unknown": unknown.count(),
            "notifications_unread": unread[:MOST_COUNTED].count(),
        }
        return Response(HealthSerializer(found).data)
