"""Documents are indexed by runs of their own: guarded, booked, capped, in batches, resumed, and never half stored."""

import json
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from agents.engine.indexing import fetch_for_person, index_forget, index_start, indexing_due, run_index
from agents.enums import Mode, Phase, Status, TerminalReason, WaitingOn
from agents.exceptions import NotFound, SessionHalted
from agents.knowledge.search import search_chunks
from agents.knowledge.vectors import vector_space, vectors_store
from agents.models import AgentSession, ChunkVector, Document, InferenceLog, ModelOutage, ToolCall
from agents.runner import run_session
from agents.sessions.halts import halt_all_work
from agents.sessions.reads import purposes
from agents.tasks import ENGINES
from agents.ticker import DUTIES
from agents.types import Finished
from audit.models import AuditEvent
from tests.agents.knowledge.samples import make_document
from tests.agents.providers.hostile_servers import answer
from tests.embeddings_wire import MODEL, SECRET, Embeddings, as_base64, embedding
from tests.factories import NOW, make_starter, make_user

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
    with embedding():
        session = index(owner)

    [call] = ToolCall.objects.filter(session=session)
    assert (call.intent, call.model, call.outcome) == ("retrieve_chunks", MODEL, "success")
    assert "vehicle" not in str(call.arguments) + str(call.result) + str(list(AuditEvent.objects.values("details")))
    rows = AuditEvent.objects.filter(kind="autonomous_session.tool_call").order_by("pk")
    assert [row.details["outcome"] for row in rows] == ["started", "success"]


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


def test_a_worker_killed_after_storing_leaves_nothing_to_send_again(owner, monkeypatch):
    make_document(owner, "Passage number 0.", name="0")
    session = index_start(owner=owner, by=None, now=NOW)

    def store(*args, **more):
        vectors_store(*args, **more)
        raise KeyboardInterrupt

    with embedding() as server:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("agents.guard.embed.vectors_store", store)
            run_session(session.pk, run_index, owner="worker-1", now=NOW)
        assert ToolCall.objects.get().outcome == "started"
        AgentSession.objects.filter(pk=session.pk).update(lease_until=NOW)
        assert run_session(session.pk, run_index, owner="worker-2")
    session.refresh_from_db()
    assert (session.status, len(server.requests)) == (Status.COMPLETED, 1)
    call = ToolCall.objects.get()
    assert (call.outcome, call.charged_usd) == ("worker_lost", call.approved_usd)
    assert session.cost_held_usd == 0


def test_a_halt_ends_the_run_and_keeps_what_is_stored(owner, monkeypatch):
    monkeypatch.setattr("agents.knowledge.vectors.BATCH", 1)
    for number in range(3):
        make_document(owner, f"Passage number {number}.", name=str(number))

    def store(*args, **more):
        AgentSession.objects.update(halt_state="halt_requested")
        return vectors_store(*args, **more)

    monkeypatch.setattr("agents.guard.embed.vectors_store", store)
    with embedding():
        session = index(owner)
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert ChunkVector.objects.count() == 1


def test_a_run_stops_at_its_cap(owner, monkeypatch):
    monkeypatch.setattr("agents.knowledge.vectors.BATCH", 1)
    for number in range(3):
        make_document(owner, f"Passage number {number}.", name=str(number))
    with embedding(Embeddings(usage=False), input_usd="10", overhead_tokens=0) as server:  # booked at the worst case
        session = index(owner, max_cost_usd=Decimal("0.0015"))
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.BUDGET_EXCEEDED)
    assert len(server.requests) == ChunkVector.objects.count() == 1
    assert 0 < session.cost_actual_usd <= Decimal("0.0015")


def test_a_run_gives_its_worker_back_after_its_slice(owner, monkeypatch):
    monkeypatch.setattr("agents.knowledge.vectors.BATCH", 1)
    monkeypatch.setattr("agents.engine.indexing.slice_is_over", lambda session, started_at: True)
    for number in range(2):
        make_document(owner, f"Passage number {number}.", name=str(number))
    with embedding():
        session = index(owner)
        assert (session.status, ChunkVector.objects.count()) == (Status.QUEUED, 1)
        assert run_session(session.pk, run_index, owner="worker-2")
        assert run_session(session.pk, run_index, owner="worker-3")
    session.refresh_from_db()
    assert (session.status, ChunkVector.objects.count()) == (Status.COMPLETED, 2)


def test_a_bad_answer_fails_the_run_with_its_reason_and_stores_nothing(owner, monkeypatch):
    monkeypatch.setattr("agents.guard.metering.next_wait", lambda *_: None)
    make_document(owner, "One.", name="one")
    with embedding(Embeddings(change=lambda data: [])):
        session = index(owner)
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.PROVIDER_ERROR)
    assert session.error == "The embedding server sent 0 vectors for 1 texts."
    assert not ChunkVector.objects.exists()


def test_a_run_that_makes_no_progress_ends(owner, monkeypatch):
    make_document(owner, "One.", name="one")
    monkeypatch.setattr("agents.guard.embed.vectors_store", lambda *args, **more: 0)
    with embedding():
        session = index(owner)
    assert (session.status, session.error) == (Status.FAILED, "The last passages could not be stored.")


def test_passages_deleted_between_look_and_call_are_passed_over(owner, monkeypatch):
    make_document(owner, "One.", name="one")
    batches = iter([[10**9], []])
    monkeypatch.setattr("agents.engine.indexing.next_batch", lambda *args, **more: next(batches))
    with embedding() as server:
        assert index(owner).status == Status.COMPLETED
    assert not server.requests


def test_base64_answers_are_stored_the_same(owner):
    make_document(owner, "The vehicle is red.", name="one")
    with embedding(Embeddings(change=as_base64)):
        index(owner)
    stored = bytes(ChunkVector.objects.get().vector)
    with embedding():
        index_forget(owner=owner, by=None, now=NOW)
        index(owner)
    assert bytes(ChunkVector.objects.get().vector) == stored


# --- When runs start ---


def sessions():
    return list(AgentSession.objects.filter(mode=Mode.INDEX).order_by("pk"))


def test_the_ticker_starts_one_run_for_each_owner_who_lacks_vectors(owner):
    make_document(owner, "One.", name="one")
    make_document(make_user(opted_in=False), "Two.", name="two")
    with embedding():
        assert indexing_due(NOW) == 1
        assert indexing_due(NOW) == 0  # it is at work
    [session] = sessions()
    assert (session.owner, session.status, session.metadata["asked_by"]) == (owner, Status.QUEUED, "system")


def test_while_all_work_is_halted_no_run_starts(owner):
    make_document(owner, "One.", name="one")
    halt_all_work(reason="Stop.", by=make_user(is_superuser=True), now=NOW)
    with embedding():
        assert indexing_due(NOW) == 0
    assert not sessions()


def test_somebody_else_starts_no_run_without_permission(owner):
    with embedding(), pytest.raises(NotFound):
        index_start(owner=owner, by=make_user(), now=NOW)


def test_without_a_model_no_run_starts(owner):
    make_document(owner, "One.", name="one")
    assert indexing_due(NOW) == 0
    with embedding():
        session = index_start(owner=owner, by=None, now=NOW)
    assert run_session(session.pk, run_index, owner="worker-1")
    session.refresh_from_db()
    assert session.status == Status.COMPLETED


@pytest.mark.parametrize(
    ("reason", "hours"),
    [("completed", 0), ("provider_error", 1), ("external_halt", 1), ("cost_cap_reached", 24), ("budget_exceeded", 24)],
)
def test_after_a_failure_the_ticker_waits(owner, reason, hours):
    make_document(owner, "One.", name="one")
    ended = {"status": Status.HALTED, "terminal_reason": reason, "completed_at": NOW, "started_at": NOW}
    with embedding():
        session = index_start(owner=owner, by=None, now=NOW)
        AgentSession.objects.filter(pk=session.pk).update(**ended)
        assert not hours or indexing_due(NOW + timedelta(hours=hours) - timedelta(seconds=1)) == 0
        assert indexing_due(NOW + timedelta(hours=hours)) == 1


def test_the_duty_is_one_of_the_ticker():
    assert any(duty.do is indexing_due for duty in DUTIES)
    assert ENGINES[Mode.INDEX] is run_index


# --- The command ---


def command(capsys, *arguments):
    call_command("index_documents", *arguments)
    return capsys.readouterr().out


def test_the_command_shows_what_is_left_and_its_estimate(owner, capsys):
    make_document(owner, "The vehicle is red. " * 4_000, name="long")
    with embedding():
        assert "0 of 1 documents indexed by embedder; 50 passages left, about" in command(capsys)
        [facts] = json.loads(command(capsys, "--json"))["owners"]
        assert (facts["owner"], facts["documents"], facts["indexed"]) == (owner.username, 1, 0)
        assert (facts["passages_left"], facts["session"]) == (50, None)
        assert Decimal(facts["estimate_usd"]) == Decimal("0.000400")
        assert facts["tokens_left"] == 20_000
        index(owner)
        assert (
            command(capsys, "--owner", owner.username) == f"{owner.username}: 1 of 1 documents indexed by embedder.\n"
        )
    assert not sessions()[1:]


def test_the_command_starts_runs_and_indexes_anew(owner, capsys):
    admin = make_user(is_superuser=True, username="root")
    make_document(owner, "One.", name="one")
    with embedding():
        [facts] = json.loads(command(capsys, "--start", "--cap", "0.25", "--json"))["owners"]
        [session] = sessions()
        assert facts["session"] == str(session.public_id)
        assert session.max_cost_usd == Decimal("0.25")
        run_session(session.pk, run_index, owner="worker-1")
        out = command(capsys, "--again", "--user", "root")
    assert f"Run {sessions()[1].public_id} is started." in out
    assert not ChunkVector.objects.exists()
    event = AuditEvent.objects.get(kind="documents.index_deleted")
    assert (event.actor, event.details) == (f"user:{admin.pk}", {"owner_id": owner.pk, "vectors": 1})


@pytest.mark.parametrize("cap", ["much", "0", "-1", "nan"])
def test_the_command_refuses_a_cap_that_is_no_amount(owner, cap):
    make_document(owner, "One.", name="one")
    with embedding(), pytest.raises(CommandError, match="not an amount"):
        call_command("index_documents", "--start", f"--cap={cap}")


def test_the_command_says_what_is_missing(monkeypatch, capsys):
    with pytest.raises(CommandError, match="No model has the role embeddings"):
        call_command("index_documents")
    with embedding():
        assert command(capsys) == "There are no documents.\n"
        monkeypatch.setattr("agents.management.commands.index_documents.has_numpy", lambda: False)
        with pytest.raises(CommandError, match="extra `semantic`"):
            call_command("index_documents")


# --- Searches of people ---


def test_a_persons_query_is_a_run_of_its_own_and_costs_once():
    starter = make_starter()
    make_document(starter, "The vehicle is red.", name="car")
    with embedding() as server:
        index(starter)
        assert fetch_for_person(query="automobile", by=starter, now=NOW) == ""
        assert fetch_for_person(query="automobile", by=starter, now=NOW) == ""
        [hit] = search_chunks(owner_id=starter.pk, query="automobile")
    assert (hit.name, hit.found_by) == ("car", "meaning")
    assert len(server.requests) == 2
    search = sessions()[-1]
    assert (search.status, search.params, search.max_cost_usd) == (
        "completed",
        {"query": "automobile"},
        Decimal("0.05"),
    )
    assert purposes([search]) == {search.pk: "“automobile”"}
    assert run_index(search) == Finished()  # taken over by a worker, it has nothing to do


def test_a_person_is_told_why_words_alone_are_searched(owner):
    starter = make_starter()
    ask = partial(fetch_for_person, query="automobile", now=NOW)
    assert ask(by=starter) == "search by meaning is not set up"
    with embedding(Embeddings(), answer(500)):
        assert "You may view but not start runs" in ask(by=owner)
        assert ask(by=starter) == "no document is indexed yet"
        make_document(starter, "The vehicle is red.", name="car")
        index(starter)
        assert ask(by=starter) == "the embedding model does not answer"
        with override_settings(LQOPS_MAX_RUNNING_PER_USER=0):
            assert "as many active runs as allowed" in ask(by=starter)
    assert all(one.completed_at for one in sessions()[-2:-1])


def test_a_halt_of_a_persons_search_is_told(monkeypatch):
    starter = make_starter()
    make_document(starter, "The vehicle is red.", name="car")

    def halted(*args, **more):
        raise SessionHalted("external_halt")

    with embedding():
        index(starter)
        monkeypatch.setattr("agents.engine.indexing.fetch_query_vector", halted)
        assert fetch_for_person(query="automobile", by=starter, now=NOW) == "the run of the search was stopped"
