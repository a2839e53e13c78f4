"""Approvals: what waits for a person, oldest first, and what that person says. Every decision shows the digest it saw.

A key decides only with the scope `decide`; whether its user may is judged by the service, with its four eyes.
"""

from decimal import Decimal
from typing import Any

import django_filters
from django.db.models import BigIntegerField, Case, F, Q, QuerySet, Value, When
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, CountField, NoteField, Shown, UsdField, ref
from agents.api.paging import public_id
from agents.api.schema import described
from agents.enums import ApprovalStatus, QuestionStatus
from agents.guard.calls import fitting
from agents.models import Approval, Question
from agents.people.access import row_view
from agents.sessions.approvals import (
    MAX_STANDING_USES,
    approval_approve,
    approval_approve_edited,
    approval_reject,
    standing_create,
)
from agents.sessions.questions import MAX_CHARS, question_answer
from agents.sessions.standing import PERMISSION
from audit.redaction import redact, redact_data

PENDING_APPROVAL = Q(status=ApprovalStatus.PENDING)
DIGEST = "3f9a2c0d7b1e4a5688990f1e2d3c4b5a69788796a5b4c3d2e1f0a9b8c7d6e5f4"
YES = OpenApiExample("Yes", {"digest": DIGEST, "note": "Checked with the client."}, request_only=True)


class ApprovalShown(Shown):
    """Built by the server from the stored call, never from a model's words."""

    session = ref("session")
    owner = serializers.CharField(source="session.owner.username", read_only=True, help_text="For whom the run works.")
    resolved_by = serializers.CharField(source="resolved_by.username", read_only=True, allow_null=True)
    left_usd = serializers.SerializerMethodField(help_text="What the session may still spend; null without a cap.")

    class Meta:
        model = Approval
        fields = [
            "id", "status", "session", "owner", "intent", "action", "version", "phase", "level", "risk_level",
            "description", "digest", "left_usd", "expires_at", "created_at", "resolved_at", "resolved_by",
            "consumed_at",
        ]  # fmt: skip

    def get_left_usd(self, approval: Any) -> str | None:
        run = approval.session
        if run.max_cost_usd is None:
            return None
        left = max(run.max_cost_usd - run.cost_total_usd - run.cost_reserved_usd, Decimal(0))
        return str(UsdField().to_representation(left))


class ApprovalDetail(ApprovalShown):
    arguments = serializers.SerializerMethodField(help_text="Exactly what would be done, in its canonical form.")
    original_arguments = serializers.SerializerMethodField(help_text="What was asked for, if an approver changed it.")
    simulation = serializers.SerializerMethodField()
    note = serializers.SerializerMethodField()

    class Meta(ApprovalShown.Meta):
        fields = [*ApprovalShown.Meta.fields, "arguments", "original_arguments", "simulation", "note"]

    def get_arguments(self, approval: Any) -> dict[str, Any]:
        return dict(redact_data(approval.arguments))

    def get_original_arguments(self, approval: Any) -> dict[str, Any] | None:
        return None if approval.original_arguments is None else dict(redact_data(approval.original_arguments))

    def get_simulation(self, approval: Any) -> str:
        return redact(approval.simulation)

    def get_note(self, approval: Any) -> str:
        return redact(approval.note)


class DecisionBody(Body):
    digest = serializers.CharField(max_length=64, help_text="The digest of the call that you have looked at.")
    note = NoteField()


class EditedBody(DecisionBody):
    arguments = serializers.DictField(help_text="The arguments to use instead, all of them.")


class ForSessionBody(Body):
    digest = serializers.CharField(max_length=64, help_text="The digest of the call that you have looked at.")
    uses = CountField(min_value=1, max_value=MAX_STANDING_USES, default=MAX_STANDING_USES)
    free_arguments = serializers.ListField(
        child=serializers.CharField(max_length=128),
        max_length=50,
        default=list,
        help_text="Names of arguments that may differ from this call; never one that holds an address.",
    )


class ApprovalFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    status = django_filters.ChoiceFilter(choices=ApprovalStatus.choices)
    session = public_id("session", "The id of a session.")


class Approvals(OwnedViewSet[Approval]):
    """Approvals of your sessions; who may resolve approvals sees everybody's, since deciding on them is the task."""

    queryset = Approval.objects.all()
    filterset_class = ApprovalFilter
    joins = ("session", "session__owner", "resolved_by")
    reaches_others = True
    decisions = frozenset({"approve", "approve_edited", "approve_for_session", "deny"})
    # What waits longest stands first; what was decided comes after it, newest first.
    ordering = (
        Case(When(PENDING_APPROVAL, then=Value(0)), default=Value(1)),
        Case(When(PENDING_APPROVAL, then=F("id")), default=-F("id"), output_field=BigIntegerField()),
    )

    @property
    def decider(self) -> dict[str, Any]:
        """Who decides, when, and by which key: the record names the key too."""
        return {"by": self.person, "now": self.now, "key_id": self.key_id}

    def get_serializer_class(self) -> type[ApprovalShown]:
        return ApprovalShown if self.action == "list" else ApprovalDetail

    def reachable(self, rows: QuerySet[Approval]) -> QuerySet[Approval]:
        return rows if self.person.has_perm(PERMISSION) else rows.filter(session__owner_id=self.person.pk)

    def retrieve(self, request: Request, **_: Any) -> Response:
        """One approval with its arguments. A look at somebody else's is on record."""
        approval = self.get_object()
        row_view(row=approval, by=self.person, now=self.now)
        return Response(self.get_serializer(approval).data)

    @described("approvals_approve", ApprovalDetail, body=DecisionBody, examples=[YES])
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, **_: Any) -> Response:
        """Says yes to exactly this call, once. 409 if it was decided, has expired, or has changed since."""
        approval, said = self.get_object(), self.body(DecisionBody)
        return self.shown(approval_approve(approval.pk, **self.decider, **said))

    @described("approvals_deny", ApprovalDetail, body=DecisionBody)
    @action(detail=True, methods=["post"])
    def deny(self, request: Request, **_: Any) -> Response:
        """Says no; the run gets the note, and the same call is refused for the rest of the session."""
        approval, said = self.get_object(), self.body(DecisionBody)
        return self.shown(approval_reject(approval.pk, **self.decider, **said))

    @described("approvals_approve_edited", ApprovalDetail, body=EditedBody)
    @action(detail=True, methods=["post"], url_path="approve-edited")
    def approve_edited(self, request: Request, **_: Any) -> Response:
        """Says yes to the call with other arguments; what was asked for is kept beside them. 422, and it still waits,
        if the call could not be made with them."""
        approval, said = self.get_object(), self.body(EditedBody)
        return self.shown(approval_approve_edited(approval.pk, fits=fitting, **self.decider, **said))

    @described("approvals_approve_for_session", ApprovalDetail, body=ForSessionBody)
    @action(detail=True, methods=["post"], url_path="approve-for-session")
    def approve_for_session(self, request: Request, **_: Any) -> Response:
        """Says yes to this call and its like for the rest of the session. Never for PRIVILEGED or high-risk ones."""
        approval, said = self.get_object(), self.body(ForSessionBody)
        said["free_arguments"] = tuple(said["free_arguments"])
        standing_create(approval.pk, **self.decider, **said)
        return self.shown(approval)


# Questions: what agents ask people, what waits longest first, and what somebody answers. The run waits meanwhile.
#
# A key answers only with the scope `decide`: a person was asked, not whatever holds the key.


PENDING_QUESTION = Q(status=QuestionStatus.PENDING)
SECOND = OpenApiExample("The second", {"answer": "The second draft."}, request_only=True)


class QuestionShown(Shown):
    session = ref("session")
    agent = ref("session.agent")
    owner = serializers.CharField(source="session.owner.username", read_only=True, help_text="For whom the run works.")
    answered_by = serializers.CharField(source="answered_by.username", read_only=True, allow_null=True)

    class Meta:
        model = Question
        fields = [
            "id", "status", "text", "answer", "session", "agent", "owner", "asked_at", "expires_at", "answered_at",
            "answered_by",
        ]  # fmt: skip


class AnswerBody(Body):
    answer = serializers.CharField(max_length=MAX_CHARS, help_text="What the run is told.")


class QuestionFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    status = django_filters.ChoiceFilter(choices=QuestionStatus.choices)
    session = public_id("session", "The id of a session.")


class Questions(OwnedViewSet[Question]):
    """What your runs ask; who may resolve approvals sees everybody's, since answering is part of that task."""

    queryset = Question.objects.all()
    serializer_class = QuestionShown
    filterset_class = QuestionFilter
    joins = ("session", "session__agent", "session__owner", "answered_by")
    reaches_others = True
    decisions = frozenset({"answer"})
    # What waits longest stands first; what is closed comes after it, newest first.
    ordering = (
        Case(When(PENDING_QUESTION, then=Value(0)), default=Value(1)),
        Case(When(PENDING_QUESTION, then=F("id")), default=-F("id"), output_field=BigIntegerField()),
    )

    def reachable(self, rows: QuerySet[Question]) -> QuerySet[Question]:
        return rows if self.person.has_perm(PERMISSION) else rows.filter(session__owner_id=self.person.pk)

    def retrieve(self, request: Request, **_: Any) -> Response:
        """One question. A look at one of somebody else's runs is on record."""
        question = self.get_object()
        row_view(row=question, by=self.person, now=self.now)
        return Response(self.get_serializer(question).data)

    @described("questions_answer", QuestionShown, body=AnswerBody, examples=[SECOND])
    @action(detail=True, methods=["post"])
    def answer(self, request: Request, **_: Any) -> Response:
        """Answers it once; the run goes on. 409 if it was answered before, has expired, or its run is over."""
        question, said = self.get_object(), self.body(AnswerBody)
        return self.shown(question_answer(question, by=self.person, now=self.now, key_id=self.key_id, **said))
