"""Questions: what agents ask people, what waits longest first, and what somebody answers. The run waits meanwhile.

A key answers only with the scope `decide`: a person was asked, not whatever holds the key.
"""

from typing import Any

import django_filters
from django.db.models import BigIntegerField, Case, F, Q, QuerySet, Value, When
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown, ref
from agents.api.filtering import public_id
from agents.api.schema import described
from agents.enums import QuestionStatus
from agents.models import Question
from agents.people.access import row_view
from agents.sessions.questions import MAX_CHARS, question_answer
from agents.sessions.standing import PERMISSION

PENDING = Q(status=QuestionStatus.PENDING)
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
        Case(When(PENDING, then=Value(0)), default=Value(1)),
        Case(When(PENDING, then=F("id")), default=-F("id"), output_field=BigIntegerField()),
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
