"""Collections: named sets of documents. Watches look at them; schedules and run-now read them."""

from typing import Any

import django_filters
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import ApiView, OwnedViewSet
from agents.api.errors import TooLarge
from agents.api.fields import Body, CountField, OwnRow, Shown, Upload, ref
from agents.api.schema import described
from agents.enums import DocumentOrigin, TriggerKind
from agents.exceptions import NotFound
from agents.knowledge.documents import (
    COLLECTION_NAME_CHARS,
    bytes_place,
    collection_create,
    collection_delete,
    collection_rename,
    document_add,
    document_attach,
    document_delete,
    document_detach,
)
from agents.knowledge.search import search_chunks
from agents.models import Collection, Document, Trigger
from agents.people.access import demand_start
from agents.text.formats import MAX_BYTES

# --- Documents: uploaded, put into collections, downloaded as they came, deleted. Their bytes never change ---


NAME_CHARS = 255
# What came from outside is never shown in this site's name: it is saved, not opened.
NOT_SHOWN = "default-src 'none'; sandbox"


class DocumentShown(Shown):
    session = ref("session")

    class Meta:
        model = Document
        fields = ["id", "name", "media_type", "origin", "session", "digest", "size", "created_at"]


class DocumentDetail(DocumentShown):
    collections = serializers.SerializerMethodField(help_text="The ids of the collections that it is in.")

    class Meta(DocumentShown.Meta):
        fields = [*DocumentShown.Meta.fields, "collections"]

    def get_collections(self, document: Any) -> list[str]:
        rows = document.attachments.filter(detached_at__isnull=True, collection__deleted_at__isnull=True)
        return [str(found) for found in rows.order_by("pk").values_list("collection__public_id", flat=True)]


class UploadBody(Body):
    file = serializers.FileField(max_length=NAME_CHARS, allow_empty_file=True)
    name = serializers.CharField(max_length=NAME_CHARS, required=False, help_text="Instead of the file's own name.")
    collection = OwnRow(Collection, required=False, help_text="Puts it into this collection at once.")


class PlaceBody(Body):
    collection = OwnRow(Collection)


class DocumentFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter ships no types
    origin = django_filters.ChoiceFilter(choices=DocumentOrigin.choices)
    digest = django_filters.CharFilter(max_length=64, label="SHA-256 of the bytes, in hexadecimal.")


class Documents(OwnedViewSet[Document]):
    """Your documents, newest first: what you uploaded, and what runs wrote."""

    queryset = Document.objects.all()
    filterset_class = DocumentFilter
    joins = ("session",)

    def get_serializer_class(self) -> type[DocumentShown]:
        return DocumentShown if self.action == "list" else DocumentDetail

    def get_parsers(self) -> list[Any]:
        creates = self.request is not None and getattr(self, "action_map", {}).get("post") == "create"
        return [Upload()] if creates and self.request.method == "POST" else super().get_parsers()

    @described(
        "documents_upload",
        {201: DocumentDetail, 200: OpenApiResponse(DocumentDetail, "The same bytes were here already.")},
        body={"multipart/form-data": UploadBody},
    )
    def create(self, request: Request) -> Response:
        """Takes a file as multipart/form-data. Bytes that you have already are the document that is there."""
        said = self.body(UploadBody)
        file = said["file"]
        if file.size > MAX_BYTES:
            raise TooLarge(MAX_BYTES)
        self._demand_start_if_watched(said.get("collection"))
        document, new = document_add(
            owner=self.person,
            name=said.get("name") or file.name,
            data=file.read(),
            media_type=file.content_type or "",
            collection=said.get("collection"),
            by=self.person,
            now=self.now,
        )
        return self.shown(document, created=new)

    @described("documents_delete")
    def destroy(self, request: Request, **_: Any) -> Response:
        document_delete(document=self.get_object(), by=self.person, now=self.now)
        return self.gone()

    @described("documents_attach", DocumentDetail, body=PlaceBody)
    @action(detail=True, methods=["post"])
    def attach(self, request: Request, **_: Any) -> Response:
        """Puts it into a collection of yours; watches of that collection are told, and begin sessions."""
        document, said = self.get_object(), self.body(PlaceBody)
        self._demand_start_if_watched(said["collection"])
        document_attach(document=document, by=self.person, now=self.now, **said)
        return self.shown(document)

    @described("documents_detach", DocumentDetail, body=PlaceBody)
    @action(detail=True, methods=["post"])
    def detach(self, request: Request, **_: Any) -> Response:
        document, said = self.get_object(), self.body(PlaceBody)
        document_detach(document=document, by=self.person, now=self.now, **said)
        return self.shown(document)

    @described("documents_download", {(200, "application/octet-stream"): OpenApiTypes.BINARY})
    @action(detail=True, methods=["get"])
    def download(self, request: Request, **_: Any) -> HttpResponse:
        """The bytes as they came, to be saved and not to be shown."""
        document = self.get_object()
        try:
            data = bytes_place(document.digest).read_bytes()
        except OSError:
            raise NotFound(f"The bytes of document {document.public_id} are not on this machine.") from None
        answer = HttpResponse(data, content_type="application/octet-stream")
        answer.headers["Content-Disposition"] = (
            content_disposition_header(as_attachment=True, filename=document.name) or "attachment"
        )
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Content-Security-Policy"] = NOT_SHOWN
        return answer

    def _demand_start_if_watched(self, collection: Collection | None) -> None:
        """What is put where a trigger watches begins a session."""
        watches = Trigger.objects.live().filter(kind=TriggerKind.WATCH)
        if collection is not None and watches.filter(collection=collection).exists():
            demand_start(self.person)


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


# --- Full-text search over the person's own documents ---


QUERY_CHARS = 500
MOST_HITS = 100


class SearchQuery(Body):
    q = serializers.CharField(max_length=QUERY_CHARS, help_text="Words to look for.")
    collection = OwnRow(Collection, required=False, help_text="Only in this collection.")
    limit = CountField(min_value=1, max_value=MOST_HITS, default=20)


class HitShown(serializers.Serializer[Any]):
    document = serializers.UUIDField(source="document_public_id")
    name = serializers.CharField()
    start = serializers.IntegerField(help_text="Where the passage begins in the document's text.")
    end = serializers.IntegerField()
    snippet = serializers.CharField()


class SearchShown(serializers.Serializer[Any]):
    results = HitShown(many=True)


class Search(ApiView):
    serializer_class = SearchShown

    @described("search_retrieve", SearchShown, parameters=[SearchQuery])
    def get(self, request: Request) -> Response:
        """The passages that fit best, best first."""
        said = self.query(SearchQuery)
        within = said.get("collection")
        hits = search_chunks(
            owner_id=self.person.pk,
            query=said["q"],
            collection_ids=[within.pk] if within else None,
            limit=said["limit"],
        )
        return Response(SearchShown({"results": hits}).data)
