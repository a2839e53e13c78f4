"""Notices for the person who asks. Reading one is dismissing it, and needs no opt-in."""

from typing import Any

import django_filters
from django.db.models import QuerySet
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.fields import Shown, ref
from agents.api.filtering import YesOrNo
from agents.api.schema import described
from agents.enums import NoticeKind
from agents.models import Notification
from agents.people.notifications import notice_read


class NotificationShown(Shown):
    session = ref("session")

    class Meta:
        model = Notification
        fields = ["id", "kind", "title", "body", "session", "read_at", "created_at"]


class NotificationFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    kind = django_filters.ChoiceFilter(choices=NoticeKind.choices)
    unread = YesOrNo(method="choose", label="true: only what was not read; false: only what was.")

    def choose(self, rows: QuerySet[Notification], name: str, value: str) -> QuerySet[Notification]:
        return rows.filter(read_at__isnull=value == "true")


class Notifications(OwnedViewSet[Notification]):
    """Notices for you, newest first."""

    queryset = Notification.objects.all()
    serializer_class = NotificationShown
    filterset_class = NotificationFilter
    joins = ("session",)
    always_allowed = frozenset({"read"})

    @described("notifications_read", NotificationShown)
    @action(detail=True, methods=["post"])
    def read(self, request: Request, **_: Any) -> Response:
        return self.shown(notice_read(notification=self.get_object(), by=self.person, now=self.now))
