"""retrieve_chunks: four ways, one shape, always as the owner; text for the run, and no content for the record."""

import json
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import uuid4

import pytest

from agents.enums import Outcome, Phase, ToolIntent
from agents.guard import guarded_tool_call
from agents.knowledge.documents import artifact_add, collection_delete, document_delete, document_detach
from agents.models import Notification, ToolCall
from audit.models import AuditEvent
from audit.receipts import build_receipt
from tests.agents.knowledge.samples import make_collection, make_document
from tests.factories import NOW, make_session, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
SHAPE = {"mode", "documents", "chunks", "chars", "left_out", "left_out_ids", "cut_id", "cut_chars", "passages"}


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def collection(owner):
    return make_collection(owner)


@pytest.fixture
def retrieve(owner):
    session = make_session(owner=owner, current_phase=Phase.INTAKE)

    def call(**params):
        return guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params, now=NOW)

    call.session = session
    return call


def texts(result):
    assert result.outcome == Outcome.SUCCESS, result.error
    assert result.data["summary"].keys() == SHAPE
    return [chunk["text"] for chunk in result.data["chunks"]]


# --- The ways ---


def test_a_document_comes_whole_and_in_one_piece(owner, retrieve):
    document = make_document(owner, "Many words of a long contract. " * 400, name="lease.txt")
    result = retrieve(document=str(document.public_id))

    place = {"document_id": str(document.public_id), "start": 0, "end": len(document.text)}
    assert result.data["chunks"] == [{**place, "name": "lease.txt", "text": document.text}]
    assert result.data["summary"] == {
        "mode": "document",
        "documents": 1,
        "chunks": 1,
        "chars": len(document.text),
        "left_out": 0,
        "left_out_ids": [],
        "cut_id": None,
        "cut_chars": 0,
        "passages": [place],
    }


def test_a_collection_comes_in_the_order_in_which_it_grew(owner, collection, retrieve):
    for number, text in enumerate(["first", "second", "third"]):
        make_document(owner, text, collection=collection, now=NOW + number * HOUR)
    make_document(owner, "elsewhere")
    result = retrieve(collection=str(collection.public_id))

    assert texts(result) == ["first", "second", "third"]
    assert result.data["summary"]["mode"] == "collection"
    assert texts(retrieve(collection=str(collection.public_id), since=None)) == ["first", "second", "third"]


def test_since_gives_what_was_put_in_after_that_time(owner, collection, retrieve):
    for number, text in enumerate(["old", "on the minute", "new"]):
        make_document(owner, text, collection=collection, now=NOW + number * HOUR)
    result = retrieve(collection=str(collection.public_id), since=(NOW + HOUR).isoformat())

    assert texts(result) == ["new"]
    assert result.data["summary"]["mode"] == "since"


def test_periods_that_meet_give_each_document_once(owner, collection, retrieve):
    for number in range(5):
        make_document(owner, f"number {number}", collection=collection, now=NOW + number * HOUR)
    ends = [NOW - HOUR, NOW + HOUR, NOW + 2 * HOUR, NOW + 9 * HOUR]
    found = [
        texts(retrieve(collection=str(collection.public_id), since=since.isoformat(), until=until.isoformat()))
        for since, until in pairwise(ends)
    ]
    assert found == [["number 0", "number 1"], ["number 2"], ["number 3", "number 4"]]


def test_a_document_that_was_attached_again_is_new_again(owner, collection, retrieve):
    document = make_document(owner, "old", collection=collection)
    document_detach(document=document, collection=collection, by=owner, now=NOW + HOUR)
    make_document(owner, "old", collection=collection, now=NOW + 3 * HOUR)
    assert texts(retrieve(collection=str(collection.public_id), since=(NOW + 2 * HOUR).isoformat())) == ["old"]


def test_what_a_run_wrote_is_not_new_but_is_in_the_collection(owner, collection, retrieve):
    artifact_add(session=retrieve.session, collection=collection, name="draft", content="drafted", now=NOW + HOUR)
    make_document(owner, "uploaded", collection=collection, now=NOW + 2 * HOUR)
    assert texts(retrieve(collection=str(collection.public_id), since=NOW.isoformat())) == ["uploaded"]
    assert texts(retrieve(collection=str(collection.public_id))) == ["drafted", "uploaded"]


def test_a_query_gives_all_passages_that_fit_the_best_first(owner, retrieve):
    for number in range(6):
        make_document(owner, f"Contract {number} says that the fee is due. " + "Other words. " * number)
    best = make_document(owner, "The fee, the late fee and the due fee.", name="fees.txt")
    result = retrieve(query="due fee")

    assert len(texts(result)) == 7
    assert result.data["chunks"][0]["document_id"] == str(best.public_id)
    assert result.data["summary"]["mode"] == "query"
    assert result.data["summary"]["documents"] == 7


def test_places_have_no_text_and_no_limit(owner, collection, retrieve):
    long = make_document(owner, "Words. " * 60_000, collection=collection)
    make_document(owner, "The end.", collection=collection)
    result = retrieve(collection=str(collection.public_id), places=True)
    first, second = result.data["chunks"]
    assert first.keys() == {"document_id", "name", "start", "end"}
    assert (first["start"], first["end"], second["end"]) == (0, len(long.text), 8)
    assert (result.data["summary"]["left_out"], result.data["summary"]["cut_chars"]) == (0, 0)


def test_neighbouring_passages_of_a_query_are_joined(owner, retrieve):
    paragraph = "The indemnity of the supplier is limited. " * 35 + "\n\n"
    document = make_document(owner, paragraph * 2 + "Nothing else stands here. " * 60 + "\n\n" + paragraph)
    result = retrieve(query="indemnity supplier")

    spans = [(chunk["start"], chunk["end"]) for chunk in result.data["chunks"]]
    assert spans == [(0, 2 * len(paragraph)), (len(document.text) - len(paragraph), len(document.text))]
    assert texts(result) == [document.text[start:end] for start, end in spans]
    assert result.data["summary"]["documents"] == 1


def test_a_query_may_be_narrowed_to_a_collection(owner, collection, retrieve):
    make_document(owner, "The fee inside.", collection=collection)
    make_document(owner, "The fee outside.")
    assert texts(retrieve(query="fee", collection=str(collection.public_id))) == ["The fee inside."]
    assert len(texts(retrieve(query="fee", collection=None))) == 2
    assert texts(retrieve(query='"')) == []


def test_a_query_since_a_time_sees_only_what_people_put_in_within_the_period(owner, collection, retrieve):
    named, period = str(collection.public_id), {"since": NOW.isoformat(), "until": (NOW + HOUR).isoformat()}
    make_document(owner, "The fee before.", collection=collection, now=NOW)
    make_document(owner, "The fee within.", collection=collection, now=NOW + HOUR)
    make_document(owner, "The fee after.", collection=collection, now=NOW + 2 * HOUR)
    make_document(owner, "Other words.", collection=collection, now=NOW + HOUR)
    make_document(owner, "The fee elsewhere.", collection=make_collection(owner, "other"), now=NOW + HOUR)
    make_document(owner, "The fee in no collection.", now=NOW + HOUR)
    artifact_add(session=retrieve.session, collection=collection, name="d", content="A fee draft.", now=NOW + HOUR)

    found = retrieve(query="fee", collection=named, **period)
    assert (texts(found), found.data["summary"]["mode"]) == (["The fee within."], "query")
    assert sorted(texts(retrieve(query="fee", **period))) == ["The fee elsewhere.", "The fee within."]
    since = texts(retrieve(query="fee", collection=named, since=NOW.isoformat()))
    assert sorted(since) == ["The fee after.", "The fee within."]


def test_all_that_is_new_and_fits_a_query_is_read_for_there_is_no_next_time(owner, collection, retrieve):
    for number in range(9):
        make_document(owner, f"The fee of number {number}.", collection=collection, now=NOW + HOUR)
    asked = {"query": "fee", "collection": str(collection.public_id), "since": NOW.isoformat()}

    assert len(texts(retrieve(**asked))) == 9
    few = retrieve(limit_chars=50, **asked)
    assert (len(texts(few)), few.data["summary"]["left_out"]) == (2, 7)


# --- Limits ---


def test_whole_documents_are_taken_while_they_fit_and_the_others_are_named(owner, collection, retrieve):
    taken, left, small = (
        make_document(owner, letter * size, collection=collection, now=NOW + number * HOUR)
        for number, (letter, size) in enumerate([("a", 100), ("b", 200), ("c", 100)])
    )
    result = retrieve(collection=str(collection.public_id), limit_chars=250)

    assert texts(result) == [taken.text, small.text]
    summary = result.data["summary"]
    assert (summary["left_out"], summary["left_out_ids"]) == (1, [str(left.public_id)])
    assert (summary["documents"], summary["chars"], summary["cut_id"]) == (2, 200, None)


@pytest.mark.parametrize("since", [None, (NOW - HOUR).isoformat()])
def test_a_document_of_a_collection_that_would_never_fit_gets_the_room_that_the_others_leave(
    owner, collection, retrieve, since
):
    first, long, _, last = (
        make_document(owner, letter * size, collection=collection, now=NOW + number * HOUR)
        for number, (letter, size) in enumerate([("a", 100), ("b", 300), ("c", 400), ("d", 100)])
    )
    result = retrieve(collection=str(collection.public_id), since=since, limit_chars=250)

    assert texts(result) == [first.text, "b" * 50, last.text]
    summary = result.data["summary"]
    assert (summary["cut_id"], summary["cut_chars"], summary["left_out"]) == (str(long.public_id), 250, 1)


def test_an_only_document_that_is_too_long_is_cut_alike_in_every_way(owner, collection, retrieve):
    document = make_document(owner, ("Some words in a sentence. " * 40 + "\n\n") * 10, collection=collection)
    ways = [
        {"document": str(document.public_id)},
        {"collection": str(collection.public_id)},
        {"collection": str(collection.public_id), "since": (NOW - HOUR).isoformat()},
    ]
    alike = [retrieve(**way, limit_chars=2_500).data for way in ways]
    assert alike[0]["chunks"] == alike[1]["chunks"] == alike[2]["chunks"]
    assert [one["summary"]["left_out"] for one in alike] == [0, 0, 0]
    assert {one["summary"]["cut_chars"] for one in alike} == {len(document.text) - len(alike[0]["chunks"][0]["text"])}


def test_nothing_is_cut_when_the_others_leave_no_room(owner, collection, retrieve):
    long, short = (make_document(owner, letter * size, collection=collection) for letter, size in [("a", 9), ("b", 5)])
    result = retrieve(collection=str(collection.public_id), limit_chars=5)
    assert texts(result) == [short.text]
    assert result.data["summary"]["left_out_ids"] == [str(long.public_id)]


def test_a_document_that_is_too_long_is_cut_after_a_chunk_and_says_so(owner, retrieve):
    document = make_document(owner, ("Some words in a sentence. " * 40 + "\n\n") * 10)
    result = retrieve(document=str(document.public_id), limit_chars=2_500)

    [text] = texts(result)
    assert 1_000 < len(text) <= 2_500
    assert text.endswith("\n\n")
    assert document.text.startswith(text)
    assert result.data["summary"]["cut_chars"] == len(document.text) - len(text)


def test_a_limit_below_the_first_chunk_is_kept_too(owner, retrieve):
    document = make_document(owner, "Some words in a sentence. " * 200)
    assert texts(retrieve(document=str(document.public_id), limit_chars=10)) == ["Some words"]


def test_the_default_limit_holds(owner, retrieve):
    document = make_document(owner, "x" * 250_000)
    assert sum(map(len, texts(retrieve(document=str(document.public_id))))) <= 200_000


def test_passages_of_a_query_are_limited_too(owner, retrieve):
    short = make_document(owner, "fee fee fee")
    long = make_document(owner, "fee " + "word " * 100)
    result = retrieve(query="fee", limit_chars=50)
    assert texts(result) == [short.text]
    assert result.data["summary"]["left_out_ids"] == [str(long.public_id)]


# --- What is not given ---


def test_deleted_and_detached_documents_are_not_read(owner, collection, retrieve):
    gone, out = (make_document(owner, text, collection=collection) for text in ("fee gone", "fee out"))
    make_document(owner, "fee stays", collection=collection)
    document_delete(document=gone, by=owner, now=NOW)
    document_detach(document=out, collection=collection, by=owner, now=NOW)

    assert texts(retrieve(collection=str(collection.public_id))) == ["fee stays"]
    assert texts(retrieve(collection=str(collection.public_id), since=(NOW - HOUR).isoformat())) == ["fee stays"]
    assert texts(retrieve(query="fee", collection=str(collection.public_id))) == ["fee stays"]
    assert retrieve(document=str(gone.public_id)).outcome == Outcome.ERROR


@pytest.mark.parametrize("way", ["document", "collection", "query"])
def test_what_is_somebody_elses_is_not_there(owner, retrieve, way):
    stranger = make_user()
    theirs = make_collection(stranger)
    document = make_document(stranger, "their secret fee", collection=theirs)
    params = {
        "document": {"document": str(document.public_id)},
        "collection": {"collection": str(theirs.public_id)},
        "query": {"query": "fee", "collection": str(theirs.public_id)},
    }[way]
    result = retrieve(**params)

    assert (result.outcome, result.data) == (Outcome.ERROR, None)
    assert "NotFound" in result.error
    assert texts(retrieve(query="secret fee")) == []


def test_a_deleted_collection_is_not_there(owner, collection, retrieve):
    collection_delete(collection=collection, by=owner, now=NOW)
    assert "NotFound" in retrieve(collection=str(collection.public_id)).error


A = str(uuid4())


@every_row(
    ("params", "says"),
    [
        ({}, "one of 'document', 'collection' or 'query' is needed"),
        ({"document": None}, "is needed"),
        ({"document": A, "collection": A}, "'document' does not go with 'collection'"),
        ({"document": A, "query": "x"}, "does not go with 'query'"),
        ({"query": "x", "until": "2026-03-14T00:00:00Z"}, "'until' goes with 'since'"),
        ({"document": A, "since": "2026-03-14T00:00:00Z"}, "does not go with 'since'"),
        ({"document": A, "owner": 1}, "does not go with 'owner'"),
        ({"collection": A, "until": "2026-03-14T00:00:00Z"}, None),
        ({"document": "nothing"}, "must be a public id"),
        ({"document": 7}, "must be text"),
        ({"query": ["x"]}, "must be text"),
        ({"document": A, "limit_chars": 0}, "from 1 to 1000000"),
        ({"document": A, "limit_chars": True}, "whole number"),
        ({"document": A, "limit_chars": 1_000_001}, "from 1 to 1000000"),
    ],
)
def test_parameters_that_make_no_sense_are_explained(retrieve, params, says):
    result = retrieve(**params)
    assert result.outcome == Outcome.ERROR
    assert (says or "NotFound") in result.error


@every_row(
    ("since", "says"),
    [
        ("2026-03-14T09:00:00", "needs a time zone"),
        ("2026-03-14", "needs a time zone"),
        ("yesterday", "must be a time such as"),
        ("9999-12-31T23:59:59-14:00", "must be a time such as"),
        ("", "must be a time such as"),
    ],
)
def test_a_time_without_a_zone_is_refused(collection, retrieve, since, says):
    result = retrieve(collection=str(collection.public_id), since=since)
    assert (result.outcome, says in result.error) == (Outcome.ERROR, True)
    assert retrieve(collection=str(collection.public_id), until="2026-03-14T00:00:00Z").outcome == Outcome.ERROR


# --- Through the guard ---

CANARY = "xyzzy-canary-9417"


def test_a_retrieval_is_free_and_its_record_has_no_content(owner, collection, retrieve):
    document = make_document(owner, f"Between {CANARY} and others.", name=f"{CANARY}.txt", collection=collection)
    before = set(AuditEvent.objects.values_list("pk", flat=True))
    result = retrieve(document=str(document.public_id))

    assert CANARY in result.data["chunks"][0]["text"]
    assert result.cost_usd == Decimal(0)
    session = retrieve.session
    session.refresh_from_db()
    assert (session.cost_total_usd, session.cost_actual_usd) == (0, 0)
    rows = AuditEvent.objects.filter(chain=session.chain).order_by("seq")
    assert {(row.kind, row.details["tool"]) for row in rows} == {("autonomous_session.tool_call", "retrieve_chunks")}
    assert [row.details["outcome"] for row in rows] == ["started", "success"]
    call = ToolCall.objects.get()
    assert (call.outcome, call.repeatable, call.charged_usd) == (Outcome.SUCCESS, True, 0)
    assert AuditEvent.objects.exclude(pk__in=before).exclude(chain=session.chain).count() == 1  # the chain's birth
    everything = json.dumps(
        [list(AuditEvent.objects.values()), build_receipt(session.chain), list(Notification.objects.values())],
        default=str,
    )
    assert CANARY not in everything
    assert "retrieve_chunks" in everything


def test_a_retrieval_that_fails_leaves_no_content_either(owner, retrieve):
    assert retrieve(document=CANARY).outcome == Outcome.ERROR
    assert retrieve(query=CANARY, since=CANARY).outcome == Outcome.ERROR
    assert CANARY not in json.dumps(list(AuditEvent.objects.values()), default=str)


def test_a_retrieval_is_replayed_from_the_journal(owner, collection):
    session = make_session(owner=owner, current_phase=Phase.INTAKE)
    make_document(owner, "first", collection=collection)
    params = {"collection": str(collection.public_id)}
    first = guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params, key="intake:1", now=NOW)
    make_document(owner, "second", collection=collection)
    again = guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, params, key="intake:1", now=NOW)
    assert again.replayed
    assert again.data == first.data


def test_a_phase_that_does_not_grant_it_reads_nothing(owner, collection):
    from agents.exceptions import ToolNotGranted

    session = make_session(owner=owner, current_phase=Phase.DELIVERY)
    with pytest.raises(ToolNotGranted):
        guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, {"collection": str(collection.public_id)}, now=NOW)


def test_a_large_collection_takes_a_bounded_number_of_statements(
    owner, collection, retrieve, django_assert_max_num_queries
):
    for number in range(30):
        make_document(owner, f"document {number}", collection=collection)
    retrieve(collection=str(collection.public_id))  # opens the chain of the session
    with django_assert_max_num_queries(20):
        assert len(texts(retrieve(collection=str(collection.public_id)))) == 30
