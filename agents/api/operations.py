"""The person who asks: who that is, what this key may do, and the person's opt-in."""

from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db.models import Count, QuerySet, Sum
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response

from agents.accounts import email_notices_set, profile_set
from agents.api.base import ApiView
from agents.api.fields import Body, NoteField, UsdField
from agents.api.schema import described
from agents.enums import ApprovalStatus, BudgetScope, Outcome
from agents.models import (
    Agent,
    AgentSession,
    ApiKey,
    Approval,
    Budget,
    Halt,
    Installation,
    Notification,
    Profile,
    SuspendedModel,
    ToolCall,
    Trigger,
)
from agents.people.access import demand_lever
from agents.people.keys import Scope
from agents.sessions.halts import halt_reach, organisation_halt, organisation_release
from agents.sessions.standing import PERMISSION


class MeShown(serializers.Serializer[Any]):
    username = serializers.CharField()
    opted_in = serializers.BooleanField(help_text="Agents may run in the background for you.")
    email_notices = serializers.BooleanField(help_text="Notices are mailed, if an address is set.")
    may_resolve_approvals = serializers.BooleanField()
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=[str(scope) for scope in Scope]))
    key_expires_at = serializers.DateTimeField(allow_null=True, help_text="Null for a signed-in browser.")


class MePatch(Body):
    opted_in = serializers.BooleanField(required=False)
    halt_all = serializers.BooleanField(
        required=False, help_text="With opted_in false: halts all your sessions, too. Without it runs may finish."
    )
    email_notices = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("halt_all") and attrs.get("opted_in") is not False:
            raise serializers.ValidationError({"halt_all": ["Goes with opted_in false, and with nothing else."]})
        return attrs


class Me(ApiView):
    serializer_class = MeShown
    always_allowed = frozenset({"patch"})  # opting in cannot need an opt-in

    @described("me_retrieve", MeShown)
    def get(self, request: Request) -> Response:
        return Response(self._shown())

    @described("me_edit", MeShown, body=MePatch)
    def patch(self, request: Request) -> Response:
        """Opts in or out, and says whether notices are mailed. Opting out spawns nothing new and ends loops."""
        said = self.body(MePatch)
        who: dict[str, Any] = {"user": self.person, "by": self.person, "now": self.now}
        if "opted_in" in said:
            profile_set(**who, opted_in=said["opted_in"], halt_all=said.get("halt_all", False))
        if "email_notices" in said:
            email_notices_set(**who, enabled=said["email_notices"])
        return Response(self._shown())

    def _shown(self) -> dict[str, Any]:
        key = self.request.auth if isinstance(self.request.auth, ApiKey) else None
        profile = Profile.objects.filter(user_id=self.person.pk).first() or Profile()
        me = {
            "username": self.person.username,
            "opted_in": profile.opted_in,
            "email_notices": profile.email_notices,
            "may_resolve_approvals": self.person.has_perm(PERMISSION),
            "scopes": key.scopes if key else list(Scope),
            "key_expires_at": key.expires_at if key else None,
        }
        return dict(MeShown(me).data)


# What today has cost so far, in UTC: per trigger and agent of the person, and for the installation; and their caps.
#
# Lists hold those that spent most, and no more than fit on a page; the totals beside them count all.


NOTHING = Decimal(0)
MOST_LISTED = 50


class SpendShown(serializers.Serializer[Any]):
    charged_usd = UsdField(help_text="What was approved and charged.")
    reserved_usd = UsdField(help_text="Set aside for calls under way.")
    actual_usd = UsdField(help_text="What providers reported.")
    cap_usd = UsdField(allow_null=True, help_text="For the day; null: no cap of its own.")


class SubjectSpendShown(SpendShown):
    id = serializers.UUIDField()
    name = serializers.CharField()
    session_cap_usd = UsdField(allow_null=True, help_text="For each session that it spawns; triggers only.")


class TotalShown(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="How many there are, listed or not.")
    charged_usd = UsdField()
    reserved_usd = UsdField()
    actual_usd = UsdField()


class CostsShown(serializers.Serializer[Any]):
    day = serializers.DateField()
    sessions_charged_usd = UsdField(help_text="Your sessions that began today.")
    triggers = SubjectSpendShown(many=True, help_text=f"The {MOST_LISTED} that were charged most, at most.")
    triggers_total = TotalShown()
    agents = SubjectSpendShown(many=True, help_text=f"The {MOST_LISTED} that were charged most, at most.")
    agents_total = TotalShown()
    installation = SpendShown(help_text="Everybody's work together: its cap stops yours too.")


class Costs(ApiView):
    serializer_class = CostsShown

    @described("costs_retrieve", CostsShown)
    def get(self, request: Request) -> Response:
        today = self.now.astimezone(UTC).date()
        begun = AgentSession.objects.filter(owner_id=self.person.pk, created_at__date=today)
        triggers = Trigger.objects.filter(owner_id=self.person.pk, deleted_at__isnull=True).order_by("-id")
        agents = Agent.objects.filter(owner_id=self.person.pk).order_by("-id")
        installation = Installation.objects.filter(pk=1).first()
        found = {
            "day": today,
            "sessions_charged_usd": begun.aggregate(total=Sum("cost_total_usd"))["total"] or NOTHING,
            "triggers": _spent(BudgetScope.TRIGGER, triggers, today),
            "triggers_total": _total(BudgetScope.TRIGGER, triggers, today),
            "agents": _spent(BudgetScope.AGENT, agents, today),
            "agents_total": _total(BudgetScope.AGENT, agents, today),
            "installation": _books(
                Budget.objects.filter(scope=BudgetScope.INSTALLATION, day=today, subject_id=0).first()
            )
            | {"cap_usd": installation.max_cost_per_day_usd if installation else None},
        }
        return Response(CostsShown(found).data)


def _spent(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> list[dict[str, Any]]:
    """Those that were charged most, then the newest."""
    booked = _booked(scope, subjects, day).order_by("-charged_usd", "-subject_id")[:MOST_LISTED]
    rows = {row.subject_id: row for row in booked}
    found = subjects.in_bulk(rows)
    listed = [found[pk] for pk in rows] + list(subjects.exclude(pk__in=rows)[: MOST_LISTED - len(rows)])
    return [
        {
            "id": subject.public_id,
            "name": subject.name,
            "cap_usd": subject.max_cost_per_day_usd,
            "session_cap_usd": getattr(subject, "max_cost_usd", None),
            **_books(rows.get(subject.pk)),
        }
        for subject in listed
    ]


def _total(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> dict[str, Any]:
    names = ("charged_usd", "reserved_usd", "actual_usd")
    sums = _booked(scope, subjects, day).aggregate(**{name: Sum(name) for name in names})
    return {"count": subjects.count(), **{name: sums[name] or NOTHING for name in names}}


def _booked(scope: BudgetScope, subjects: QuerySet[Any], day: date) -> QuerySet[Budget]:
    return Budget.objects.filter(scope=scope, day=day, subject_id__in=subjects.order_by().values("pk"))


def _books(row: Budget | None) -> dict[str, Decimal]:
    if row is None:
        return {"charged_usd": NOTHING, "reserved_usd": NOTHING, "actual_usd": NOTHING}
    return {"charged_usd": row.charged_usd, "reserved_usd": row.reserved_usd, "actual_usd": row.actual_usd}


# --- All work of the installation: halted, and released. This lever reaches everybody's sessions ---


class ReasonBody(Body):
    reason = NoteField(required=True, allow_blank=False, default=empty, help_text="For those who find it halted.")


class AllWorkShown(serializers.Serializer[Any]):
    halted = serializers.BooleanField(help_text="Whether all work is halted now.")
    reason = serializers.CharField(help_text="Of a halt that is said again: the one that was given first.")
    requested_by = serializers.CharField(allow_null=True, help_text="Null: a command, without a user.")
    requested_at = serializers.DateTimeField()
    released_at = serializers.DateTimeField(allow_null=True)
    sessions = serializers.IntegerField(help_text="How many sessions it has told to stop.")


class HaltAllWork(ApiView):
    serializer_class = AllWorkShown
    always_allowed = frozenset({"post"})

    @described("halt_everything", AllWorkShown, body=ReasonBody)
    def post(self, request: Request) -> Response:
        """Halts every session of the installation, and lets nothing start until it is released.

        Said again, it halts what an interrupted halt has left. It needs the permission agents.halt_everything.
        """
        demand_lever(self.person)
        reason = self.body(ReasonBody)["reason"]
        return _shown(organisation_halt(by=self.person, reason=reason, now=self.now).halt)


class ReleaseAllWork(ApiView):
    serializer_class = AllWorkShown
    decisions = frozenset({"post"})  # what an emergency has stopped is let go by a person

    @described("release_everything", AllWorkShown)
    def post(self, request: Request) -> Response:
        """Lets new work start again; sessions that were halted stay halted. 409 when work is not halted.

        It needs the permission agents.halt_everything, and of a key the scope `decide`.
        """
        demand_lever(self.person)
        return _shown(organisation_release(by=self.person, now=self.now))


def _shown(halt: Halt) -> Response:
    found = {
        "halted": halt.released_at is None,
        "reason": halt.reason,
        "requested_by": halt.requested_by.get_username() if halt.requested_by else None,
        "requested_at": halt.requested_at,
        "released_at": halt.released_at,
        "sessions": halt_reach(halt),
    }
    return Response(AllWorkShown(found).data)


# --- Can this installation work, and what of yours is waiting. Counts are of the person's own rows only ---


class HealthShown(serializers.Serializer[Any]):
    ok = serializers.BooleanField(help_text="False while all work is halted.")
    halted = serializers.BooleanField(help_text="All work of the installation is halted.")
    suspended_models = serializers.ListField(child=serializers.CharField())
    sessions = serializers.DictField(
        child=serializers.IntegerField(), help_text="Your sessions that are under way, by status."
    )
    approvals_pending = serializers.IntegerField(help_text="Calls of your sessions that wait for a decision.")
    outcomes_unknown = serializers.IntegerField(help_text="Calls of your sessions of which nobody knows the outcome.")
    notifications_unread = serializers.IntegerField()


class Health(ApiView):
    serializer_class = HealthShown

    @described("health_retrieve", HealthShown)
    def get(self, request: Request) -> Response:
        mine, pk = AgentSession.objects.active().filter(owner_id=self.person.pk), self.person.pk
        halted = not Installation.objects.filter(pk=1, halt__isnull=True).exists()
        pending = Approval.objects.filter(session__owner_id=pk, status=ApprovalStatus.PENDING)
        unknown = ToolCall.objects.filter(session__owner_id=pk, outcome=Outcome.UNKNOWN)
        found = {
            "ok": not halted,
            "halted": halted,
            "suspended_models": list(SuspendedModel.objects.order_by("model").values_list("model", flat=True)),
            "sessions": dict(mine.values_list("status").annotate(Count("pk")).order_by("status")),
            "approvals_pending": pending.count(),
            "outcomes_unknown": unknown.count(),
            "notifications_unread": Notification.objects.filter(owner_id=pk, read_at__isnull=True).count(),
        }
        return Response(HealthShown(found).data)
