"""Collections: named sets of documents. Watches look at them; schedules and run-now read them."""

from typing import Any

from django.db.models import Count, Q, QuerySet
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.documents import DocumentShown
from agents.api.fields import Body, Shown
from agents.api.schema import described
from agents.knowledge.documents import COLLECTION_NAME_CHARS, collection_create, collection_delete, collection_rename
from agents.models import Collection, Document

ATTACHED = Q(attachments__detached_at__isnull=True, attachments__document__deleted_at__isnull=True)


class CollectionShown(Shown):
    documents = serializers.IntegerField(read_only=True, help_text="How many documents are in it.")

    class Meta:
        model = Collection
        fields = ["id", "name", "documents", "created_at"]


class CollectionBody(Body):
    name = serializers.CharField(max_length=COLLECTION_NAME_CHARS)


class Collections(OwnedViewSet[Collection]):
    """Your collections, newest first."""

    queryset = Collection.objects.all()
    serializer_class = CollectionShown

    def get_queryset(self) -> QuerySet[Collection]:
        return super().get_queryset().annotate(documents=Count("attachments", filter=ATTACHED))

    @described("collections_create", {201: CollectionShown}, body=CollectionBody)
    def create(self, request: Request) -> Response:
        said = self.body(CollectionBody)
        return self.shown(collection_create(owner=self.person, by=self.person, now=self.now, **said), created=True)

    @described("collections_rename", CollectionShown, body=CollectionBody)
    def partial_update(self, request: Request, **_: Any) -> Response:
        collection, said = self.get_object(), self.body(CollectionBody)
        return self.shown(collection_rename(collection=collection, by=self.person, now=self.now, **said))

    @described("collections_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        """The collection goes; its documents stay."""
        collection_delete(collection=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("collections_documents", DocumentShown(many=True), filters=False)
    @action(detail=True, methods=["get"])
    def documents(self, request: Request, **_: Any) -> Response:
        inside = Q(attachments__collection=self.get_object(), attachments__detached_at__isnull=True)
        rows = Document.objects.filter(inside, owner_id=self.person.pk, deleted_at__isnull=True)
        return self.listed(rows.select_related("session").order_by("-id"), DocumentShown)
