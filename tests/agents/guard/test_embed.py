"""Embedding is a guarded call: granted by phase, within the cap, anonymised, redacted, and of own passages only."""

from decimal import Decimal

import pytest

from agents.enums import Outcome, Phase, ToolIntent
from agents.exceptions import CostCapReached, ModelSuspended, RetryLater, SessionHalted, ToolNotGranted, UnpricedModel
from agents.guard import guarded_tool_call
from agents.guard.guard import can_be_paid
from agents.guard.tools import BadParams, persisting
from agents.knowledge.documents import document_delete
from agents.knowledge.vectors import vectors_store
from agents.ledger.prices import estimate_embedding, estimate_tool_cost
from agents.models import Chunk, ChunkVector, InferenceLog, ModelPrice, Project, QueryVector, SuspendedModel, ToolCall
from agents.policy.costs import COLD_START_USD
from audit.receipts import build_receipt
from tests.agents.knowledge.samples import make_document
from tests.agents.providers.hostile_servers import answer
from tests.embeddings_wire import MODEL, Embeddings, embedding
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db
QUERY = {"embed": "query", "query": "How do we quit?", "model": MODEL}


@pytest.fixture
def session():
    return make_session(current_phase=Phase.INTAKE)


def call(session, **params):
    return guarded_tool_call(session, ToolIntent.RETRIEVE_CHUNKS, {**QUERY, **params}, now=NOW)


def passages(session, *texts):
    for number, text in enumerate(texts):
        make_document(session.owner, text, name=str(number))
    return list(Chunk.objects.filter(document__owner=session.owner).order_by("pk").values_list("pk", flat=True))


def test_a_query_is_sent_booked_and_its_vector_kept_without_its_words(session):
    with embedding() as server:
        result = call(session)
    assert (result.outcome, result.data) == (Outcome.SUCCESS, {"stored": 1, "dimensions": 16})
    assert server.requests[0]["input"] == ["How do we quit?"]
    assert QueryVector.objects.get(owner=session.owner).digest
    session.refresh_from_db()
    assert session.cost_actual_usd == Decimal("0.000001")
    assert build_receipt(session.chain)["tool_calls"][0]["what"] == f"model call to {MODEL}"


@pytest.mark.parametrize("phase", [Phase.DRAFTING, Phase.ETHICS_REVIEW, Phase.DELIVERY])
def test_a_phase_that_does_not_read_embeds_nothing(phase):
    session = make_session(current_phase=phase)
    with embedding() as server, pytest.raises(ToolNotGranted):
        call(session)
    assert not server.requests


def test_a_halted_session_embeds_nothing(session):
    session.halt_state = "halt_requested"
    session.save()
    with embedding() as server, pytest.raises(SessionHalted):
        call(session)
    assert not server.requests


def test_a_call_beyond_the_cap_is_refused_before_it_is_sent(session):
    type(session).objects.filter(pk=session.pk).update(max_cost_usd=Decimal("0.000001"))
    with embedding(input_usd="5000") as server:
        assert not can_be_paid(session, ToolIntent.RETRIEVE_CHUNKS, QUERY)
        with pytest.raises(CostCapReached):
            call(session)
    assert not server.requests


def test_a_query_is_estimated_by_its_length_however_dear_others_were(session):
    for _ in range(20):
        InferenceLog.objects.create(session=session, model=MODEL, outcome="success", cost_estimate=5, created_at=NOW)
    type(session).objects.filter(pk=session.pk).update(max_cost_usd=Decimal("0.01"))
    with embedding():
        assert call(session).ok


def test_a_suspended_or_unpriced_model_is_not_asked(session):
    SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2, suspended_at=NOW)
    with embedding() as server:
        with pytest.raises(ModelSuspended):
            call(session)
        SuspendedModel.objects.all().delete()
    with embedding(input_usd="much") as server, pytest.raises(UnpricedModel):
        call(session)
    assert not server.requests


def test_names_that_any_project_lists_are_hidden_and_stay_equal(session):
    Project.objects.create(owner=session.owner, name="A", parties="Anna Müller", created_at=NOW)
    Project.objects.create(owner=make_user(), name="B", parties="Zoe Lang", created_at=NOW)
    text = "Anna Müller and Zoe Lang wrote to jo@example.com."
    with embedding() as server:
        call(session, query=text)
        call(session, query=f"{text} Again.")
    assert [one["input"] for one in server.requests] == [
        ["PERSON and Zoe Lang wrote to EMAIL."],
        ["PERSON and Zoe Lang wrote to EMAIL. Again."],
    ]


def test_secrets_are_masked_and_long_passages_cut(session):
    ids = passages(session, f"The key is sk-{'a1B2' * 12}, and so on. " + "word " * 100)
    with embedding(context_window=20) as server:
        assert call(session, embed="passages", passages=ids).ok
    [sent] = server.requests[0]["input"]
    assert "a1B2" not in sent
    assert len(sent) == 80


def test_passages_of_others_are_not_sent(session):
    other = make_session(current_phase=Phase.INTAKE)
    ids = passages(other, "Their secret.")
    with embedding() as server:
        result = call(session, embed="passages", passages=ids)
    assert (result.outcome, result.error) == (Outcome.ERROR, "NotFound: There are no such passages.")
    assert not server.requests
    assert not ChunkVector.objects.exists()


def test_passages_that_are_gone_make_no_call(session):
    ids = passages(session, "One.")
    document_delete(document=session.owner.lqops_documents.get(), by=None, now=NOW)
    with embedding(), pytest.raises(BadParams, match="no such passages"):
        call(session, embed="passages", passages=ids)


def test_a_document_deleted_while_the_model_answers_gets_no_vector(session, monkeypatch):
    ids = passages(session, "One.", "Two.")
    first = session.owner.lqops_documents.order_by("pk").first()

    def store(*args, **more):
        document_delete(document=first, by=None, now=NOW)
        return vectors_store(*args, **more)

    monkeypatch.setattr("agents.guard.embed.vectors_store", store)
    with embedding():
        assert call(session, embed="passages", passages=ids).data["stored"] == 1
    assert ChunkVector.objects.get().chunk_id == ids[1]


@pytest.mark.parametrize(
    "params",
    [
        {"embed": "everything"},
        {"embed": ["query"]},
        {"embed": "query", "query": None},
        {"embed": "query", "model": "two words"},
        {"embed": "passages"},
        {"embed": "passages", "passages": []},
        {"embed": "passages", "passages": ["1"]},
        {"embed": "passages", "passages": [True]},
        {"embed": "passages", "passages": list(range(65))},
    ],
)
def test_parameters_that_make_no_call_are_refused(session, params):
    with embedding(), pytest.raises(BadParams):
        call(session, **params)
    assert not ToolCall.objects.exists()


def test_a_model_without_the_role_stores_nothing(session):
    with embedding(roles=False) as server:
        result = call(session)
    assert "does not have the role of embeddings" in result.error
    assert not server.requests
    assert not QueryVector.objects.exists()


def test_a_model_of_another_kind_stores_nothing(session):
    model = {"provider": "scripted", "replies": ["Hello."]}
    with embedding(**model):
        result = call(session)
    assert (result.outcome, "it is not one for embeddings" in result.error) == (Outcome.GATEWAY_ERROR, True)
    assert not QueryVector.objects.exists()


def test_vectors_of_another_length_are_refused_and_nothing_is_half_stored(session):
    ids = passages(session, "One.", "Two.")
    with embedding():
        assert call(session, embed="passages", passages=ids[:1]).ok
    with embedding(Embeddings(change=lambda data: [{**one, "embedding": [1, 2, 3]} for one in data])):
        result = call(session, embed="passages", passages=ids[1:])
        query = call(session)
    assert "sent 3 dimensions; the documents are indexed with 16" in result.error
    assert "sent 3 dimensions" in query.error
    assert (ChunkVector.objects.count(), QueryVector.objects.count()) == (1, 0)
    session.refresh_from_db()
    assert session.cost_actual_usd > 0  # it was answered, so it is paid


@pytest.mark.parametrize("status", [429, 500])
def test_a_server_that_is_away_is_noted_as_an_outage(session, status):
    with embedding(answer(status, {"error": {"message": "later"}})), persisting(1), pytest.raises(RetryLater):
        call(session)
    assert not QueryVector.objects.exists()


def test_a_refused_key_names_its_variable(session):
    with embedding(answer(401, {"error": {"message": "bad key"}})):
        result = call(session)
    assert (result.outcome, result.detail) == (Outcome.GATEWAY_ERROR, "key_refused")
    assert "LQOPS_TEST_EMBEDDINGS_KEY" in result.error


def test_a_bad_answer_is_asked_for_again_and_then_refused_with_its_reason(session, monkeypatch):
    ids = passages(session, "One.", "Two.")
    monkeypatch.setattr("agents.guard.metering.next_wait", lambda error, tries, rng: 0 if tries.failed < 3 else None)
    with embedding(Embeddings(change=lambda data: data[1:])) as server:
        result = call(session, embed="passages", passages=ids)
    assert (result.outcome, result.error) == (
        Outcome.GATEWAY_ERROR,
        "The embedding server sent 1 vectors for 2 texts.",
    )
    assert len(server.requests) == 3
    assert not ChunkVector.objects.exists()


def test_the_estimate_goes_by_length_and_the_declared_price():
    with embedding():
        assert estimate_embedding(MODEL, 4_000_000) == Decimal("0.02")
        asked = {"model": MODEL, "purpose": "embedding", "chars": 400}
        assert estimate_tool_cost(ToolIntent.RETRIEVE_CHUNKS, asked) == Decimal("0.000002")
        ModelPrice.objects.create(model=MODEL, input_usd=Decimal(1), output_usd=Decimal(0))
        assert estimate_embedding(MODEL, 4_000_000) == Decimal(1)
    assert estimate_embedding("unknown", 4) == COLD_START_USD
