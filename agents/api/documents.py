"""Documents: uploaded, put into collections, downloaded as they came, deleted. Their bytes never change."""

from typing import Any

import django_filters
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.base import OwnedViewSet
from agents.api.errors import TooLarge
from agents.api.fields import Body, OwnRow, Shown, ref
from agents.api.parsers import Upload
from agents.api.schema import described
from agents.enums import DocumentOrigin, TriggerKind
from agents.exceptions import NotFound
from agents.knowledge.documents import bytes_place, document_add, document_attach, document_delete, document_detach
from agents.models import Collection, Document, Trigger
from agents.people.access import demand_start
from agents.text.formats import MAX_BYTES

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
