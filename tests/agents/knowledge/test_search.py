"""Full-text search: the owner's own, best first, with a snippet; any text is a query."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.knowledge import scope, words_postgresql, words_sqlite
from agents.knowledge.documents import collection_delete, document_delete, document_detach
from agents.knowledge.search import MAX_WORDS, search_chunks
from agents.models import Chunk
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import NOW, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=1)

TERMINATION = "Either party may terminate this agreement by giving ninety days of notice in writing."
PAYMENT = "Invoices are payable within thirty days. Late payment bears interest of 12.5 percent."
COURTS = "The courts of Vienna decide. Notices go to legal@example.org. Müller signs for the supplier."


@pytest.fixture(params=["few documents", "newest chunks", "whole index"], autouse=True)
def reach(request, monkeypatch):
    """Wherever chunks are looked for, the same are found."""
    if request.param != "few documents":
        monkeypatch.setattr(scope, "MOST_DOCUMENTS", 0)
    if request.param == "whole index":
        monkeypatch.setattr(words_postgresql, "NEWEST", 0)
    return request.param


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def library(owner):
    return {
        name: make_document(owner, text, name=f"{name}.txt")
        for name, text in {"termination": TERMINATION, "payment": PAYMENT, "courts": COURTS}.items()
    }


def names(owner, query, **more):
    return [hit.name for hit in search_chunks(owner_id=owner.pk, query=query, **more)]


def test_hit_names_document_and_offsets(owner, library):
    [hit] = search_chunks(owner_id=owner.pk, query="terminate")

    document = library["termination"]
    chunk = Chunk.objects.get(document=document)
    assert (hit.chunk_id, hit.document_id, hit.document_public_id) == (chunk.pk, document.pk, document.public_id)
    assert (hit.name, hit.start, hit.end) == ("termination.txt", 0, len(TERMINATION))
    assert hit.rank > 0


def test_other_forms_of_a_word_match(owner, library):
    assert names(owner, "terminating") == ["termination.txt"]
    assert names(owner, "INVOICE") == ["payment.txt"]


def test_more_matching_words_rank_higher(owner, library):
    assert names(owner, "notice in writing to terminate") == ["termination.txt", "courts.txt"]
    found = search_chunks(owner_id=owner.pk, query="late payment of thirty days")
    assert [hit.name for hit in found] == ["payment.txt", "termination.txt"]
    assert found[0].rank > found[1].rank


def test_more_frequent_word_ranks_higher(owner):
    make_document(owner, "The fee is due. " + "Other words stand here. " * 8, name="once.txt")
    make_document(owner, "The fee is the fee, a fee of fees. " + "Other words stand here. " * 8, name="often.txt")
    assert names(owner, "fee") == ["often.txt", "once.txt"]


def test_question_in_plain_words_finds_its_passage(owner, library):
    assert names(owner, "How many days of notice does a party need to terminate the agreement?")[0] == "termination.txt"


@every_row(
    ("query", "found"),
    [
        ("12.5", ["payment.txt"]),
        ("legal@example.org", ["courts.txt"]),
        ("Müller", ["courts.txt"]),
        ("vienna,", ["courts.txt"]),
        ('"interest"', ["payment.txt"]),
        ("elephant", []),
    ],
)
def test_amounts_addresses_and_names_are_words(owner, library, query, found):
    assert names(owner, query) == found


def test_accents_matter_to_postgresql_alone(owner, library):
    assert names(owner, "Muller") == (["courts.txt"] if connection.vendor == "sqlite" else [])


def test_stop_words_count_only_without_other_words(owner, library):
    assert names(owner, "the of courts") == ["courts.txt"]
    assert names(owner, "the") == (["courts.txt"] if connection.vendor == "sqlite" else [])


def test_snippet_shows_the_surrounding_words(owner):
    filler = "Nothing of note stands in this sentence at all. " * 12
    make_document(owner, f"{filler}The indemnity is\nunlimited. {filler}")
    [hit] = search_chunks(owner_id=owner.pk, query="indemnity")

    assert "The indemnity is unlimited." in hit.snippet
    assert len(hit.snippet) < 400


def test_each_chunk_of_a_long_document_is_found_on_its_own(owner):
    filler = "Nothing of note stands in this sentence at all. " * 60
    document = make_document(owner, f"Alpha clause.\n\n{filler}\n\nOmega clause.")
    [first], [last] = (search_chunks(owner_id=owner.pk, query=word) for word in ("alpha", "omega"))

    assert first.chunk_id != last.chunk_id
    assert "Omega clause." in document.text[last.start : last.end]
    assert len(search_chunks(owner_id=owner.pk, query="clause")) == 2


def test_number_of_hits_is_limited(owner):
    for number in range(5):
        make_document(owner, f"The fee of contract {number}.")
    assert len(search_chunks(owner_id=owner.pk, query="fee", limit=3)) == 3
    assert search_chunks(owner_id=owner.pk, query="fee", limit=0) == []


# --- What is not found ---


def test_documents_of_other_owners_are_not_found(owner, library):
    stranger = make_user()
    assert names(stranger, "notice") == []
    theirs = make_collection(stranger)
    assert names(stranger, "notice", collection_ids=[theirs.pk]) == []
    mine = make_collection(owner)
    make_document(owner, TERMINATION, collection=mine)
    assert names(stranger, "terminate", collection_ids=[mine.pk]) == []


def test_deleted_documents_are_not_found(owner, library):
    document_delete(document=library["payment"], by=owner, now=LATER)
    assert names(owner, "invoices") == []


def test_collection_limits_the_search_to_its_documents(owner):
    one, two = make_collection(owner, "one"), make_collection(owner, "two")
    document = make_document(owner, TERMINATION, name="a.txt", collection=one)
    make_document(owner, PAYMENT, name="b.txt", collection=two)
    make_document(owner, COURTS, name="c.txt")

    assert names(owner, "days", collection_ids=[one.pk]) == ["a.txt"]
    assert sorted(names(owner, "days", collection_ids=[one.pk, two.pk])) == ["a.txt", "b.txt"]
    assert names(owner, "days", collection_ids=[]) == []
    document_detach(document=document, collection=one, by=owner, now=LATER)
    assert names(owner, "days", collection_ids=[one.pk]) == []
    assert "a.txt" in names(owner, "days")  # it is in no collection, and still the owner's
    collection_delete(collection=two, by=owner, now=LATER)
    assert names(owner, "days", collection_ids=[two.pk]) == []


# --- Any text is a query ---


@every_row(
    "query",
    ["", " ", "\x00", "...", "?!", '"', "''", "()", "* AND", "-", "\ud800", "🙂", "___", "%", "%s %d", "\\", ";--"],
)
def test_query_without_words_finds_nothing(owner, library, query):
    assert names(owner, query) == []


@every_row(
    "query",
    [
        'notice" OR 1=1 --', "notice AND", "NEAR(notice", "notice*", "notice:*", "notice & | !", "(notice", "^notice",
        "notice\\", "'notice'", "notice\x00", "{notice}", "chunk_fts MATCH notice", "%s notice", "notice' || 'x",
        "notice <-> x", "text : notice",
    ],
)  # fmt: skip
def test_operators_are_words_like_others(owner, library, query):
    assert "termination.txt" in names(owner, query)


def test_long_query_is_cut(owner, library):
    assert names(owner, "x" * 100_000) == []
    assert names(owner, " ".join(f"w{number}" for number in range(10_000))) == []
    padding = " ".join(f"w{number}" for number in range(MAX_WORDS - 1))
    assert names(owner, f"{padding} terminate") == ["termination.txt"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=200) | st.text(alphabet="\"'()*:^-+&|!<>\\%{}[]~@#$ \x00aAN�OR", max_size=60))
@example(query="\ud800\udfff a")
@example(query="a" * 3_000)
def test_no_text_breaks_the_search(owner, query):
    for hit in search_chunks(owner_id=owner.pk, query=query):
        pytest.fail(f"{hit} in an empty library")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(alphabet="\"'()*:^-&|!<>\\% ", max_size=20))
def test_punctuation_around_a_word_is_ignored(owner, query):
    if not Chunk.objects.filter(document__owner=owner).exists():
        make_document(owner, TERMINATION, name="a.txt")
    assert names(owner, f"{query} terminate {query}") == ["a.txt"]


# --- The index follows the rows ---


def test_index_follows_changes_of_the_rows(owner, library):
    chunk = Chunk.objects.get(document=library["payment"])
    Chunk.objects.filter(pk=chunk.pk).update(text="About elephants.")
    assert names(owner, "elephant") == ["payment.txt"]
    assert names(owner, "invoices") == []
    chunk.delete()
    assert names(owner, "elephant") == []


# --- Very many matches ---


def test_of_very_many_matches_the_newest_are_ranked(owner, monkeypatch):
    monkeypatch.setattr(scope, "MOST_RANKED", 3)
    for number in range(6):
        make_document(
            owner, f"Notice of the landlord, {'notice, ' * (6 - number)} letter {number}", name=f"{number}.txt"
        )

    assert sorted(names(owner, "notice")) == ["3.txt", "4.txt", "5.txt"]


def test_old_match_with_more_of_the_words_is_found_among_very_many(owner, monkeypatch):
    monkeypatch.setattr(scope, "MOST_RANKED", 2)
    make_document(owner, "The deposit is returned after the inspection of the premises.", name="all.txt")
    make_document(owner, "The deposit is due before the inspection.", name="half.txt")
    for number in range(5):
        make_document(owner, f"The deposit, letter {number}", name=f"{number}.txt")

    assert names(owner, "deposit inspection premises")[:2] == ["all.txt", "half.txt"]
    assert names(owner, "deposit inspection premises broker")[:2] == ["all.txt", "half.txt"]


def test_old_match_with_all_words_is_before_very_many_with_most(owner, monkeypatch):
    monkeypatch.setattr(scope, "MOST_RANKED", 3)
    make_document(owner, "Nothing of note stands in this sentence at all. " * 2_000)  # bm25 weighs words that are rare
    words = ("deposit", "inspection", "premises", "landlord", "tenancy", "broker")
    make_document(owner, f"About {', '.join(words)}.", name="all.txt")
    for number in range(5):
        make_document(owner, f"About {', '.join(words[:4])}, letter {number}.", name=f"{number}.txt")

    found = search_chunks(owner_id=owner.pk, query=" ".join(words))

    assert found[0].name == "all.txt"
    assert sorted(hit.name for hit in found[1:]) == ["2.txt", "3.txt", "4.txt"]
    ranks = [hit.rank for hit in found]
    assert ranks == sorted(set(ranks), reverse=True)


def test_each_chunk_is_found_once(owner, library):
    found = [hit.chunk_id for hit in search_chunks(owner_id=owner.pk, query="days notice writing party")]
    assert len(found) == len(set(found)) == 3


# --- A time that does not grow ---


@pytest.fixture
def common_words(monkeypatch):
    """Every word is a common one: of no word more than three chunks are followed."""
    monkeypatch.setattr(scope, "MOST_FOLLOWED", 3)
    monkeypatch.setattr(words_postgresql, "NEWEST", 3)
    monkeypatch.setattr(words_postgresql._Expected, "is_rare", lambda self, group: False)


@pytest.fixture
def many_letters(owner, common_words, monkeypatch):
    """One person has ten letters, the oldest of them in a collection."""
    collection = make_collection(owner)
    make_document(owner, "Notice of the landlord about the deposit.", name="old.txt", collection=collection)
    for number in range(9):
        make_document(owner, f"Notice of the landlord, letter {number}", name=f"{number}.txt")
    monkeypatch.setattr(scope, "MOST_DOCUMENTS", 1)
    return collection


def test_common_word_is_looked_for_in_the_newest_chunks(owner, many_letters):
    assert sorted(names(owner, "notice", limit=3)) == ["6.txt", "7.txt", "8.txt"]


def test_common_word_is_found_in_an_old_document_of_a_small_collection(owner, many_letters):
    assert names(owner, "notice", collection_ids=[many_letters.pk]) == ["old.txt"]
    assert names(owner, "notices of landlords", collection_ids=[many_letters.pk]) == ["old.txt"]
    assert names(owner, "broker", collection_ids=[many_letters.pk]) == []


def test_common_word_is_found_in_the_documents_of_one_owner_among_many(many_letters):
    other = make_user()
    for number in range(2):
        make_document(other, f"Notice of the tenant {number}", name=f"tenant {number}.txt")
    for number in range(4):
        make_document(make_user(), f"Notice of the broker {number}")

    assert names(other, "notice")[0] == "tenant 1.txt"


@pytest.mark.sqlite  # PostgreSQL joins a rare word with others by its index
def test_old_chunk_with_a_rare_word_is_before_newer_ones_with_common_words(owner, many_letters, monkeypatch):
    monkeypatch.setattr(scope, "MOST_RANKED", 2)
    assert names(owner, "deposit notice landlord")[0] == "old.txt"


def test_no_statement_returns_more_rows_with_more_chunks(owner, many_letters, monkeypatch):
    monkeypatch.setattr(scope, "MOST_RANKED", 3)
    with CaptureQueriesContext(connection) as few:
        before = rows_read(monkeypatch, owner, "notice landlord letter")
    for number in range(9, 30):
        make_document(owner, f"Notice of the landlord, letter {number}", name=f"{number}.txt")
    with CaptureQueriesContext(connection) as many:
        after = rows_read(monkeypatch, owner, "notice landlord letter")

    assert len(many) <= len(few)
    assert max(after) <= max(before)


def rows_read(monkeypatch, owner, query):
    """Search, and return how many rows each statement has returned."""
    numbers, read = [], scope.read

    def counted(*given):
        found = read(*given)
        numbers.append(len(found))
        return found

    with monkeypatch.context() as patched:
        for module in (scope, words_postgresql, words_sqlite):
            patched.setattr(module, "read", counted)
        assert names(owner, query)
    return numbers


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no planner that counts words")
def test_planner_knows_which_words_are_common(owner, monkeypatch):
    for number in range(40):
        make_document(owner, f"Notice of the landlord, letter {number}.")
    make_document(owner, "Notice of the deposit.")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE agents_chunk")
    monkeypatch.setattr(scope, "MOST_FOLLOWED", 5)
    expected = words_postgresql._Expected(["notice", "landlord", "deposit", "broker"])

    assert not expected.is_rare(("notice",))
    assert expected.is_rare(("deposit",))
    assert expected.is_rare(("notice", "deposit"))
    assert expected.is_rare(("broker",))
    assert expected.rarest(("notice", "deposit")) == "deposit"
