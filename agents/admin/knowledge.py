"""Collections: named sets of documents that watches look at and runs read."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Count, F, Prefetch, Q, QuerySet
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from agents.admin.actions import REFUSALS, Act, ActForm, ActingAdmin, Asked, DressedForm, Told, each, reason
from agents.admin.base import ID_DIGITS, column, look, person
from agents.admin.display import DeletedFilter, moment, visible
from agents.admin.pages import EditForm, EditingAdmin
from agents.conf import clock
from agents.exceptions import Invalid
from agents.knowledge.documents import (
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
from agents.models import Attachment, Collection, Document
from agents.people.access import others_list
from agents.text.extraction import INSTALLING
from agents.text.formats import MAX_BYTES

SHOWN = 100


def _delete_collections(asked: Asked) -> Told:
    return each(asked, lambda row: collection_delete(collection=row, by=asked.by, now=asked.now), "deleted")


class CollectionForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    class Meta:
        model = Collection
        fields = ["name"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


@admin.register(Collection)
class CollectionAdmin(EditingAdmin):
    list_display = ["name", "owner", "documents", "watched", "created_at"]
    list_filter = [DeletedFilter]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    empty = "There are no collections. Make one, then put documents into it: watches and schedules read collections."
    ordering = ["name", "id"]
    sortable_by = ("name",)
    form_class = CollectionForm
    edit_template = "admin/collection.html"
    acts = (
        Act("delete", "Delete", "agents.delete_collection", _delete_collections, grave=True,
            fits=lambda row: not row.deleted_at,
            explained="Its documents stay; they are in no collection, or in others. Watches on it fire no more."),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        attached = Count("attachments", filter=Q(attachments__detached_at__isnull=True), distinct=True)
        watching = Count("triggers", filter=Q(triggers__kind="watch", triggers__deleted_at__isnull=True), distinct=True)
        rows: QuerySet[Collection] = super().get_queryset(request)
        return rows.annotate(attached=attached, watching=watching)

    @column("documents")
    def documents(self, collection: Any) -> int:
        return int(collection.attached)

    @column("watches")
    def watched(self, collection: Any) -> int:
        return int(collection.watching)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or obj.deleted_at is None) and super().has_change_permission(request, obj)

    def save_new(self, request: HttpRequest, form: Any) -> Collection:
        return collection_create(by=person(request), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: Collection, form: Any) -> Collection:
        return collection_rename(collection=row, name=form.cleaned_data["name"], by=person(request), now=clock())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row is None:
            return {}
        inside = row.attachments.filter(detached_at__isnull=True).select_related("document", "attached_by")
        return {
            "attachments": inside.defer("document__text").order_by("-attached_at", "-pk")[:SHOWN],
            "watches": row.triggers.filter(deleted_at__isnull=True).order_by("name"),
            "may_add": person(request).has_perm("agents.add_document"),
        }


# --- What the pages of documents ask for: files, and collections ---


# Kinds that need a library besides, by the module that shows it is there.
LIBRARIES: Final = {"PDF": "pypdf", "Word": "docx"}


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True
    template_name = "django/forms/widgets/file.html"


class FilesField(forms.FileField):
    """Several files at once."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        given = data or [None]  # no file at all is refused like one that is missing
        return [super(FilesField, self).clean(one, initial) for one in given]


class OwnedCollection(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} ({obj.owner})"


def collections_in_use() -> Any:
    return Collection.objects.filter(deleted_at__isnull=True).select_related("owner").order_by("name", "pk")


def readable_words() -> str:
    """Which kinds of file this installation can read, and what it takes to read the others."""
    there = [name for name, library in LIBRARIES.items() if find_spec(library)]
    missing = [name for name in LIBRARIES if name not in there]
    kinds = ["Text", "Markdown", "HTML", *there]
    said = f"{', '.join(kinds[:-1])} and {kinds[-1]} can be read here. Several files can be chosen at once."
    if not missing:
        return said
    return f"{said} For {' and '.join(missing)} files {INSTALLING}, or save them as text."


class UploadForm(DressedForm):
    documents = FilesField(label="Files")
    collection = OwnedCollection(
        Collection.objects.none(),
        required=False,
        help_text="They belong to its owner, and its watches start a run for each. Empty: they are yours, in none.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["documents"].help_text = readable_words()
        self.fields["collection"].queryset = collections_in_use()  # type: ignore[attr-defined]


class AttachForm(ActForm):
    """The collections of the documents' owner."""

    collection = forms.ModelChoiceField(Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owners = {getattr(row, "owner_id", None) for row in self.rows}
        self.fields["collection"].queryset = self.choices_for(owners)  # type: ignore[attr-defined]

    def choices_for(self, owners: set[Any]) -> Any:
        return collections_in_use().filter(owner_id__in=owners)


class DetachForm(AttachForm):
    """The collections that the document is in."""

    def choices_for(self, owners: set[Any]) -> Any:
        pks = [row.pk for row in self.rows]
        inside = {"attachments__document__in": pks, "attachments__detached_at__isnull": True}
        return super().choices_for(owners).filter(**inside).distinct()


# The text of a document in pieces, for its page: where chunks begin, and which findings quote which words. Pure.


SHOWN_CHARS: Final = 200_000


@dataclass(frozen=True)
class Piece:
    """Words that belong together. `begins` are findings whose quote starts here; `chunk` is set where one begins."""

    text: str
    quoted_by: tuple[Any, ...] = ()
    begins: tuple[Any, ...] = ()
    chunk: Any = None


def pieces(text: str, chunks: Sequence[Any], findings: Sequence[Any], *, limit: int = SHOWN_CHARS) -> list[Piece]:
    """The text from its beginning to the limit, without a character lost or doubled."""
    end = min(len(text), limit)
    quotes = [finding for finding in findings if _is_within(finding, len(text))]
    begins = {chunk.start: chunk for chunk in chunks if chunk.start < end}
    edges = {0, end, *begins}
    for finding in quotes:
        edges |= {min(finding.quote_start, end), min(finding.quote_end, end)}
    ordered = sorted(edges)
    return [
        Piece(
            visible(text[start:stop]),
            quoted_by=tuple(one for one in quotes if one.quote_start <= start and stop <= one.quote_end),
            begins=tuple(one for one in quotes if one.quote_start == start),
            chunk=begins.get(start),
        )
        for start, stop in pairwise(ordered)
    ]


def _is_within(finding: Any, length: int) -> bool:
    start, end = finding.quote_start, finding.quote_end
    return start is not None and end is not None and start < end <= length


# Documents: adding several at once, reading one with its quotes marked, searching, and putting it into collections.


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


def _delete_documents(asked: Asked) -> Told:
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
        Act("delete", "Delete", "agents.delete_document", _delete_documents, grave=True, fits=_in_use,
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
