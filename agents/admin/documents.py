"""Documents: adding several at once, reading one with its quotes marked, searching, and putting it into collections."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F, Prefetch, QuerySet
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from agents.admin.actions import REFUSALS, Act, ActingAdmin, Asked, Told, each, reason
from agents.admin.base import ID_DIGITS, column, person
from agents.admin.display import moment
from agents.admin.document_forms import AttachForm, DetachForm, UploadForm
from agents.admin.document_text import SHOWN_CHARS, pieces
from agents.admin.filters import DeletedFilter
from agents.admin.looking import look
from agents.conf import clock
from agents.exceptions import Invalid
from agents.knowledge.documents import bytes_place, document_add, document_attach, document_delete, document_detach
from agents.knowledge.search import search_chunks
from agents.models import Attachment, Document
from agents.people.access import others_list
from agents.text.formats import MAX_BYTES

SHOWN_FINDINGS = 200


def _in_use(row: Document) -> bool:
    return row.deleted_at is None


def _attach(asked: Asked) -> Told:
    collection = asked.given["collection"]
    return each(
        asked,
        lambda row: document_attach(document=row, collection=collection, by=asked.by, now=asked.now),
        f"in {collection}",
    )


def _detach(asked: Asked) -> Told:
    collection = asked.given["collection"]
    return each(
        asked,
        lambda row: document_detach(document=row, collection=collection, by=asked.by, now=asked.now),
        f"taken out of {collection}",
    )


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: document_delete(document=row, by=asked.by, now=asked.now), "deleted")


@admin.register(Document)
class DocumentAdmin(ActingAdmin):
    list_display = ["name", "owner", "inside", "size_", "origin_", "came"]
    list_filter = [DeletedFilter, "origin"]
    list_select_related = ["owner"]
    list_before_template = "admin/document_search_box.html"
    search_fields = ["name", "owner__username"]
    search_help_text = "Part of a document's name, or its owner. The box above searches the text."
    empty = "There are no documents yet. Add some: Text, Markdown and HTML are read out of the box."
    ordering = ["-id"]
    sortable_by = ()
    acts = (
        Act("attach", "Put into a collection", "agents.change_document", _attach, AttachForm, fits=_in_use,
            explained="The watches on that collection start a run for it."),
        Act("detach", "Take out of a collection", "agents.change_document", _detach, DetachForm, many=False,
            fits=_in_use, explained="It stays in other collections, and as a document."),
        Act("delete", "Delete", "agents.delete_document", _delete, grave=True, fits=_in_use,
            explained="It is gone for people, search and runs. Findings that quote it stay."),
    )  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "add")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "delete")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        inside = Attachment.objects.filter(detached_at__isnull=True).select_related("collection")
        rows: QuerySet[Document] = super().get_queryset(request)
        return rows.defer("text").prefetch_related(Prefetch("attachments", queryset=inside, to_attr="inside_now"))

    @column("collections")
    def inside(self, document: Any) -> str:
        return ", ".join(attachment.collection.name for attachment in document.inside_now) or "none"

    @column("size")
    def size_(self, document: Document) -> str:
        return f"{document.size:,} bytes"

    @column("origin", labels={"artifact": "info"})
    def origin_(self, document: Document) -> tuple[str, str]:
        return document.origin, "written by a run" if document.origin == "artifact" else "upload"

    @column("added")
    def came(self, document: Document) -> str:
        return moment(document.created_at)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("search/", wrap(self.search_view), name="agents_document_search"),
            path("<int:pk>/bytes/", wrap(self.bytes_view), name="agents_document_bytes"),
            *super().get_urls(),
        ]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            form = UploadForm(request.POST, request.FILES)
            if form.is_valid() and self._add_all(request, form):
                return HttpResponseRedirect(self._after_adding(form))
        else:
            form = UploadForm(initial=request.GET.dict())
        return self.page(request, "admin/document_add.html", "Add documents", form=form, back=self.list_link())

    def _add_all(self, request: HttpRequest, form: UploadForm) -> bool:
        """One call of the service per file. Those that were taken stay, whatever happens to the others."""
        by, collection, taken = person(request), form.cleaned_data["collection"], 0
        for file in form.cleaned_data["documents"]:
            try:
                if file.size > MAX_BYTES:
                    raise Invalid(f"{file.size:,} bytes; at most {MAX_BYTES:,} are taken. Split it.")
                document, is_new = document_add(
                    owner=collection.owner if collection else by,
                    name=file.name,
                    data=file.read(),
                    media_type=file.content_type or "",
                    collection=collection,
                    by=by,
                    now=clock(),
                )
            except REFUSALS as error:
                form.add_error(None, f"{file.name}: {reason(error)}")
                continue
            taken += 1
            messages.success(request, f"{document.name} {'was added' if is_new else 'was known already'}.")
        return taken > 0 and not form.non_field_errors()

    def _after_adding(self, form: Any) -> str:
        collection = form.cleaned_data["collection"]
        return reverse("admin:agents_collection_change", args=[collection.pk]) if collection else self.list_link()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "GET":
            raise PermissionDenied
        document = self.found(request, object_id)
        findings = list(
            document.findings.select_related("session").order_by(F("quote_start").asc(nulls_last=True), "id")[
                :SHOWN_FINDINGS
            ]
        )
        chunks = list(document.chunks.filter(start__lt=SHOWN_CHARS).defer("text").order_by("number"))
        return self.page(
            request,
            "admin/document.html",
            document.name,
            original=document,
            document=document,
            findings=findings,
            pieces=pieces(document.text, chunks, findings),
            chunk_count=document.chunks.count(),
            left_out=max(len(document.text) - SHOWN_CHARS, 0),
            buttons=self.buttons(request, document),
        )

    def search_view(self, request: HttpRequest) -> HttpResponse:
        """Full-text search in the documents of one owner: the person's own unless another is chosen, on record."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        query, chosen = request.GET.get("q", "")[:500], request.GET.get("owner", "")
        found = User.objects.filter(pk=int(chosen)).first() if chosen.isdecimal() and len(chosen) < ID_DIGITS else None
        owner = found or person(request)
        hits = search_chunks(owner_id=owner.pk, query=query, limit=50)
        if query:
            others_list(resource="document", owner_id=owner.pk, by=person(request), now=clock())
        people = User.objects.filter(lqops_documents__isnull=False).distinct().order_by("username")[:500]
        shown: dict[str, Any] = {"query": query, "owner": owner, "hits": hits, "people": people}
        return self.page(request, "admin/document_search.html", "Search documents", **shown)

    def bytes_view(self, request: HttpRequest, pk: int) -> FileResponse:
        """The document as it came in, always as a download: no page of ours ever shows it as what it claims to be."""
        document = self.found(request, str(pk))
        look(request, person(request), document)
        place = bytes_place(document.digest)
        if document.deleted_at is not None or not place.is_file():
            raise Http404
        response = FileResponse(
            place.open("rb"), as_attachment=True, filename=document.name, content_type="application/octet-stream"
        )
        response["X-Content-Type-Options"] = "nosniff"
        return response
