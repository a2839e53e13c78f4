"""A run by query searches by words and meaning, and says in plain words when it went by words alone."""

from decimal import Decimal
from unittest import mock

import pytest

from agents.engine.indexing import index_start, run_index
from agents.enums import Status
from agents.models import AgentSession, ModelOutage, SuspendedModel, ToolCall
from agents.runner import run_session
from agents.sessions.reads import read_by
from agents.walk.walk import walk
from tests.agents.providers.hostile_servers import answer
from tests.agents.walk.scene import model, reply, run
from tests.embeddings_wire import MODEL, Embeddings, embedding
from tests.factories import NOW

pytestmark = pytest.mark.django_db
QUERY = "Which automobile?"  # no word of it stands in the document
CALL = '<skill>search_documents(query="Which automobile?")</skill>'
NOTE = "The documents were searched by words alone"


@pytest.fixture
def indexed(scene):
    """`indexed()`: its documents are indexed."""

    def index():
        session = index_start(owner=scene.owner, by=None, now=NOW)
        assert run_session(session.pk, run_index, owner="worker-1")

    scene.document("The vehicle is red.", name="car")
    return index


def notes(session):
    return {one.title: one.content for one in session.findings.all()}


def test_what_is_meant_is_read_and_the_question_is_paid(scene, indexed):
    with embedding() as server, model(reply(findings=[])):
        indexed()
        session = run(scene.session(query=QUERY))
    assert session.status == Status.COMPLETED
    first, second = ToolCall.objects.filter(session=session, phase="intake").order_by("pk")
    assert (first.key, first.model, first.outcome) == ("intake:retrieve:meaning", MODEL, "success")
    assert second.result["summary"]["found_by"] == {"meaning": 1}
    assert [one.name for one in read_by(session).documents] == ["car"]
    assert NOTE not in notes(session)
    assert server.requests[-1]["input"] == [QUERY]


def test_the_same_query_is_asked_once(scene, indexed):
    with embedding() as server, model(reply(findings=[])):
        indexed()
        run(scene.session(query=QUERY))
        again = run(scene.session(query=QUERY))
    assert len(server.requests) == 2
    assert ToolCall.objects.filter(session=again, phase="intake").count() == 1


AWAY = "the embedding model does not answer"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (answer(500), AWAY),
        (answer(429, {}, retry_after="60"), AWAY),
        (answer(401), "401 from "),
        (Embeddings(change=lambda data: []), "The embedding server sent 0 vectors for 1 texts."),
    ],
)
def test_a_server_that_fails_costs_the_run_nothing_but_the_meaning(scene, indexed, script, why):
    with embedding(Embeddings(), script), model(reply(findings=[])):
        indexed()
        session = run(scene.session(query=f"{QUERY} red"))
    assert session.status == Status.COMPLETED
    assert why in notes(session)[NOTE]
    assert read_by(session).words_only.startswith(why)
    assert [one.name for one in read_by(session).documents] == ["car"]  # by the word


def test_a_model_known_to_be_away_or_suspended_is_not_asked(scene, indexed):
    with embedding() as server, model(reply(findings=[])):
        indexed()
        SuspendedModel.objects.create(model=MODEL, bound_usd=1, actual_usd=2, suspended_at=NOW)
        assert "is suspended" in notes(run(scene.session(query=QUERY)))[NOTE]
        SuspendedModel.objects.all().delete()
        ModelOutage.objects.create(model=MODEL, since=NOW, next_try_at="2100-01-01T00:00:00Z")
        assert AWAY in notes(run(scene.session(query=QUERY)))[NOTE]
    assert len(server.requests) == 1


def test_a_run_without_money_for_it_searches_by_words(scene, indexed):
    with embedding() as server, model(reply(findings=[])):
        indexed()
    with embedding(input_usd="900000") as server, model(reply(findings=[])):
        session = run(scene.session(query=QUERY, max_cost_usd=Decimal("0.5")))
    assert "no money left" in notes(session)[NOTE]
    assert session.status == Status.COMPLETED
    assert not server.requests


def test_before_anything_is_indexed_words_are_searched(scene, indexed):
    with embedding() as server, model(reply(findings=[])):
        session = run(scene.session(query=QUERY))
    assert "no document is indexed yet" in notes(session)[NOTE]
    assert not server.requests


def test_without_an_embedding_model_nothing_is_said(scene, indexed):
    with model(reply(findings=[])):
        session = run(scene.session(query=QUERY))
    assert NOTE not in notes(session)
    assert "words_only" not in ToolCall.objects.get(session=session, phase="intake").result["summary"]


def test_a_run_that_lost_its_worker_after_the_question_does_not_ask_again(scene, indexed, monkeypatch):
    with embedding() as server, model(reply(findings=[])):
        indexed()
        session = scene.session(query=QUERY)
        with monkeypatch.context() as patch:
            patch.setattr("agents.walk.intake.journaled_call", mock.Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run_session(session.pk, walk, owner="worker-1")
        AgentSession.objects.filter(pk=session.pk).update(lease_until=NOW)
        ended = run(session)
    assert ended.status == Status.COMPLETED
    assert len(server.requests) == 2
    assert [one.name for one in read_by(ended).documents] == ["car"]


def test_a_skill_call_finds_by_meaning(scene, indexed):
    with embedding() as server, model(CALL, reply(findings=[])):
        indexed()
        session = run(scene.of_document("A text.", analysis_mode="agentic"))
    search = ToolCall.objects.get(session=session, name="search_documents")
    [passage] = search.result["passages"]
    assert (passage["name"], passage["found_by"]) == ("car", "meaning")
    fetched = ToolCall.objects.get(session=session, key=f"{search.key}:meaning")
    assert (fetched.intent, fetched.phase) == ("retrieve_chunks", "analysis")
    assert len(server.requests) == 2
