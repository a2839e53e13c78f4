"""The document skills, through the guard: the owner's documents, by exact offsets, and nobody else's."""

import uuid

import pytest

from agents.enums import Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.guard.tools import BadParams
from agents.knowledge.documents import document_delete
from agents.models import ToolCall
from agents.skills.skill import BadArguments
from tests.agents.knowledge.samples import make_document
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

TEXT = "Either party may terminate this agreement by ninety days of notice. Größe zählt: äöü. The end."


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="manual"))


@pytest.fixture
def document(session):
    return make_document(session.owner, TEXT, name="agreement.txt")


def ask(session, skill, **arguments):
    params = {"skill": skill, "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, now=NOW)


def test_passages_name_their_document_and_offsets(session, document):
    found = ask(session, "search_documents", query="When may they terminate?")

    assert found.ok
    [passage] = found.data["passages"]
    assert passage["document"] == str(document.public_id)
    assert passage["name"] == "agreement.txt"
    assert "terminate" in passage["snippet"]
    assert TEXT[passage["start"] : passage["end"]] == TEXT
    assert ToolCall.objects.get().repeatable is True


def test_limit_bounds_the_passages(session):
    for number in range(4):
        make_document(session.owner, f"Notice number {number} is given.", name=f"{number}.txt")

    assert len(ask(session, "search_documents", query="notice", limit=3).data["passages"]) == 3
    assert len(ask(session, "search_documents", query="notice").data["passages"]) == 4


def test_search_without_a_match_is_empty(session, document):
    assert ask(session, "search_documents", query="zebra").data == {"passages": []}


def test_documents_of_others_are_not_found(session, document):
    other = make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, owner=make_user())

    assert ask(other, "search_documents", query="terminate").data == {"passages": []}


@pytest.mark.parametrize("limit", [0, 51, "5"])
def test_limit_is_bounded(session, limit):
    with pytest.raises((BadParams, BadArguments)):
        ask(session, "search_documents", query="notice", limit=limit)


def test_document_is_read_by_offset_and_length(session, document):
    start = TEXT.index("Größe")

    read = ask(session, "read_document", document=str(document.public_id), offset=start, length=11)

    assert read.data == {
        "document": str(document.public_id),
        "name": "agreement.txt",
        "start": start,
        "end": start + 11,
        "chars": len(TEXT),
        "text": "Größe zählt",
    }


def test_parts_join_to_the_whole_document(session, document):
    parts, offset = [], 0
    while offset < len(TEXT):
        read = ask(session, "read_document", document=str(document.public_id), offset=offset, length=40).data
        parts.append(read["text"])
        offset = read["end"]

    assert "".join(parts) == TEXT


def test_offset_after_the_end_returns_nothing(session, document):
    read = ask(session, "read_document", document=str(document.public_id), offset=10_000).data

    assert (read["text"], read["start"], read["end"]) == ("", len(TEXT), len(TEXT))


def test_missing_deleted_and_foreign_documents_are_not_found(session, document):
    theirs = make_document(make_user(), "Secret plans.", name="plans.txt")
    gone = make_document(session.owner, "Deleted.", name="gone.txt")
    document_delete(document=gone, by=None, now=NOW)
    named = [str(theirs.public_id), str(gone.public_id), str(uuid.uuid4()), "agreement.txt", "", "\x00"]

    for name in named:
        refused = ask(session, "read_document", document=name)
        assert refused.outcome == Outcome.ERROR
        assert refused.error.startswith("NotFound: There is no document ")
        assert "plans" not in refused.error
