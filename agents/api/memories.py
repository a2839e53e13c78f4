"""Memories: notes that agents propose. Only what a person keeps is ever put into a prompt."""

from typing import Any

import django_filters
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Body, Shown, ref
from agents.api.schema import described
from agents.knowledge.projects import CONTENT_CHARS, memory_delete, memory_dismiss, memory_keep
from agents.models import Memory

STATES = [(state, state) for state in ("proposed", "kept", "dismissed")]


class MemoryShown(Shown):
    session = ref("session")

    class Meta:
        model = Memory
        fields = ["id", "session", "content", "state", "created_at", "kept_at"]


class KeepBody(Body):
    content = serializers.CharField(
        max_length=CONTENT_CHARS, required=False, help_text="Other words for it; without them it is kept as it is."
    )


class MemoryFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    state = django_filters.ChoiceFilter(choices=STATES)


class Memories(OwnedViewSet[Memory]):
    """Notes that agents have proposed to you, newest first. Deleted ones are left out."""

    queryset = Memory.objects.all()
    serializer_class = MemoryShown
    filterset_class = MemoryFilter
    joins = ("session",)

    @described("memories_keep", MemoryShown, body=KeepBody)
    @action(detail=True, methods=["post"])
    def keep(self, request: Request, **_: Any) -> Response:
        """From now on prompts may hold it."""
        memory, said = self.get_object(), self.body(KeepBody)
        return self.shown(memory_keep(memory=memory, by=self.person, now=self.now, **said))

    @described("memories_dismiss", MemoryShown)
    @action(detail=True, methods=["post"])
    def dismiss(self, request: Request, **_: Any) -> Response:
        """No prompt holds it any more."""
        return self.shown(memory_dismiss(memory=self.get_object(), by=self.person, now=self.now))

    @described("memories_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        memory_delete(memory=self.get_object(), by=self.person, now=self.now)
        return self.gone()
