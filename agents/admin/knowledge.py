"""Collections and documents: adding, reading with quotes marked, searching, attaching and detaching."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F, OuterRef, Prefetch, QuerySet, Subquery
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, delete_action, each_row, is_in_use
from agents.admin.base import FormAdmin, NamedAdmin, chosen_owner, current_user, number_in, record_view
from agents.admin.display import DeletedFilter, column
from agents.admin.forms import REFUSALS, OwnerForm, StyledModelForm, error_text
from agents.conf import clock
from agents.engine.indexing import fetch_for_person
from agents.exceptions import Invalid
from agents.knowledge.documents import (
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
from agents.knowledge.vectors import vector_space
from agents.models import Attachment, Collection, Document, Trigger
from agents.models.expressions import CountOf
from agents.people.access import record_list_of_others
from agents.text.formats.kinds import KINDS
from agents.text.formats.limits import MAX_BYTES
from agents.text.shown import visible

SHOWN_DOCUMENTS: Final = 100
SHOWN_FINDINGS: Final = 200
SHOWN_CHARS: Final = 50_000  # of a text at a time
SHOWN_HITS: Final = 200
SHOWN_FLOWS: Final = 2_000  # lines that are joined in a part
SHOWN_PLACES: Final = 500  # in the contents, and headings marked in a part
SEARCHED_WORDS: Final = 10
AROUND_CHARS: Final = 60
QUERY_CHARS: Final = 200
HEADING: Final = re.compile(r"^#{1,6} [^\n]{1,200}$", re.MULTILINE)
MARKDOWN: Final = ("text/markdown", "text/x-markdown")
FENCE: Final = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
# Lines of Markdown that are no part of a paragraph, and lines that begin something new.
NO_PROSE: Final = re.compile(r"\s*(?:$|#{1,6} |[-=*_]{3,}\s*$)|[^|\n]*\||\t| {4}")
NEW_BLOCK: Final = re.compile(rf"{NO_PROSE.pattern}|\s*(?:[-*+] |\d{{1,9}}[.)] |>|```|~~~)")
ORIGINS: Final = {"upload": "upload", "artifact": "written by a run"}


# --- Collections ---


class CollectionForm(OwnerForm):
    class Meta:
        model = Collection
        fields = ["name"]


@admin.register(Collection)
class CollectionAdmin(NamedAdmin):
    watches = column("watching", title="watches")
    list_display = ["name", "owner", "documents", "watches", "created_at"]
    list_filter = [DeletedFilter]
    empty_text = "No collections yet. Add one, then add documents to it: triggers read collections."
    form = CollectionForm
    change_form_template = "admin/collection.html"
    row_actions = (
        delete_action(
            each_row(collection_delete, "collection", "deleted"),
            "Its documents stay. Watches on it no longer fire.",
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        watches = Trigger.objects.filter(collection=OuterRef("pk"), kind="watch", deleted_at__isnull=True)
        rows: QuerySet[Collection] = super().get_queryset(request)
        return rows.annotate(watching=CountOf(watches))

    def create(self, request: HttpRequest, form: Any) -> Collection:
        return collection_create(by=current_user(request), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: Collection, form: Any) -> Collection:
        return collection_rename(collection=row, name=form.cleaned_data["name"], by=current_user(request), now=clock())

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        inside = row.attachments.filter(detached_at__isnull=True).select_related("document", "attached_by")
        return {
            "attachments": inside.defer("document__text", "document__marks").order_by("-attached_at", "-pk")[
                :SHOWN_DOCUMENTS
            ],
            "watches": row.triggers.filter(deleted_at__isnull=True).order_by("name"),
            "space": vector_space(),
            "indexed": inside.filter(document__indexed_as=vector_space()).count(),
            "inside": row.documents,
        }


# --- Forms of documents ---


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True
    template_name = "django/forms/widgets/file.html"


class FilesField(forms.FileField):
    """Several files at once."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        given = data or [None]  # no file at all is refused like a missing one
        return [super(FilesField, self).clean(one, initial) for one in given]


class OwnedCollection(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} ({obj.owner})"


def collections_in_use() -> Any:
    return Collection.objects.filter(deleted_at__isnull=True).select_related("owner").order_by("name", "pk")


class UploadForm(StyledModelForm):
    documents = FilesField(label="Files", allow_empty_file=True, help_text=f"{KINDS}. You can choose several at once.")
    collection = OwnedCollection(
        Collection.objects.none(),
        required=False,
        help_text="The documents belong to its owner, and its watches start a run for each. Empty: they belong to you.",
    )

    class Meta:
        model = Document
        fields = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["collection"].queryset = collections_in_use()  # type: ignore[attr-defined]


class AttachForm(ActionForm):
    """Offers the collections of the documents' owner."""

    collection = forms.ModelChoiceField(Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owners = {getattr(row, "owner_id", None) for row in self.rows}
        self.fields["collection"].queryset = self.choices_for(owners)  # type: ignore[attr-defined]

    def choices_for(self, owners: set[Any]) -> Any:
        return collections_in_use().filter(owner_id__in=owners)


class DetachForm(AttachForm):
    """Offers the collections that the document is in."""

    def choices_for(self, owners: set[Any]) -> Any:
        pks = [row.pk for row in self.rows]
        inside = {"attachments__document__in": pks, "attachments__detached_at__isnull": True}
        return super().choices_for(owners).filter(**inside).distinct()


# --- The text of a document in parts, with pages, headings, quotes and search hits marked ---


@dataclass(frozen=True)
class Piece:
    """A stretch of text. `begins` are findings whose quote starts here; `hit` is the number of the hit that it is in.

    `chunk` and `label`, the name of a page, sheet or slide, are set where one begins. `marker` and `lines` are the same
    text again: the marker of a heading, which is not shown, and the rest, cut where a paragraph goes on.
    """

    text: str
    start: int = 0
    quoted_by: tuple[Any, ...] = ()
    begins: tuple[Any, ...] = ()
    chunk: Any = None
    label: str = ""
    is_heading: bool = False
    hit: int = 0
    hit_begins: bool = False
    marker: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hit:
    """A place where the searched words stand: its number from 1, and the text around it."""

    number: int
    start: int
    end: int
    before: str = ""
    words: str = ""
    after: str = ""


def parts_of(text: str) -> list[tuple[int, int]]:
    """The parts in which a text is shown: each ends at a line's end if there is one near enough."""
    found, start = [], 0
    while start < len(text):
        end = min(start + SHOWN_CHARS, len(text))
        if end < len(text):
            end = text.rfind("\n", start + SHOWN_CHARS * 4 // 5, end) + 1 or end
        found.append((start, end))
        start = end
    return found or [(0, 0)]


def hits_in(text: str, query: str) -> list[Hit]:
    """The first places of a text that hold the query's first words, in any case and with any space between them."""
    words_ = query.split()[:SEARCHED_WORDS]
    if not words_:
        return []
    found = islice(re.finditer(r"\s+".join(map(re.escape, words_)), text, re.IGNORECASE), SHOWN_HITS)
    return [
        Hit(
            number,
            place.start(),
            place.end(),
            visible(text[max(place.start() - AROUND_CHARS, 0) : place.start()]),
            visible(" ".join(place[0].split())),
            visible(text[place.end() : place.end() + AROUND_CHARS]),
        )
        for number, place in enumerate(found, 1)
    ]


def pieces(
    text: str,
    chunks: Sequence[Any],
    findings: Sequence[Any],
    marks: Sequence[tuple[int, str]] = (),
    hits: Sequence[Hit] = (),
    *,
    part: tuple[int, int] | None = None,
    flows: bool = False,
) -> list[Piece]:
    """A part of the text, in pieces; no character is lost or doubled. `flows`: lines of a paragraph are joined."""
    first, last = part or (0, len(text))
    quotes = [finding for finding in findings if _is_within(finding, len(text))]
    begins = {chunk.start: chunk for chunk in chunks}
    labels = dict(marks)
    headings = {place.start(): place.end() for place in islice(HEADING.finditer(text, first, last), SHOWN_PLACES)}
    spans = [(one.quote_start, one.quote_end) for one in quotes] + [(hit.start, hit.end) for hit in hits]
    edges = {first, last, *begins, *labels, *headings, *headings.values(), *(edge for span in spans for edge in span)}
    ordered = sorted(edge for edge in edges if first <= edge <= last)
    soft = soft_ends(text, first, last) if flows else []
    code = fenced(text, last) if flows else []
    found = []
    heading_end = first
    for start, stop in pairwise(ordered):
        heading_end = headings.get(start, heading_end)
        is_marked = flows and start in headings and not _is_within_one(code, start)
        words_at = min(text.index(" ", start) + 1, stop) if is_marked else start
        hit = next((one for one in hits if one.start <= start and stop <= one.end), None)
        found.append(
            Piece(
                visible(text[start:stop]),
                start,
                quoted_by=tuple(one for one in quotes if one.quote_start <= start and stop <= one.quote_end),
                begins=tuple(one for one in quotes if max(one.quote_start, first) == start < one.quote_end),
                chunk=begins.get(start),
                label=labels.get(start, ""),
                is_heading=stop <= heading_end,
                hit=hit.number if hit else 0,
                hit_begins=hit is not None and max(hit.start, first) == start,
                marker=text[start:words_at],
                lines=_lines(text, words_at, stop, soft),
            )
        )
    return found


def fenced(text: str, last: int) -> list[tuple[int, int]]:
    """The blocks of code in a text, up to a place: a fence is closed by one of its own kind."""
    found: list[tuple[int, int]] = []
    begin: tuple[int, str] | None = None
    for fence in FENCE.finditer(text, 0, last):
        if begin is None:
            begin = (fence.start(), fence[1])
        elif begin[1] == fence[1]:
            found.append((begin[0], fence.end()))
            begin = None
    return [*found, (begin[0], last)] if begin else found


def _is_within_one(spans: Sequence[tuple[int, int]], place: int) -> bool:
    return any(begin <= place < end for begin, end in spans)


def soft_ends(text: str, first: int, last: int) -> list[int]:
    """The ends of lines in a part of Markdown after which a paragraph, or an item of a list, goes on."""
    found: list[int] = []
    place = first
    code = fenced(text, last)
    for line, following in pairwise(text[first:last].split("\n")):
        is_code = _is_within_one(code, place)
        place += len(line)
        ends_here = is_code or NO_PROSE.match(line) or line.endswith(("  ", "\\"))
        if not ends_here and not NEW_BLOCK.match(following) and len(found) < SHOWN_FLOWS:
            found.append(place)
        place += 1
    return found


def _lines(text: str, start: int, stop: int, soft: Sequence[int]) -> tuple[str, ...]:
    """A stretch of text, cut at the ends of lines that are soft."""
    inside = soft[bisect_left(soft, start) : bisect_left(soft, stop)]
    begins = [start, *(end + 1 for end in inside)]
    return tuple(visible(text[one:end]) for one, end in zip(begins, [*inside, stop], strict=True))


def _is_within(finding: Any, length: int) -> bool:
    start = finding.quote_start
    end = finding.quote_end
    return start is not None and end is not None and start < end <= length


def _part_at(parts: list[tuple[int, int]], place: int) -> int:
    """The number of the part that holds a place; of the last one, if none does."""
    return next((number for number, (_, end) in enumerate(parts, 1) if place < end), len(parts))


def _headings(text: str) -> list[tuple[int, str]]:
    found = islice(HEADING.finditer(text), SHOWN_PLACES)
    return [(place.start(), visible(place[0].strip("# "))) for place in found]


def _is_markdown(document: Document) -> bool:
    return document.media_type in MARKDOWN


# --- Documents ---


def _attach(action: ActionRequest) -> ActionResult:
    collection = action.data["collection"]
    return each_row(document_attach, "document", f"added to {collection}", collection=collection)(action)


def _detach(action: ActionRequest) -> ActionResult:
    collection = action.data["collection"]
    return each_row(document_detach, "document", f"removed from {collection}", collection=collection)(action)


@admin.register(Document)
class DocumentAdmin(FormAdmin):
    collections = column(
        "inside_now", lambda rows: ", ".join(one.collection.name for one in rows) or "none", title="collections"
    )
    size_ = column("size", lambda size: f"{size:,} bytes")
    origin_ = column("origin", ORIGINS.get, label={"artifact": "info"})
    list_display = ["name", "owner", "collections", "size_", "origin_", "created_at"]
    list_filter = [DeletedFilter, "origin"]
    list_select_related = ["owner"]
    list_before_template = "admin/document_search_box.html"
    search_fields = ["name", "owner__username"]
    search_help_text = "Part of a document's name, or its owner. The search box above searches the text."
    empty_text = f"No documents yet. Add files: {KINDS}."
    form = UploadForm
    can_change = False
    sortable_by = ()
    change_form_template = "admin/document.html"
    row_views = ("bytes",)
    save_label = "Add documents"
    row_actions = (
        RowAction(
            "attach",
            "Add to collection",
            _attach,
            AttachForm,
            available=is_in_use,
            description="The watches on that collection start a run for it.",
        ),
        RowAction(
            "detach",
            "Remove from collection",
            _detach,
            DetachForm,
            bulk=False,
            available=is_in_use,
            description="The document itself and its other collections stay.",
        ),
        delete_action(
            each_row(document_delete, "document", "deleted"),
            "People, search and runs no longer find it. Findings that quote it stay.",
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        inside = Attachment.objects.filter(detached_at__isnull=True).select_related("collection")
        rows: QuerySet[Document] = super().get_queryset(request)
        return rows.defer("text", "marks").prefetch_related(
            Prefetch("attachments", queryset=inside, to_attr="inside_now")
        )

    def get_urls(self) -> list[URLPattern]:
        return [self.url("search/", "search"), *super().get_urls()]

    def create(self, request: HttpRequest, form: Any) -> HttpResponse:
        """Add each file by one call. Files that were added stay, whatever happens to the others."""
        by = current_user(request)
        collection = form.cleaned_data["collection"]
        for file in form.cleaned_data["documents"]:
            try:
                if file.size > MAX_BYTES:
                    raise Invalid(f"{file.size:,} bytes; the maximum is {MAX_BYTES:,}. Split the file.")
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
                form.add_error(None, f"{file.name}: {error_text(error)}")
                continue
            messages.success(request, f"{document.name} {'added' if is_new else 'exists already'}.")
        page = reverse("admin:agents_collection_change", args=[collection.pk]) if collection else self.list_link()
        return HttpResponseRedirect(page)

    def extra_context(self, request: HttpRequest, row: Document) -> dict[str, Any]:
        """One part of the text: the one that the address names, or that holds the place or the quote that it names."""
        parts = parts_of(row.text)
        query = request.GET.get("q", "").strip()[:QUERY_CHARS]
        hits = hits_in(row.text, query)
        chosen = row.findings.filter(pk=number_in(request, "finding")).first()
        place = number_in(request, "at") if chosen is None else chosen.quote_start or 0
        shown = number_in(request, "part") or _part_at(parts, place)
        start, end = parts[min(shown, len(parts)) - 1]
        quoted = row.findings.filter(quote_start__lt=end, quote_end__gt=start).order_by("quote_start", "id")
        chunks = list(row.chunks.filter(start__gte=start, start__lt=end).defer("text").order_by("number"))
        by_place = row.findings.select_related("session").order_by(F("quote_start").asc(nulls_last=True), "id")
        marked = list(quoted[:SHOWN_FINDINGS])
        if chosen is not None and chosen not in marked:
            marked.append(chosen)
        return {
            "title": row.name,
            "document": row,
            "findings": list(by_place[:SHOWN_FINDINGS]),
            "chosen": chosen,
            "pieces": pieces(row.text, chunks, marked, row.marks, hits, part=(start, end), flows=_is_markdown(row)),
            "places": [(at, label) for at, label in row.marks][:SHOWN_PLACES] or _headings(row.text),
            "chunk_count": row.chunks.count(),
            "space": vector_space(),
            "query": query,
            "hits": hits,
            "most_hits": SHOWN_HITS,
            "searched_words": SEARCHED_WORDS if len(query.split()) > SEARCHED_WORDS else 0,
            "part": min(shown, len(parts)),
            "parts": len(parts),
            "start": start,
            "end": end,
        }

    def search_view(self, request: HttpRequest) -> HttpResponse:
        """Search in the documents of one owner, by default the user's. A search in others' is recorded.

        One that is posted asks the embedding model for the meaning of the query, if that is new.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        query = request.GET.get("q", "")[:500]
        owner = chosen_owner(request, User.objects.all())
        by = current_user(request)
        words_only = ""
        if request.method == "POST" and query:
            words_only = "these are documents of others"
            if owner.pk == by.pk:
                words_only = fetch_for_person(query=query, by=by, now=clock())
        hits = search_chunks(owner_id=owner.pk, query=query, limit=50)
        if query:
            record_list_of_others(resource="document", owner_id=owner.pk, by=by, now=clock())
        # One document of each, by the index: with an equality all documents are read to find that there is none.
        owned = Document.objects.filter(owner__gte=OuterRef("pk"), owner__lte=OuterRef("pk")).order_by("owner_id")
        people = User.objects.annotate(document=Subquery(owned.values("pk")[:1])).filter(document__isnull=False)
        people = people.order_by("username")[:500]
        context: dict[str, Any] = {"query": query, "owner": owner, "hits": hits, "people": people}
        context |= {"words_only": words_only, "by_meaning": bool(vector_space())}
        return self.render_page(request, "admin/document_search.html", "Search documents", **context)

    def bytes_view(self, request: HttpRequest, pk: int) -> FileResponse:
        """The original file, always as a download: a page never renders it."""
        document = self.get_row(request, pk)
        record_view(request, current_user(request), document)
        place = bytes_path(document.digest)
        if document.deleted_at is not None or not place.is_file():
            raise Http404
        response = FileResponse(
            place.open("rb"), as_attachment=True, filename=document.name, content_type="application/octet-stream"
        )
        response["X-Content-Type-Options"] = "nosniff"
        return response
