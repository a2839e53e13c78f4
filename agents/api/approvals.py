"""Approvals, questions and approval rules: what agents ask people, the answers, and what is asked at all.

Every decision names the digest of the call that the approver saw. A key decides only with the scope `decide`; whether
its user may decide is checked by the services.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import django_filters
from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet, act_with, create_with, delete_with
from agents.api.fields import (
    Body,
    CountField,
    NoteField,
    OwnedRowField,
    RedactedDictField,
    RedactedField,
    RowSerializer,
    TextsField,
    UsdField,
    WordField,
    ref,
)
from agents.api.paging import RowsInTurn, public_id_filter
from agents.api.schema import describe, detail_action, list_action
from agents.conf import clock
from agents.enums import ApprovalStatus, QuestionStatus, RuleEffect
from agents.guard.calls import fitting
from agents.models import Agent, Approval, ApprovalRule, Delegation, Question
from agents.people.delegations import LONGEST, delegation_create, delegation_end, is_approver
from agents.policy.rules import MAX_DESTINATIONS, OPERATORS, VALUE_CHARS
from agents.sessions.approval_rules import (
    MOST_DAYS,
    require_writer,
    rule_change,
    rule_create,
    rule_delete,
    rule_try,
)
from agents.sessions.approval_rules import PERMISSION as WRITE_RULES
from agents.sessions.approvals import (
    MAX_STANDING_USES,
    PERMISSION,
    approval_approve,
    approval_approve_edited,
    approval_reject,
    call_shown,
    standing_create,
)
from agents.sessions.questions import MAX_CHARS, question_answer
from agents.sessions.second_eyes import with_decisions

DIGEST = "3f9a2c0d7b1e4a5688990f1e2d3c4b5a69788796a5b4c3d2e1f0a9b8c7d6e5f4"
YES = OpenApiExample("Yes", {"digest": DIGEST, "note": "Checked with the client."}, request_only=True)
SECOND = OpenApiExample("The second", {"answer": "The second draft."}, request_only=True)

Row = TypeVar("Row", bound=Model)


class DecisionViewSet(OwnedViewSet[Row]):
    """Requests for a decision: the user's own, and everybody's for users who may resolve approvals."""

    shows_others_rows = True
    asked_at = "created_at"  # of the rows that wait there is an index by it

    def visible(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        return rows if self.user.has_perm(PERMISSION) else rows.filter(self.of_own_runs())

    def paginate_queryset(self, queryset: Any) -> Any:
        """Pending rows first, oldest first; then the others, newest first. Both models call the state "pending"."""
        is_pending = Q(status=ApprovalStatus.PENDING)
        pending, others = queryset.filter(is_pending), queryset.exclude(is_pending)
        rows: Any = RowsInTurn(pending.order_by(self.asked_at, "id"), others)
        return super().paginate_queryset(rows)

    def retrieve(self, request: Request, **_: Any) -> Response:
        """One row, by its id. Viewing a row of another user's run is recorded in the audit log."""
        return super().retrieve(request)

    def decide(self, service: Callable[..., Any], body: type[Body], **more: Any) -> Response:
        """Call a service on the row, with the API key for the audit log, and answer with the changed row."""
        row = self.get_object()
        data = self.body(body)
        service(row.pk, **self.actor, **data, **more)
        return self.respond(row)


# --- Approvals ---


class VoteSerializer(serializers.Serializer[Any]):
    user = serializers.CharField(source="user.username")
    holder = serializers.CharField(source="holder.username", help_text="In whose right: another one's who is away.")
    at = serializers.DateTimeField(source="created_at")


class ApprovalSerializer(RowSerializer):
    """Built by the server from the stored call, never from a model's words."""

    session = ref("session")
    owner = serializers.CharField(source="session.owner.username", read_only=True, help_text="The owner of the run.")
    resolved_by = serializers.CharField(source="resolved_by.username", read_only=True, allow_null=True)
    yeses = VoteSerializer(
        source="said.yeses", many=True, read_only=True, help_text="Who said yes to the call as it is."
    )
    yeses_needed = serializers.IntegerField(
        source="said.needed", read_only=True, help_text="How many different people have to say yes."
    )
    refusal = serializers.CharField(
        read_only=True, help_text="Why you may not say yes to this call, while it is pending; empty if you may."
    )
    left_usd = UsdField(
        source="session.left_usd",
        read_only=True,
        allow_null=True,
        help_text="Rest of the session's cap; null without a cap.",
    )

    class Meta:
        model = Approval
        fields = [
            "id", "status", "session", "owner", "intent", "action", "version", "phase", "level", "risk_level",
            "description", "left_usd", "expires_at", "created_at", "resolved_at", "resolved_by",
            "consumed_at", "yeses", "yeses_needed", "refusal", "escalated_at",
        ]  # fmt: skip

    def to_representation(self, row: Any) -> Any:
        if not hasattr(row, "said"):  # a list has prepared its rows together
            with_decisions([row], by=self.context["request"].user, now=clock())
        return super().to_representation(row)


class ShownSerializer(serializers.Serializer[Any]):
    """The arguments for the eyes of a person."""

    text = serializers.CharField(help_text="JSON, with invisible characters and look-alike letters spelled out.")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Things that a reader of the arguments could overlook."
    )

    def to_representation(self, instance: Approval) -> dict[str, Any]:
        return super().to_representation(call_shown(instance))


class AskingRuleSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    version = serializers.IntegerField()
    name = serializers.CharField()
    role = serializers.CharField(help_text="Who has to decide; empty: whoever may.")


class ApprovalDetailSerializer(ApprovalSerializer):
    """The call in full, and its digest, which only stands beside it."""

    arguments = serializers.DictField(read_only=True, help_text="The exact arguments, in canonical form.")
    shown = ShownSerializer(source="*", read_only=True)
    rules = AskingRuleSerializer(many=True, read_only=True, help_text="The rules that ask about the call.")
    original_arguments = RedactedDictField(
        read_only=True, allow_null=True, help_text="The arguments that were requested, if an approver changed them."
    )
    simulation = RedactedField(read_only=True)
    note = RedactedField(read_only=True)

    class Meta(ApprovalSerializer.Meta):
        fields = [
            *ApprovalSerializer.Meta.fields, "digest", "arguments", "shown", "rules", "original_arguments",
            "simulation", "note",
        ]  # fmt: skip


class DigestBody(Body):
    digest = serializers.CharField(max_length=64, help_text="The digest of the call that you reviewed.")


class DecisionBody(DigestBody):
    note = NoteField()


class EditedBody(DecisionBody):
    arguments = serializers.DictField(help_text="The complete arguments to use instead.")


class ForSessionBody(DigestBody):
    uses = CountField(min_value=1, max_value=MAX_STANDING_USES, default=MAX_STANDING_USES)
    free_arguments = TextsField(
        max_chars=128,
        max_length=50,
        default=(),
        help_text="Names of arguments that may differ from this call; never one that holds an address.",
    )


class ApprovalViewSet(DecisionViewSet[Approval]):
    """Approvals of your sessions; of all sessions if you may resolve approvals, also for somebody who is away.

    Pending ones first, oldest first.
    """

    queryset = Approval.objects.all()
    serializer_class = ApprovalSerializer
    detail_serializer_class = ApprovalDetailSerializer
    filters = {
        "status": django_filters.ChoiceFilter(choices=ApprovalStatus.choices),
        "session": public_id_filter("session"),
    }
    joins = ("session", "session__owner", "resolved_by")
    decisions = frozenset({"approve", "approve_edited", "approve_for_session", "deny"})

    def visible(self, rows: QuerySet[Approval]) -> QuerySet[Approval]:
        return rows if is_approver(self.user, self.now) else rows.filter(self.of_own_runs())

    def paginate_queryset(self, queryset: Any) -> Any:
        page = super().paginate_queryset(queryset)
        with_decisions(page or (), by=self.user, now=self.now)
        return page

    @detail_action(body=DecisionBody, examples=[YES])
    def approve(self, request: Request, **_: Any) -> Response:
        """Say yes to exactly this call, once. 409 if it was decided, has expired, or has changed since.

        It stays pending until as many different people have said yes as `yeses_needed`. 403 if the call binds you.
        """
        return self.decide(approval_approve, DecisionBody)

    @detail_action(body=DecisionBody)
    def deny(self, request: Request, **_: Any) -> Response:
        """Deny the call. The run gets the note, and the same call is denied for the rest of the session."""
        return self.decide(approval_reject, DecisionBody)

    @detail_action(body=EditedBody)
    def approve_edited(self, request: Request, **_: Any) -> Response:
        """Say yes to the call with other arguments; the requested ones are kept. Earlier yeses no longer count.

        422 if the call cannot be made with them. The approval then stays pending.
        """
        return self.decide(approval_approve_edited, EditedBody, fits=fitting)

    @detail_action(body=ForSessionBody)
    def approve_for_session(self, request: Request, **_: Any) -> Response:
        """Approve this call and similar ones for the rest of the session.

        Not for calls that are PRIVILEGED, of high risk, or need several yeses.
        """
        return self.decide(standing_create, ForSessionBody)


# --- Delegations ---


class DelegationSerializer(RowSerializer):
    owner = serializers.CharField(source="owner.username", read_only=True, help_text="Who is away.")
    delegate = serializers.CharField(source="delegate.username", read_only=True, help_text="Who decides meanwhile.")

    class Meta:
        model = Delegation
        fields = ["id", "owner", "delegate", "until", "ended_at", "created_at"]


class DelegationBody(Body):
    delegate = serializers.SlugRelatedField(
        slug_field="username", queryset=User.objects.filter(is_active=True), help_text="The username of the delegate."
    )
    until = serializers.DateTimeField(help_text=f"When you are back; at most {LONGEST.days} days from now.")


class DelegationViewSet(OwnedViewSet[Delegation]):
    """Who decides on approvals while you are away, and for whom you decide."""

    queryset = Delegation.objects.all()
    serializer_class = DelegationSerializer
    joins = ("owner", "delegate")
    decisions = frozenset({"create"})  # it hands over the right to decide

    def visible(self, rows: QuerySet[Delegation]) -> QuerySet[Delegation]:
        return rows.filter(Q(owner_id=self.user.pk) | Q(delegate_id=self.user.pk))

    create = create_with(delegation_create, DelegationBody)
    end = act_with("end", delegation_end, "End it at once. Ending it again changes nothing.")


# --- Questions ---


class QuestionSerializer(RowSerializer):
    session = ref("session")
    agent = ref("session.agent")
    owner = serializers.CharField(source="session.owner.username", read_only=True, help_text="The owner of the run.")
    answered_by = serializers.CharField(source="answered_by.username", read_only=True, allow_null=True)

    class Meta:
        model = Question
        fields = [
            "id", "status", "text", "answer", "session", "agent", "owner", "asked_at", "expires_at", "answered_at",
            "answered_by",
        ]  # fmt: skip


class AnswerBody(Body):
    answer = serializers.CharField(max_length=MAX_CHARS, help_text="The answer that the run gets.")


class QuestionViewSet(DecisionViewSet[Question]):
    """Questions of your sessions; of all sessions if you may resolve approvals. Pending ones first, oldest first."""

    queryset = Question.objects.all()
    asked_at = "asked_at"
    serializer_class = QuestionSerializer
    filters = {
        "status": django_filters.ChoiceFilter(choices=QuestionStatus.choices),
        "session": public_id_filter("session"),
    }
    joins = ("session", "session__agent", "session__owner", "answered_by")
    decisions = frozenset({"answer"})

    @detail_action(body=AnswerBody, examples=[SECOND])
    def answer(self, request: Request, **_: Any) -> Response:
        """Answer the question; the run continues. 409 if it was answered, has expired, or its run has ended."""
        question = self.get_object()
        data = self.body(AnswerBody)
        return self.respond(question_answer(question, **self.actor, **data))


# --- Rules of the installation. Writing one needs the scope `decide`, and loosening the scope `admin` ---


LARGE_PAYMENTS = OpenApiExample(
    "Ask about large payments",
    {
        "name": "Large payments",
        "effect": "ask",
        "role": "admin",
        "skill": "http_request",
        "conditions": [{"argument": "data.amount", "operator": "above", "value": "100"}],
        "enabled": True,
    },
    request_only=True,
)


class ConditionBody(Body):
    argument = serializers.CharField(max_length=400, help_text="A name, or names with dots: order.total.")
    operator = WordField(choices=[(name, name) for name in OPERATORS])
    value = serializers.CharField(max_length=VALUE_CHARS, allow_blank=True)


class ApprovalRuleSerializer(RowSerializer):
    agent = ref("agent")
    conditions = ConditionBody(many=True, read_only=True)
    destinations = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ApprovalRule
        fields = [
            "id", "version", "name", "effect", "role", "agent", "skill", "conditions", "min_cost_usd", "destinations",
            "enabled", "created_at",
        ]  # fmt: skip


class ApprovalRuleBody(Body):
    name = serializers.CharField(max_length=120)
    effect = WordField(choices=RuleEffect.choices)
    role = serializers.CharField(max_length=150, required=False, allow_blank=True, help_text="Who has to decide.")
    agent = OwnedRowField(Agent, shared=True, required=False, allow_null=True, help_text="null: every agent.")
    skill = serializers.CharField(max_length=64, required=False, allow_blank=True, help_text="Empty: every skill.")
    conditions = ConditionBody(many=True, required=False)
    min_cost_usd = UsdField(required=False, allow_null=True, help_text="Only calls estimated at this or more.")
    destinations = TextsField(
        max_chars=253, max_length=MAX_DESTINATIONS, required=False, help_text="Hosts; each stands for its subdomains."
    )
    enabled = serializers.BooleanField(
        required=False, help_text="Left out in a new rule: one that asks or denies is on, one that allows is off."
    )

    def validate_conditions(self, value: Any) -> list[dict[str, str]]:
        return [dict(condition) for condition in value]


class TryBody(ApprovalRuleBody):
    days = CountField(min_value=1, max_value=MOST_DAYS, default=30)


class TriedCallSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="public_id")
    session = serializers.UUIDField(source="session.public_id")
    name = serializers.CharField()
    started_at = serializers.DateTimeField()


class TriedSerializer(serializers.Serializer[Any]):
    calls = serializers.IntegerField(help_text="Calls of skills that were looked at.")
    fitting = serializers.IntegerField(help_text="Those that the rule fits.")
    asked = serializers.IntegerField(help_text="Those of them about which a person was asked anyway.")
    is_all = serializers.BooleanField(help_text="Whether all calls of the time were looked at.")
    listed = TriedCallSerializer(many=True, help_text="The newest that it fits, at most 50.")


class ApprovalRuleViewSet(OwnedViewSet[ApprovalRule]):
    """Rules in their newest version: all for those who may write them, else those that bind your agents."""

    queryset = ApprovalRule.objects.current()
    serializer_class = ApprovalRuleSerializer
    joins = ("agent",)
    row_name = "rule"
    decisions = frozenset({"create", "partial_update", "destroy", "try_past"})
    destroy = delete_with(rule_delete, "Take the rule out of force. Its versions stay.")

    def visible(self, rows: QuerySet[ApprovalRule]) -> QuerySet[ApprovalRule]:
        return rows if self._writes else rows.filter(Q(agent__isnull=True) | Q(agent__owner_id=self.user.pk))

    @property
    def _writes(self) -> bool:
        return self.user.has_perm(WRITE_RULES)

    @describe(body=ApprovalRuleBody, examples=[LARGE_PAYMENTS])
    def create(self, request: Request) -> Response:
        """Write a rule. Of several that fit a call the strictest counts.

        Without `enabled` a rule that asks or denies is on from the next call, and one that allows is off.
        """
        require_writer(self.user)
        return self.respond(rule_create(**self.actor, **self.body(ApprovalRuleBody)), created=True)

    @describe(body=ApprovalRuleBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        """Write the next version of the rule."""
        row = self.get_object()
        require_writer(self.user)
        return self.respond(rule_change(row, **self.actor, **self.body(ApprovalRuleBody, partial=True)))

    @list_action(TriedSerializer, body=TryBody, path="try")
    def try_past(self, request: Request) -> Response:
        """Judge past calls by a rule, which is not saved."""
        require_writer(self.user)
        data = self.body(TryBody)
        days = data.pop("days")
        return Response(TriedSerializer(rule_try(ApprovalRule(**data), by=self.user, now=self.now, days=days)).data)
