"""Documents are indexed by runs of their own: guarded, booked, capped, in batches, resumed, and never half stored."""

from decimal import Decimal

import pytest

from agents.enums import Mode, Phase, Status, WaitingOn
from agents.indexing import index_start, run_index
from agents.knowledge.vectors import vector_space
from agents.models import AgentSession, ChunkVector, Document, InferenceLog, ModelOutage, ToolCall
from agents.runner import run_session
from audit.models import AuditEvent
from tests.agents.knowledge.samples import make_document
from tests.agents.providers.hostile_servers import answer
from tests.embeddings_wire import MODEL, SECRET, Embeddings, embedding
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user()


def index(owner, **more):
    """Start a run as the ticker does, and work on it as a worker does."""
    session = index_start(owner=owner, by=None, now=NOW, **more)
    assert run_session(session.pk, run_index, owner="worker-1", now=NOW)
    session.refresh_from_db()
    return session


def indexed():
    return dict(Document.objects.values_list("name", "indexed_as"))


def test_a_run_indexes_every_document_and_books_the_tokens(owner):
    make_document(owner, "The vehicle is red. " * 400, name="long")
    make_document(owner, "Terminate at will.", name="short")
    with embedding() as server:
        session = index(owner)
        assert indexed() == {"long": vector_space(), "short": vector_space()}

    assert (session.status, session.mode, session.current_phase) == ("completed", Mode.INDEX, Phase.INTAKE)
    assert ChunkVector.objects.filter(owner=owner).count() == sum(len(one["input"]) for one in server.requests) > 4
    [log] = InferenceLog.objects.filter(session=session)
    tokens = sum(len(text.split()) for text in server.requests[0]["input"])
    assert (log.purpose, log.input_tokens, log.output_tokens) == ("embedding", tokens, 0)
    assert log.cost_estimate == session.cost_actual_usd == Decimal(f"{-(-tokens * 2 // 100) / 1_000_000:.6f}")
    assert session.cost_held_usd == session.cost_reserved_usd == 0
    assert session.cost_total_usd == Decimal("0.000041")  # by length: four characters are a token
    assert f"Bearer {SECRET}" in server.heads[0]
    assert "POST /v1/embeddings" in server.heads[0]


def test_the_call_is_recorded_before_it_is_sent_and_holds_no_text(owner):
    make_document(owner, "The vehicle is red.", name="one")
    seen = []
    with embedding(lambda *sent: (seen.append(ToolCall.objects.count()), Embeddings()(*sent))):
        session = index(owner)

    [call] = ToolCall.objects.filter(session=session)
    assert (call.intent, call.model, call.outcome) == ("retrieve_chunks", MODEL, "success")
    assert "vehicle" not in str(call.arguments) + str(call.result) + str(list(AuditEvent.objects.values("details")))
    rows = AuditEvent.objects.filter(kind="autonomous_session.tool_call").values_list("details", flat=True)
    assert [row["outcome"] for row in rows] == ["started", "success"]


def test_a_run_sends_batches_and_goes_on_after_a_crash(owner, monkeypatch):
    monkeypatch.setattr("agents.knowledge.vectors.BATCH", 2)
    for number in range(5):
        make_document(owner, f"Passage number {number}.", name=str(number))
    with embedding(Embeddings(), answer(500), answer(500), answer(500), Embeddings()) as server:
        session = index(owner)
        assert (session.status, session.waiting_on) == (Status.WAITING, WaitingOn.MODEL)
        assert ChunkVector.objects.count() == 2

        ModelOutage.objects.all().delete()
        AgentSession.objects.filter(pk=session.pk).update(status=Status.QUEUED, waiting_on="", metadata={})
        assert run_session(session.pk, run_index, owner="worker-2")

    session.refresh_from_db()
    assert session.status == Status.COMPLETED
    assert ChunkVector.objects.count() == 5
    sent = [text for request in server.requests for text in request["input"]]
    assert sent.count("Passage number 0.") == 1  # what was stored is not sent again
