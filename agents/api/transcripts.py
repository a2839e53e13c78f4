"""Transcripts: what was said in a run that works in steps. What lqops itself wrote is shown only if it is asked for."""

from typing import Any
from uuid import UUID

import django_filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import Acting
from agents.api.filtering import YesOrNo
from agents.api.schema import described
from agents.models import AgentSession, Message
from agents.sessions.transcripts import INTERNAL
from audit.redaction import redact


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
