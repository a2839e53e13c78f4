"""Long texts of calls and messages are stored once, and come back to the character."""

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from agents.enums import Outcome, Phase, ToolIntent
from agents.models import Message, SharedText, ToolCall, shared_texts
from agents.models.shared_texts import MARK, _restored, store_texts, stored, texts_stored
from agents.text.blocks import render_block
from tests.agents.walk.scene import Scene, model, reply, run
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db

DOCUMENT = "".join(f"Clause {number}. The Customer shall pay within {number} days.\n" for number in range(2_800))
SHORT = {"severity": "warn", "title": "Late", "numbers": [1, 2.5, None, True]}


def call(**fields):
    defaults = {"key": "a", "intent": ToolIntent.RUN_SKILL, "phase": Phase.ANALYSIS, "fencing": 1, "started_at": NOW}
    defaults |= {"arguments": {}, "outcome": Outcome.SUCCESS, "settled_at": NOW, "digest": "d", "asked_digest": "d"}
    return ToolCall.objects.create(session=make_session(), **{**defaults, **fields})


def column(name, row):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CAST({name} AS text) FROM {row._meta.db_table} WHERE id = %s", [row.pk])
        return cursor.fetchone()[0]


def test_what_is_short_stays_in_its_column():
    row = call(arguments=SHORT, result={"text": "x" * 999})
    assert not SharedText.objects.exists()
    row.refresh_from_db()
    assert (row.arguments, row.result) == (SHORT, {"text": "x" * 999})
    assert ToolCall.objects.filter(arguments__severity="warn").exists()


def test_a_document_that_is_quoted_in_several_messages_is_stored_once():
    block = render_block("document", DOCUMENT, nonce="abcdefgh1234", id="1")
    asked = {"messages": [{"role": "user", "content": f"Check this.\n{block}\nAnswer in JSON."}]}
    fetched = {"chunks": [{"text": DOCUMENT}]}
    first, second = call(result=fetched), call(key="b", arguments=asked)
    message = Message.objects.create(
        session=first.session, seq=1, role="user", content=asked["messages"][0]["content"], created_at=NOW
    )
    assert SharedText.objects.filter(text=DOCUMENT).count() == 1
    assert sum(len(text) for text in SharedText.objects.values_list("text", flat=True)) < len(DOCUMENT) + 200
    assert all(len(column(*of)) < 1_000 for of in (("result", first), ("arguments", second), ("content", message)))
    for row in (first, second, message):
        row.refresh_from_db()
    assert (first.result, second.arguments) == (fetched, asked)
    assert message.content == asked["messages"][0]["content"]
    assert ToolCall.objects.values_list("arguments", flat=True).get(pk=second.pk) == asked


@pytest.mark.parametrize("size", [50_000, pytest.param(len(DOCUMENT), marks=pytest.mark.long)])
def test_a_run_stores_its_document_once_however_often_it_is_asked_about(size):
    scene, document = Scene(), DOCUMENT[:size]
    with model(reply()):
        session = run(scene.of_document(document))
    own = sum(len(column(name, row) or "") for row in session.tool_calls.all() for name in ("arguments", "result"))
    texts = sum(len(text) for text in SharedText.objects.values_list("text", flat=True))
    assert own + texts < 1.2 * len(document)


@pytest.mark.parametrize("border", [">>>\n", "\n<<<end abcdefgh>>>", "<<<document abcdefgh>>>\n"])
def test_a_text_full_of_borders_is_stored_and_read_by_few_statements(border, django_assert_max_num_queries):
    text = "".join(f"{number:x}{border}" for number in range(2_000))
    with django_assert_max_num_queries(6):  # its owner and its session, too
        row = call(result={"text": text, "again": text})
    shared_texts._kept.clear()
    with django_assert_max_num_queries(2):
        assert ToolCall.objects.get(pk=row.pk).result == {"text": text, "again": text}
    assert SharedText.objects.count() <= 50


def test_a_text_that_is_gone_is_an_error():
    row = call(result={"text": DOCUMENT})
    SharedText.objects.all().delete()
    shared_texts._kept.clear()
    with pytest.raises(SharedText.DoesNotExist, match="are gone"):
        row.refresh_from_db()


def test_text_that_is_deleted_before_its_use_is_noted_is_written_again(monkeypatch):
    stored(DOCUMENT)
    writes, real = [], shared_texts._insert

    def insert(rows, now):
        writes.append(len(rows))
        written = real(rows, now)
        if len(writes) == 1:
            SharedText.objects.all().delete()
        return written

    monkeypatch.setattr(shared_texts, "_insert", insert)
    value = stored({"text": DOCUMENT})
    assert writes == [1, 1]
    shared_texts._kept.clear()
    assert _restored(value) == {"text": DOCUMENT}


def test_texts_that_were_just_committed_are_not_stored_again(django_assert_num_queries):
    question, other = {"messages": [DOCUMENT, "short"]}, DOCUMENT[1:]
    with texts_stored(store_texts(question)):
        with django_assert_num_queries(0):
            value = stored(question)
        again = stored([DOCUMENT, other])
    shared_texts._kept.clear()
    assert (_restored(value), _restored(again)) == (question, [DOCUMENT, other])
    SharedText.objects.all().delete()
    stored(question)
    assert SharedText.objects.exists(), "only within"


PIECES = st.sampled_from([MARK, "x" * 1_200, "\n<<<end abcdefgh>>>", "<<<document abcdefgh>>>\n", " ", "é" * 400, ""])
TEXTS = st.lists(PIECES, max_size=5).map("".join)
VALUES = st.recursive(st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))


@given(value=VALUES)
def test_every_value_comes_back_as_it_was(value):
    assert _restored(stored(value)) == value
