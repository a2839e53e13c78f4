"""Documents, collections of documents, and full-text search. A document's bytes never change."""

from typing import Any

import django_filters
from django.db.models import Q
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet, SingleView, act_with, create_with, delete_with
from agents.api.errors import TooLarge
from agents.api.fields import Body, CountField, OwnedRowField, RowSerializer, UploadParser, ref
from agents.api.schema import describe, detail_action, detail_list
from agents.conf import clock
from agents.engine.indexing import fetch_for_person
from agents.enums import DocumentOrigin, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.knowledge.documents import (
    COLLECTION_NAME_CHARS,
    bytes_path,
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
from agents.people.access import require_start_permission
from agents.text.clean import NAME_CHARS, document_name
from agents.text.formats.kinds import READ
from agents.text.formats.limits import MAX_BYTES

# --- Documents ---


# A browser saves a downloaded document and never renders it as a page of this site.
DOWNLOAD_POLICY = "default-src 'none'; sandbox"


class DocumentSerializer(RowSerializer):
    session = ref("session")

    class Meta:
        model = Document
        fields = ["id", "name", "media_type", "origin", "session", "digest", "size", "created_at"]


class DocumentDetailSerializer(DocumentSerializer):
    collections = serializers.SerializerMethodField(help_text="The ids of its collections.")

    class Meta(DocumentSerializer.Meta):
        fields = [*DocumentSerializer.Meta.fields, "collections"]

    def get_collections(self, document: Any) -> list[str]:
        rows = document.attachments.filter(detached_at__isnull=True, collection__deleted_at__isnull=True)
        return [str(found) for found in rows.order_by("pk").values_list("collection__public_id", flat=True)]


class UploadBody(Body):
    file = serializers.FileField(max_length=NAME_CHARS, allow_empty_file=True, help_text=READ)
    name = serializers.CharField(max_length=NAME_CHARS, required=False, help_text="Default: the file's name.")
    collection = OwnedRowField(Collection, required=False, help_text="Adds it to this collection.")


class PlaceBody(Body):
    collection = OwnedRowField(Collection)


class DocumentViewSet(OwnedViewSet[Document]):
    """Your documents, newest first: uploads, and artifacts of runs."""

    queryset = Document.objects.all()
    serializer_class = DocumentSerializer
    detail_serializer_class = DocumentDetailSerializer
    filters = {
        "origin": django_filters.ChoiceFilter(choices=DocumentOrigin.choices),
        "digest": django_filters.CharFilter(max_length=64, label="SHA-256 of the bytes, in hexadecimal."),
    }
    joins = ("session",)
    destroy = delete_with(document_delete)
    detach = act_with("detach", document_detach, body=PlaceBody)

    def get_parsers(self) -> list[Any]:
        creates = self.request is not None and getattr(self, "action_map", {}).get("post") == "create"
        return [UploadParser()] if creates and self.request.method == "POST" else super().get_parsers()

    @describe(
        {
            201: DocumentDetailSerializer,
            200: OpenApiResponse(DocumentDetailSerializer, "You already have these bytes."),
        },
        body={"multipart/form-data": UploadBody},
        operation_id="documents_upload",
    )
    def create(self, request: Request) -> Response:
        """Upload a file as multipart/form-data. Bytes that you already have return the existing document."""
        data = self.body(UploadBody)
        file = data["file"]
        if file.size > MAX_BYTES:
            raise TooLarge(MAX_BYTES)
        self._require_start_if_watched(data.get("collection"))
        name = data.get("name") or file.name
        try:
            document, new = document_add(
                owner=self.user,
                name=name,
                data=file.read(),
                media_type=file.content_type or "",
                collection=data.get("collection"),
                **self.actor,
            )
        except Invalid as refusal:
            raise Invalid(f"{document_name(name)}: {refusal}") from None
        return self.respond(document, created=new)

    @detail_action(body=PlaceBody)
    def attach(self, request: Request, **_: Any) -> Response:
        """Add the document to one of your collections. Watches of the collection start sessions."""
        document = self.get_object()
        data = self.body(PlaceBody)
        self._require_start_if_watched(data["collection"])
        document_attach(document=document, **self.actor, **data)
        return self.respond(document)

    @detail_action({(200, "application/octet-stream"): OpenApiTypes.BINARY}, method="get")
    def download(self, request: Request, **_: Any) -> HttpResponse:
        """The original bytes, as a file to save."""
        document = self.get_object()
        try:
            data = bytes_path(document.digest).read_bytes()
        except OSError:
            raise NotFound(f"The bytes of document {document.public_id} are not on this machine.") from None
        disposition = content_disposition_header(as_attachment=True, filename=document.name) or "attachment"
        headers = {"Content-Disposition": disposition, "Content-Security-Policy": DOWNLOAD_POLICY}
        return HttpResponse(data, content_type="application/octet-stream", headers=headers)

    def _require_start_if_watched(self, collection: Collection | None) -> None:
        """Adding a document to a watched collection starts a session."""
        watches = Trigger.objects.live().filter(kind=TriggerKind.WATCH)
        if collection is not None and watches.filter(collection=collection).exists():
            require_start_permission(self.user)


# --- Collections ---


class CollectionSerializer(RowSerializer):
    class Meta:
        model = Collection
        fields = ["id", "name", "documents", "created_at"]


class CollectionBody(Body):
    name = serializers.CharField(max_length=COLLECTION_NAME_CHARS)


class CollectionViewSet(OwnedViewSet[Collection]):
    """Your collections, newest first."""

    queryset = Collection.objects.all()
    serializer_class = CollectionSerializer
    create = create_with(collection_create, CollectionBody)
    destroy = delete_with(collection_delete, "Delete the collection. Its documents stay.")

    @describe(body=CollectionBody, operation_id="collections_rename")
    def partial_update(self, request: Request, **_: Any) -> Response:
        return self.act(collection_rename, CollectionBody)

    @detail_list(DocumentSerializer)
    def documents(self, request: Request, **_: Any) -> Response:
        inside = Q(attachments__collection=self.get_object(), attachments__detached_at__isnull=True)
        rows = Document.objects.filter(inside, owner_id=self.user.pk, deleted_at__isnull=True)
        return self.page(rows.select_related("session").order_by("-id"), DocumentSerializer)


# --- Search ---


QUERY_CHARS = 500
MOST_HITS = 100


class SearchQuery(Body):
    q = serializers.CharField(max_length=QUERY_CHARS, help_text="Words to search for.")
    collection = OwnedRowField(Collection, required=False, help_text="Only in this collection.")
    limit = CountField(min_value=1, max_value=MOST_HITS, default=20)


class HitSerializer(serializers.Serializer[Any]):
    document = serializers.UUIDField(source="document_public_id")
    name = serializers.CharField()
    start = serializers.IntegerField(help_text="Start of the passage in the document's text.")
    end = serializers.IntegerField()
    snippet = serializers.CharField()
    found_by = serializers.ChoiceField(["words", "meaning", "both"])


class SearchSerializer(serializers.Serializer[Any]):
    results = HitSerializer(many=True)
    words_only = serializers.CharField(help_text="Why it was not searched by meaning, if that was asked for.")


class SearchView(SingleView):
    serializer_class = SearchSerializer
    starts = frozenset({"post"})

    @describe(parameters=[SearchQuery])
    def get(self, request: Request) -> Response:
        """Search in your documents by words; by meaning, too, if you have asked the same before. Asks no model."""
        return self._found(self.query(SearchQuery))

    @describe(body=SearchQuery, operation_id="search_by_meaning")
    def post(self, request: Request) -> Response:
        """Search in your documents by words and by meaning.

        A new query is sent to the embedding model, in a run of its own. If that fails, words alone are searched.
        """
        data = self.body(SearchQuery)
        return self._found(data, words_only=fetch_for_person(query=data["q"], by=self.user, now=clock()))

    def _found(self, data: dict[str, Any], words_only: str = "") -> Response:
        within = data.get("collection")
        hits = search_chunks(
            owner_id=self.user.pk,
            query=data["q"],
            collection_ids=[within.pk] if within else None,
            limit=data["limit"],
        )
        return Response(SearchSerializer({"results": hits, "words_only": words_only}).data)
