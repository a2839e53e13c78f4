"""Transcripts through the API: in order, paged, without internal entries by default."""

import pytest

from tests.agents.ask.rows import make_entry, make_transcript, open_chat
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(person):
    session = open_chat(person)
    make_transcript(session)
    return session


@pytest.fixture
def read(api, session):
    def read_with(**query):
        return api.get(f"/api/v1/sessions/{session.public_id}/transcript", query)

    return read_with


def test_internal_entries_are_hidden_by_default(read):
    def contents(**query):
        return [entry["content"] for entry in read(**query).json()["results"]]

    assert contents() == ["What time is it?", "Let me s", "ee.", "09:26", "Half past nine."]
    assert contents(internal="false") == contents()
    assert contents(internal="true")[::3] == ["You are careful.", "Write on.", "Half past nine."]


def test_entries_have_calls_and_results_name_their_call(read):
    _, _, asks, result, _ = read().json()["results"]
    assert asks["calls"] == [{"id": "call_1_1", "name": "now", "arguments": '{"zone": "UTC"}'}]
    assert (result["role"], result["call_id"], result["failed"]) == ("tool", "call_1_1", False)
    [written] = [entry for entry in read(internal="true").json()["results"] if entry["reason"]]
    assert written["reason"] == "max_tokens_recovery"


def test_transcript_is_paged(read):
    page = read(page=2, page_size=2).json()
    assert (page["count"], [entry["content"] for entry in page["results"]]) == (5, ["ee.", "09:26"])


def test_transcript_is_redacted_on_output(read, session):
    make_entry(session, "assistant", "The key is sk-proj-" + "a1B2" * 10, stop="end_turn")
    assert "a1B2" not in read(page_size=200).content.decode()


@pytest.mark.parametrize("query", [{"internal": "maybe"}, {"intern": "true"}])
def test_invalid_queries_are_refused(read, query):
    assert read(**query).status_code == 422


def test_transcript_of_another_user_is_not_found(api):
    theirs = open_chat(make_user())
    make_transcript(theirs)
    answer = api.get(f"/api/v1/sessions/{theirs.public_id}/transcript")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
