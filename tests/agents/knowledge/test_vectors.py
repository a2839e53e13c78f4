"""Search by meaning: what is near is found, fused with what words find, always as the owner, and full text without."""

from datetime import timedelta

import pytest

from agents.engine.indexing import index_start, run_index
from agents.enums import Phase, ToolIntent
from agents.guard import guarded_tool_call
from agents.knowledge import vectors
from agents.knowledge.documents import document_delete, document_detach
from agents.knowledge.search import NEAREST, search_chunks
from agents.knowledge.vectors import query_store, query_vector, vector_space, vectors_read
from agents.models import Chunk, ChunkVector, Document, QueryVector
from agents.runner import run_session
from tests.agents.knowledge.samples import make_collection, make_document
from tests.embeddings_wire import MODEL, embedding
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db
CAR = "Which automobile do we drive?"  # shares no word with what it means


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def served():
    with embedding() as server:
        yield server


def index(owner):
    session = index_start(owner=owner, by=None, now=NOW)
    assert run_session(session.pk, run_index, owner="worker-1")


def asked(owner, query):
    """Have the vector of a query at hand, as a run has it."""
    session = make_session(owner=owner, current_phase=Phase.INTAKE)
    params = {"embed": "query", "query": query, "model": MODEL}
    assert guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params).ok


def found(owner, query, **more):
    return [(hit.name, hit.found_by) for hit in search_chunks(owner_id=owner.pk, query=query, **more)]


def test_a_passage_in_other_words_is_found_once_its_query_has_a_vector(owner, served):
    make_document(owner, "The vehicle is red.", name="car")
    make_document(owner, "Invoices are due in May.", name="bill")
    index(owner)
    assert found(owner, CAR) == []
    asked(owner, CAR)
    assert found(owner, CAR) == [("car", "meaning"), ("bill", "meaning")]


def test_what_words_and_meaning_both_find_comes_first(owner, served):
    make_document(owner, "We drive a car.", name="both")  # of equal ranks the first is first
    make_document(owner, "We drive on the left.", name="words")
    make_document(owner, "The vehicle is red.", name="meaning")
    index(owner)
    asked(owner, CAR)
    assert found(owner, CAR)[0] == ("both", "both")
    assert {by for _, by in found(owner, CAR)} == {"both", "meaning"}  # every passage is near to some degree
    ranks = [hit.rank for hit in search_chunks(owner_id=owner.pk, query=CAR)]
    assert ranks == sorted(ranks, reverse=True)


def test_a_hit_by_meaning_shows_the_beginning_of_its_passage(owner, served):
    make_document(owner, "The vehicle is red. " + "It runs well. " * 30, name="car")
    index(owner)
    asked(owner, CAR)
    [hit] = search_chunks(owner_id=owner.pk, query=CAR)
    assert hit.snippet.startswith("The vehicle is red. It runs well.")
    assert hit.snippet.endswith(" …")
    assert hit.start == 0


def test_only_the_nearest_passages_are_added_and_the_limit_holds(owner, served, monkeypatch):
    monkeypatch.setattr("agents.knowledge.search.NEAREST", 3)
    for number in range(5):
        make_document(owner, f"Vehicle number {number}.", name=str(number))
    index(owner)
    asked(owner, CAR)
    assert len(found(owner, CAR)) == 3
    assert len(found(owner, CAR, limit=2)) == 2
    assert NEAREST == 30


def test_nobody_finds_passages_or_vectors_of_others(owner, served):
    other = make_user()
    make_document(other, "The vehicle is red.", name="theirs")
    make_document(owner, "Invoices are due.", name="mine")
    index(owner)
    index(other)
    asked(owner, CAR)
    assert found(owner, CAR) == [("mine", "meaning")]
    assert found(other, CAR) == []  # they have not asked


def test_a_search_in_collections_and_periods_finds_only_what_is_in_them(owner, served):
    leases, cars = make_collection(owner, "leases"), make_collection(owner, "cars")
    make_document(owner, "The vehicle is red.", name="red", collection=cars)
    late = make_document(owner, "The vehicle is blue.", name="blue", collection=cars, now=NOW + timedelta(days=1))
    make_document(owner, "The vehicle is let.", name="let", collection=leases)
    index(owner)
    asked(owner, CAR)
    assert found(owner, CAR, collection_ids=[leases.pk]) == [("let", "meaning")]
    assert found(owner, CAR, collection_ids=[cars.pk], after=NOW + timedelta(hours=1)) == [("blue", "meaning")]
    assert found(owner, CAR, collection_ids=[]) == []
    document_detach(document=late, collection=cars, by=None, now=NOW + timedelta(days=2))
    assert found(owner, CAR, collection_ids=[cars.pk]) == [("red", "meaning")]


def test_a_new_document_is_found_by_words_at_once_and_by_meaning_when_indexed(owner, served):
    make_document(owner, "Invoices are due.", name="bill")
    index(owner)
    asked(owner, CAR)
    make_document(owner, "The vehicle is red.", name="car")
    assert found(owner, "red vehicle") == [("car", "words")]
    assert found(owner, CAR) == [("bill", "meaning")]
    index(owner)
    assert found(owner, CAR)[0] == ("car", "meaning")


def test_a_deleted_document_loses_its_vectors(owner, served):
    make_document(owner, "Invoices are due.", name="bill")
    document = make_document(owner, "The vehicle is red.", name="car")
    index(owner)
    asked(owner, CAR)
    assert found(owner, CAR)[0] == ("car", "meaning")
    document_delete(document=document, by=None, now=NOW)
    assert found(owner, CAR) == [("bill", "meaning")]
    assert not ChunkVector.objects.filter(chunk__document=document).exists()


def test_vectors_too_many_to_keep_are_read_in_parts_with_the_same_result(owner, served, monkeypatch):
    monkeypatch.setattr(vectors, "_ROWS", 2)
    for number in range(7):
        make_document(owner, f"Vehicle {'car ' * number} of number {number}.", name=str(number))
    index(owner)
    asked(owner, CAR)
    whole = found(owner, CAR)
    assert len(vectors._kept) == 1
    vectors._kept.clear()
    monkeypatch.setattr(vectors, "MOST_BYTES", 0)
    assert found(owner, CAR) == whole
    assert len(whole) == 7
    assert not vectors._kept


def test_a_process_keeps_the_matrices_used_last(served, monkeypatch):
    owners = [make_user(), make_user(), make_user()]
    for owner in owners:
        make_document(owner, "The vehicle is red.", name="car")
        index(owner)
    size = len(bytes(ChunkVector.objects.first().vector))
    monkeypatch.setattr(vectors, "MOST_BYTES", 2 * size)
    for owner in owners:
        vectors_read(vector_space(), owner_id=owner.pk)
    assert [owner_id for owner_id, _ in vectors._kept] == [owners[1].pk, owners[2].pk]


def test_vectors_that_vanish_while_they_are_read_are_none(owner, served, monkeypatch):
    make_document(owner, "The vehicle is red.", name="car")
    index(owner)
    asked(owner, CAR)
    monkeypatch.setattr(vectors, "_read", lambda rows, after: iter(()))
    assert found(owner, CAR) == []


def test_an_owner_without_vectors_finds_by_words(owner, served):
    make_document(owner, "We drive a vehicle.", name="car")
    asked(owner, CAR)
    assert found(owner, CAR) == [("car", "words")]


def test_a_query_of_other_dimensions_finds_by_words_alone(owner, served):
    make_document(owner, "We drive a vehicle.", name="car")
    index(owner)
    digest = vectors._digest(CAR)
    QueryVector.objects.create(owner=owner, space=vector_space(), digest=digest, vector=b"\0\0\0\0")
    assert found(owner, CAR) == [("car", "words")]


def test_another_model_or_other_fields_are_another_space_and_index_anew(owner):
    make_document(owner, "The vehicle is red.", name="car")
    with embedding():
        index(owner)
        first = vector_space()
        asked(owner, CAR)
    with embedding(extra={"dimensions": 8}):
        assert vector_space() != first
        assert found(owner, CAR) == []
        index(owner)
        asked(owner, CAR)
        assert found(owner, CAR) == [("car", "meaning")]
        assert Document.objects.get().indexed_as == vector_space()
        assert list(ChunkVector.objects.values_list("space", flat=True)) == [vector_space()]
    with embedding(name="another"):
        assert vector_space() != first


def test_without_numpy_or_a_role_full_text_is_all_there_is(owner, monkeypatch):
    make_document(owner, "We drive a vehicle.", name="car")
    assert vector_space() == ""
    with embedding():
        index(owner)
        asked(owner, CAR)
        assert found(owner, CAR) == [("car", "both")]
        monkeypatch.setattr(vectors, "has_numpy", lambda: False)
        assert vector_space() == ""
        assert found(owner, CAR) == [("car", "words")]


def test_only_the_newest_queries_of_an_owner_are_kept(owner, served, monkeypatch):
    monkeypatch.setattr(vectors, "MOST_QUERIES", 3)
    other = make_user()
    query_store("s", "theirs", b"\0\0\0\0", owner_id=other.pk)
    for number in range(5):
        query_store("s", f"query {number}", b"\0\0\0\0", owner_id=owner.pk)
    assert query_vector("s", "query 1", owner_id=owner.pk) is None
    assert query_vector("s", "  query   2", owner_id=owner.pk) == b"\0\0\0\0"
    assert QueryVector.objects.filter(owner=owner).count() == 3
    assert query_vector("s", "theirs", owner_id=other.pk) is not None


def test_a_document_without_text_counts_as_indexed(owner, served):
    document = make_document(owner, "x", name="empty")
    Chunk.objects.filter(document=document).delete()
    index(owner)
    assert Document.objects.get().indexed_as == vector_space()
    assert not served.requests
