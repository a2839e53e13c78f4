"""Collections and documents on the admin pages: adding, reading, searching, attaching."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from agents.admin.knowledge import hits_in, parts_of, pieces, soft_ends
from agents.engine.indexing import index_start, run_index
from agents.knowledge.documents import document_add
from agents.knowledge.vectors import vector_space
from agents.models import AgentSession, Attachment, Collection, Document, Finding, Profile
from agents.runner import run_session
from agents.text.formats.kinds import KINDS
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, make_document, page, sign_in, text_of
from tests.embeddings_wire import embedding
from tests.factories import NOW, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"


def upload(client, *files, **given):
    named = [SimpleUploadedFile(name, data, content_type="text/plain") for name, data in files]
    return client.post(page(Document, "add"), {"documents": named, **given}, follow=True)


# --- Collections ---


def test_collection_is_added_renamed_and_deleted(client):
    user = sign_in(client, "operator")
    before = last_event()

    client.post(page(Collection, "add"), {"owner": user.pk, "name": "Inbox"})
    row = Collection.objects.get()
    client.post(page(Collection, "change", row.pk), {"name": "Incoming"})
    client.post(act_page(row, "delete"), {"confirmed": "1"})

    assert kinds_since(before) == ["collection.created", "collection.edited", "collection.deleted"]
    row.refresh_from_db()
    assert (row.name, row.deleted_at is None) == ("Incoming", False)
    assert client.post(page(Collection, "change", row.pk), {"name": "x"}).status_code == 403


def test_taken_name_is_refused_at_its_field(client):
    user = sign_in(client)
    Collection.objects.create(owner=user, name="Inbox")

    answer = client.post(page(Collection, "add"), {"owner": user.pk, "name": "Inbox"})

    assert "already" in str(answer.context["form"].errors["name"])


def test_collection_shows_documents_and_triggers(client):
    owner = sign_in(client)
    row = Collection.objects.create(owner=owner, name="Inbox")
    assert "Add a watch</a>" in text_of(client.get(page(Collection, "change", row.pk)))
    make_document(owner, name="acme.txt", collection=row)
    make_trigger(owner=owner, name="The watch", kind="watch", collection=row)

    found = text_of(client.get(page(Collection, "change", row.pk)))

    assert "acme.txt" in found
    assert "The watch" in found
    listed = client.get(page(Collection, "changelist")).context["cl"].result_list[0]
    assert (listed.documents, listed.watching) == (1, 1)


# --- Adding documents ---


def test_added_documents_belong_to_the_collection_owner(client):
    sign_in(client, "operator")
    owner = make_user()
    row = Collection.objects.create(owner=owner, name="Inbox")
    before = last_event()

    answer = upload(client, ("a.txt", b"First text."), ("b.txt", b"Second text."), collection=row.pk)

    assert "a.txt added." in text_of(answer)
    assert set(Document.objects.values_list("name", "owner")) == {("a.txt", owner.pk), ("b.txt", owner.pk)}
    assert Attachment.objects.filter(collection=row).count() == 2
    assert kinds_since(before) == [*["document.added", "document.attached"] * 2, "row.viewed"]  # of the collection


def test_collections_are_offered_with_owner_names(client):
    sign_in(client, "operator")
    Collection.objects.create(owner=make_user(username="olga"), name="Inbox")

    assert "Inbox (olga)" in text_of(client.get(page(Document, "add")))


def test_documents_without_a_collection_belong_to_the_user(client):
    user = sign_in(client, "operator")

    upload(client, ("a.txt", b"text"))

    assert Document.objects.get().owner == user


def test_same_bytes_are_the_same_document(client):
    sign_in(client)
    upload(client, ("a.txt", b"text"))

    assert "a.txt exists already." in text_of(upload(client, ("b.txt", b"text")))
    assert Document.objects.count() == 1


def test_one_unreadable_file_does_not_stop_the_others(client):
    sign_in(client)

    answer = upload(client, ("good.txt", b"text"), ("bad.pdf", b"%PDF-not really"))

    assert list(Document.objects.values_list("name", flat=True)) == ["good.txt"]
    assert "bad.pdf: " in str(answer.context["form"].non_field_errors())


def test_file_beyond_the_limit_is_not_read(client, monkeypatch):
    sign_in(client)
    monkeypatch.setattr("agents.admin.knowledge.MAX_BYTES", 3)

    answer = upload(client, ("big.txt", b"text"))

    assert "the maximum is 3" in str(answer.context["form"].non_field_errors())
    assert not Document.objects.exists()


def test_form_lists_the_readable_kinds(client):
    sign_in(client)

    assert f"{KINDS}. You can choose several at once." in text_of(client.get(page(Document, "add")))


def test_pages_of_a_document_are_shown(client):
    document = make_document(sign_in(client), text="first\n\nsecond", marks=[[0, "page 1"], [7, "page <2>"]])
    session = make_session(owner=document.owner)
    Finding.objects.create(session=session, title="Odd", document=document, location="page <2>")

    found = text_of(client.get(page(Document, "change", document.pk)))

    assert '<span class="lq-page">page 1</span>' in found
    assert ">page &lt;2&gt;</span>" in found
    assert ", page &lt;2&gt;</div>" in found


def test_upload_without_a_file_is_refused(client):
    sign_in(client)

    answer = client.post(page(Document, "add"), {})

    assert answer.context["form"].errors["documents"]


def test_empty_file_is_named_and_the_others_are_added(client):
    sign_in(client)

    answer = upload(client, ("empty.txt", b""), ("a.txt", b"text"))

    assert "empty.txt" in str(answer.context["form"].non_field_errors())
    assert [row.name for row in Document.objects.all()] == ["a.txt"]


def test_viewer_cannot_add_documents(client):
    sign_in(client, "viewer")

    assert client.get(page(Document, "add")).status_code == 403
    assert upload(client, ("a.txt", b"text")).status_code == 403


def test_new_document_in_a_watched_collection_starts_a_run(client, django_capture_on_commit_callbacks):
    owner = sign_in(client)
    row = Collection.objects.create(owner=owner, name="Inbox")
    make_trigger(owner=owner, kind="watch", collection=row)

    with django_capture_on_commit_callbacks(execute=True):
        upload(client, ("a.txt", b"text"), collection=row.pk)

    assert AgentSession.objects.get().params["document"] == str(Document.objects.get().public_id)


# --- Reading ---


def test_quotes_are_highlighted_in_the_text(client):
    owner = sign_in(client)
    document = make_document(owner, text="The term is five <years>, not two.")
    finding = Finding.objects.create(
        session=make_session(owner=owner),
        title="Too long",
        document=document,
        quote="five <years>",
        quote_start=12,
        quote_end=24,
        quote_check="verified",
    )
    Finding.objects.create(session=make_session(owner=owner), title="No quote", document=document)

    found = text_of(client.get(page(Document, "change", document.pk)))

    assert f'<span id="finding-{finding.pk}"></span><mark title="Too long">five &lt;years&gt;</mark>, not two.' in found
    assert "No quote" in found
    assert 'id="at-0"' in found


class Span:
    def __init__(self, start, end, number=0):
        self.start, self.end, self.number, self.pk = start, end, number, number
        self.quote_start, self.quote_end = start, end


def test_pieces_are_the_whole_text():
    text = "abcdefghij"
    findings = [Span(2, 5), Span(4, 8), Span(0, 1), Span(None, None), Span(8, 99), Span(5, 5)]
    chunks = [Span(0, 6, 1), Span(6, 10, 2)]

    found = pieces(text, chunks, findings, [[0, "page 1"], [7, "page 2"]])

    assert "".join(piece.text for piece in found) == text
    marked = {piece.text: len(piece.quoted_by) for piece in found if piece.quoted_by}
    assert marked == {"a": 1, "cd": 1, "e": 2, "f": 1, "g": 1, "h": 1}
    assert {piece.label: piece.text for piece in found if piece.label} == {"page 1": "a", "page 2": "h"}
    assert [piece.chunk.number for piece in found if piece.chunk] == [1, 2]
    assert sum(len(piece.begins) for piece in found) == 3


MARKDOWN = """# Title

One line
goes on **here**
* an item
  goes on
- another
1. a third
Hard break.\x20\x20
After it.

| a | b |
| 1 | 2 |

```
code stays
as it is
```
> a quote
"""


def test_lines_of_a_paragraph_flow_and_other_lines_stay():
    joined = [MARKDOWN[:end].rpartition("\n")[2] for end in soft_ends(MARKDOWN, 0, len(MARKDOWN))]

    assert joined == ["One line", "* an item", "1. a third"]


def test_part_that_begins_in_a_block_of_code_does_not_flow():
    inside = MARKDOWN.index("code stays")

    assert soft_ends(MARKDOWN, inside, len(MARKDOWN)) == []


def test_table_without_pipes_at_its_sides_and_two_kinds_of_fences_stay():
    text = "a | b\n--- | ---\n1 | 2\n\n```\n~~~\nx\ny\n```\n\nOne\ntwo."

    assert [text[:end].rpartition("\n")[2] for end in soft_ends(text, 0, len(text))] == ["One"]


def test_comment_in_a_block_of_code_keeps_its_marker():
    text = "# Title\n\n```\n# comment\n```\n~~~\n# open to the end"

    found = pieces(text, [], [], flows=True)

    assert [piece.marker for piece in found if piece.marker] == ["# "]
    assert "".join(piece.text for piece in found) == text


def test_markers_of_headings_are_apart_and_no_character_is_lost():
    text = "# Payment\n\nWithin ten\ndays."
    found = pieces(text, [], [Span(2, 9), Span(11, 21)], flows=True)

    assert "".join(piece.text for piece in found) == text
    assert "".join(piece.marker + "\n".join(piece.lines) for piece in found) == text
    assert [piece.marker for piece in found if piece.marker] == ["# "]
    assert [piece.text for piece in found if piece.quoted_by] == ["Payment", "Within ten"]


def test_page_hides_markers_and_joins_lines_of_markdown_alone(client):
    owner = sign_in(client)
    text = "# Payment\n\nWithin ten\ndays."
    written = {
        kind: make_document(owner, text=text, media_type=kind, name=kind) for kind in ("text/markdown", "text/plain")
    }
    shown = {kind: text_of(client.get(page(Document, "change", row.pk))) for kind, row in written.items()}

    assert '<b class="lq-heading"><span class="lq-marker"># </span>Payment</b>' in shown["text/markdown"]
    assert 'Within ten<span class="lq-flow">\n</span>days.' in shown["text/markdown"]
    assert "Within ten\ndays." in shown["text/plain"]
    assert "lq-marker" not in shown["text/plain"]


def test_quote_across_two_parts_is_marked_in_both():
    quote = Span(3, 9, 7)
    first, second = (pieces("abcdefghij", [], [quote], part=part) for part in ((0, 5), (5, 10)))

    assert [(piece.text, bool(piece.quoted_by), len(piece.begins)) for piece in first] == [
        ("abc", False, 0),
        ("de", True, 1),
    ]
    assert [(piece.text, bool(piece.quoted_by), len(piece.begins)) for piece in second] == [
        ("fghi", True, 1),
        ("j", False, 0),
    ]


def test_parts_are_the_whole_text_and_end_with_a_line(monkeypatch):
    monkeypatch.setattr("agents.admin.knowledge.SHOWN_CHARS", 20)
    text = "first line of 17\n\nx" + "y" * 45 + "\nlast"

    found = parts_of(text)

    assert "".join(text[start:end] for start, end in found) == text
    assert text[: found[0][1]].endswith("17\n\n")
    assert all(end - start <= 20 for start, end in found)
    assert parts_of("") == [(0, 0)]


def test_hits_are_found_in_any_case_and_across_lines():
    found = hits_in("Late fee. LATE\n  FEE, late (fee)", " late   fee ")

    assert [(hit.number, hit.start) for hit in found] == [(1, 0), (2, 10)]
    assert hits_in("a(b", "(b")[0].start == 1
    assert hits_in("text", "  ") == []


def test_empty_document_says_so(client):
    document = make_document(sign_in(client), text="")

    assert "No text in this file." in text_of(client.get(page(Document, "change", document.pk)))


def test_long_document_is_read_in_parts(client, monkeypatch):
    owner = sign_in(client)
    monkeypatch.setattr("agents.admin.knowledge.SHOWN_CHARS", 20)
    document = make_document(owner, text="# Term\nfive years.\n# Fees\nin advance.\n# Law\nDelaware")
    place = document.text.index("Delaware")
    finding = Finding.objects.create(
        session=make_session(owner=owner), title="Law", document=document, quote_start=place, quote_end=place + 8
    )
    address = page(Document, "change", document.pk)
    parts = len(parts_of(document.text))
    assert parts > 2

    first = text_of(client.get(address))
    assert "five years" in first
    assert "Delaware" not in first
    assert f"Part 1 of {parts}" in first
    assert f'href="?at={document.text.index("# Law")}#' in first

    for given in ({"finding": finding.pk}, {"at": place}, {"part": parts}, {"part": 99}):
        last = text_of(client.get(address, given))
        assert f"Part {parts} of {parts}" in last, given
        assert f'id="finding-{finding.pk}"' in last, given
        assert ('class="chosen"' in last) == ("finding" in given)
    for given in ({"part": "x"}, {"at": "-1"}, {"finding": "9" * 30}, {"part": "0"}):
        assert f"Part 1 of {parts}" in text_of(client.get(address, given)), given


def test_words_are_searched_in_a_document(client, monkeypatch):
    monkeypatch.setattr("agents.admin.knowledge.SHOWN_CHARS", 20)
    document = make_document(sign_in(client), text="<b>fee</b> one\n" + "x" * 40 + "\na FEE again")
    second = document.text.index("FEE")

    found = text_of(client.get(page(Document, "change", document.pk), {"q": "fee"}))

    assert "2 matches for" in found
    assert f"?q=fee&amp;at={second}#hit-2" in found
    assert '<span id="hit-1"></span><mark class="hit">fee</mark>' in found
    assert "<b>fee</b>" not in found.replace("<b>fee</b>&lt;/b&gt;", "")
    assert "0 matches for" in text_of(client.get(page(Document, "change", document.pk), {"q": "law"}))


def test_long_query_is_cut_to_ten_words_and_the_page_says_so(client):
    document = make_document(sign_in(client), text="a b c d e f g h i j, and on")
    says = "Only the first 10 words are searched for."

    eleven = text_of(client.get(page(Document, "change", document.pk), {"q": "a b c d e f g h i j k"}))
    ten = text_of(client.get(page(Document, "change", document.pk), {"q": "a b c d e f g h i j"}))

    assert ("1 match for" in eleven, says in eleven) == (True, True)
    assert ("1 match for" in ten, says in ten) == (True, False)


def test_match_across_much_space_is_listed_in_short():
    [hit] = hits_in("late" + " \n" * 10_000 + "fee", "late fee")
    assert (hit.words, hit.end) == ("late fee", 20_007)


def test_text_of_nothing_but_headings_is_in_few_pieces():
    text = "# x\n" * 12_500
    found = pieces(text, [], [])
    assert "".join(piece.text for piece in found) == text
    assert sum(piece.is_heading for piece in found) == 500
    assert len(found) <= 1_001


def test_page_of_an_odd_document_stays_small(client):
    owner = sign_in(client)
    document = make_document(owner, text="# x\n" * 12_500)
    session = make_session(owner=owner)
    for number in range(10):
        title = f"T{number} {'long ' * 40}"
        Finding.objects.create(session=session, title=title, document=document, quote_start=0, quote_end=50_000)

    answer = client.get(page(Document, "change", document.pk), {"q": "x"})

    assert len(answer.content) < 1_500_000
    found = text_of(answer)
    assert "and 7 more" in found
    assert ("T2 long" in found, f'title="T0 {"long " * 17}' in found) == (True, True)


def test_finding_of_another_document_chooses_nothing(client):
    owner = sign_in(client)
    document, other = make_document(owner, text="five years"), make_document(owner, text="two years")
    finding = Finding.objects.create(
        session=make_session(owner=owner), title="Term", document=other, quote_start=0, quote_end=3
    )

    found = text_of(client.get(page(Document, "change", document.pk), {"finding": finding.pk}))

    assert "chosen" not in found


def test_original_is_always_a_download(client):
    owner = sign_in(client)
    document, _ = document_add(owner=owner, name="page.html", data=b"<p>hello</p>", by=owner, now=NOW)
    address = reverse("admin:agents_document_bytes", args=[document.pk])

    assert address in text_of(client.get(page(Document, "change", document.pk)))
    answer = client.get(address)

    assert b"".join(answer.streaming_content) == b"<p>hello</p>"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_deleted_document_cannot_be_downloaded(client):
    sign_in(client)
    address = reverse("admin:agents_document_bytes", args=[make_document().pk])
    assert client.get(address).status_code == 404

    client.force_login(make_user(is_staff=True))
    assert client.get(address).status_code in {302, 403}


# --- Searching ---


def test_search_finds_passages_of_one_owner(client):
    me = sign_in(client, "viewer")
    other = make_user()
    mine = make_document(me, name="mine.txt", text="The governing law is Delaware.")
    make_document(other, name="theirs.txt", text="Also Delaware here.")
    address = reverse("admin:agents_document_search")

    found = text_of(client.get(address, {"q": "Delaware"}))
    theirs = text_of(client.get(address, {"q": "Delaware", "owner": other.pk}))

    assert "mine.txt" in found
    assert "theirs.txt" not in found
    assert f"{page(Document, 'change', mine.pk)}?at=0#at-0" in found
    assert "theirs.txt" in theirs
    assert "mine.txt" not in theirs


@pytest.mark.parametrize("query", ["", "nothing-like-it", '" OR 1=1 --', "x" * 2_000])
def test_any_text_can_be_searched_for(client, query):
    sign_in(client)

    assert client.get(reverse("admin:agents_document_search"), {"q": query}).status_code == 200


def test_search_needs_the_view_permission(client):
    client.force_login(make_user(is_staff=True))

    assert client.get(reverse("admin:agents_document_search"), {"q": "x"}).status_code == 403


# --- Attaching and detaching ---


def test_document_is_added_only_to_collections_of_its_owner(client):
    sign_in(client, "operator")
    document = make_document()
    foreign = Collection.objects.create(owner=make_user(), name="Foreign")
    own = Collection.objects.create(owner=document.owner, name="Own")
    address = act_page(document, "attach")
    assert "Own" in text_of(client.get(address))
    assert "Foreign" not in text_of(client.get(address))

    refused = client.post(address, {"confirmed": "1", "collection": foreign.pk})
    client.post(address, {"confirmed": "1", "collection": own.pk})

    assert refused.context["form"].errors["collection"]
    assert document.attachments.get().collection == own
    assert AuditEvent.objects.filter(kind="document.attached").count() == 1


def test_document_is_removed_from_its_collection(client):
    owner = sign_in(client)
    first = Collection.objects.create(owner=owner, name="First")
    Collection.objects.create(owner=owner, name="Second")
    document = make_document(owner, collection=first)
    address = act_page(document, "detach")
    assert "Second" not in text_of(client.get(address))

    answer = client.post(address, {"confirmed": "1", "collection": first.pk}, follow=True)

    assert "1 document removed from First." in text_of(answer)


# --- Search by meaning ---


def test_pages_show_what_is_indexed(client):
    owner = sign_in(client)
    row = Collection.objects.create(owner=owner, name="Inbox")
    document = make_document(owner, name="acme.txt", collection=row)
    assert "indexed" not in text_of(client.get(page(Collection, "change", row.pk)))
    with embedding():
        assert "0 of 1 indexed by meaning" in text_of(client.get(page(Collection, "change", row.pk)))
        assert "not yet indexed by meaning" in text_of(client.get(page(Document, "change", document.pk)))
        Document.objects.update(indexed_as=vector_space())
        assert "1 of 1 indexed by meaning" in text_of(client.get(page(Collection, "change", row.pk)))
        assert "by words and by meaning" in text_of(client.get(page(Document, "change", document.pk)))


def test_a_search_is_by_meaning_when_it_is_posted(client):
    owner = sign_in(client, "operator")
    Profile.objects.update_or_create(user=owner, defaults={"opted_in": True})
    document_add(owner=owner, name="car.txt", data=b"The vehicle is red.", by=owner, now=NOW)
    address = f"{reverse('admin:agents_document_search')}?q=automobile"
    with embedding() as server:
        assert "no document is indexed yet" in text_of(client.post(address))
        session = index_start(owner=owner, by=None, now=NOW)
        assert run_session(session.pk, run_index, owner="worker-1")
        assert "Search by meaning" in text_of(client.get(address))
        assert len(server.requests) == 1
        found = text_of(client.post(address))
        assert ("car.txt" in found, "0 passages" in found) == (True, False)
        other = make_user()
        assert "documents of others" in text_of(client.post(f"{address}&owner={other.pk}"))
        assert len(server.requests) == 2
    shown = text_of(client.get(page(AgentSession, "change", session.pk)))
    assert "index run" in shown
    assert "Run again" not in shown
    assert "Search by meaning" not in text_of(client.get(address))
