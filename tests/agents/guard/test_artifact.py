"""emit_artifact: a draft becomes a real document that wakes nobody; what keeps it from being saved is said."""

import pytest

from agents.enums import DocumentOrigin, Outcome, Phase, ToolIntent, TriggerKind
from agents.exceptions import OpenTransaction, ToolNotGranted
from agents.guard import guarded_tool_call, intents
from agents.knowledge import documents
from agents.knowledge.documents import bytes_path, collection_delete, document_attach, document_delete, document_detach
from agents.knowledge.search import search_chunks
from agents.models import AgentSession, Attachment, Chunk, Document, ToolCall
from audit.models import AuditEvent
from tests.agents.knowledge.samples import files_under, make_collection, make_document
from tests.factories import NOW, make_session, make_trigger, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db
CONTENT = "# Redline\r\n\r\nThe term should be **twelve** months."


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def collection(owner):
    return make_collection(owner)


@pytest.fixture
def emit(owner):
    session = make_session(owner=owner, current_phase=Phase.DRAFTING)

    def call(collection, content=CONTENT, name="redline", key=""):
        params = {"collection": str(collection.public_id) if collection else None, "name": name, "content": content}
        return guarded_tool_call(session, ToolIntent.EMIT_ARTIFACT, params, key=key, now=NOW)

    call.session = session
    return call


def stored(result):
    assert result.outcome == Outcome.SUCCESS, result.error
    assert result.data["stored"], result.data
    return Document.objects.get(public_id=result.data["document_id"])


def test_a_draft_is_a_real_document_of_its_owner(owner, collection, emit):
    result = emit(collection)
    document = stored(result)

    assert (document.owner, document.session, document.origin) == (owner, emit.session, DocumentOrigin.ARTIFACT)
    assert (document.name, document.media_type) == ("redline.md", "text/markdown")
    assert document.text == CONTENT.replace("\r\n", "\n")
    assert bytes_path(document.digest).read_bytes().decode() == document.text
    assert document.size == len(document.text)
    assert document.attachments.get().collection == collection
    assert [hit.document_id for hit in search_chunks(owner_id=owner.pk, query="redline")] == [document.pk]
    assert result.data == {
        "stored": True,
        "document_id": str(document.public_id),
        "collection_id": str(collection.public_id),
        "name": "redline.md",
        "chars": len(CONTENT),
        "truncated": False,
        "is_new": True,
    }
    assert result.cost_usd == 0


def test_the_record_names_the_session_and_holds_no_content(collection, emit):
    document = stored(emit(collection, "canary words"))

    added = AuditEvent.objects.get(kind="document.added")
    assert added.actor == f"session:{emit.session.public_id}"
    assert added.details["session_id"] == str(emit.session.public_id)
    assert (added.details["origin"], added.details["document_id"]) == ("artifact", str(document.public_id))
    outcomes = AuditEvent.objects.filter(chain=emit.session.chain).values_list("details__outcome", flat=True)
    assert list(outcomes.order_by("seq")) == ["started", "success"]
    assert "canary" not in str(list(AuditEvent.objects.values()))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("../../etc/cron.d/evil", "evil.md"),
        ("plan.MD", "plan.MD"),
        ("a\x00b", "a\ufffdb.md"),
        ("", "document.md"),
        ("x" * 300, "x" * 251 + "….md"),
    ],
)
def test_the_name_is_made_fit_and_given_its_suffix(collection, emit, name, found):
    assert stored(emit(collection, name=name)).name == found
    assert len(found) <= 255


def test_a_draft_without_a_name_has_one(owner, collection, emit):
    params = {"collection": str(collection.public_id), "content": "words"}
    result = guarded_tool_call(emit.session, ToolIntent.EMIT_ARTIFACT, params, now=NOW)
    assert stored(result).name == "draft.md"


def test_a_draft_that_is_too_long_is_truncated_and_flagged(collection, emit, monkeypatch):
    assert intents.MAX_CHARS == 1_000_000
    monkeypatch.setattr(intents, "MAX_CHARS", 10_000)
    result = emit(collection, "x" * (intents.MAX_CHARS + 5))
    assert len(stored(result).text) == intents.MAX_CHARS
    assert (result.data["truncated"], result.data["chars"]) == (True, 10_000)
    assert not emit(collection, "y" * intents.MAX_CHARS).data["truncated"]


def test_a_draft_that_looks_like_another_format_is_kept_as_it_is(collection, emit):
    for content in ("%PDF-1.4 is how it begins", "<html><script>x()</script></html>", "{\\rtf1 is not RTF"):
        assert stored(emit(collection, content)).text == content


# --- It wakes nobody ---


@pytest.mark.django_db(transaction=True)
def test_a_draft_fires_no_watch_now_or_later():
    owner = make_user()
    collection = make_collection(owner)
    make_trigger(owner=owner, kind=TriggerKind.WATCH, collection=collection)
    session = make_session(owner=owner, current_phase=Phase.DRAFTING)
    params = {"collection": str(collection.public_id), "name": "n", "content": "words"}

    document = stored(guarded_tool_call(session, ToolIntent.EMIT_ARTIFACT, params, now=NOW))

    assert Attachment.objects.get().watches_fired_at == NOW
    document_detach(document=document, collection=collection, by=owner, now=NOW)
    document_attach(document=document, collection=collection, by=owner, now=NOW)
    assert not Attachment.objects.filter(watches_fired_at=None).exists()
    assert AgentSession.objects.count() == 1
    make_document(owner, "uploaded", collection=collection)
    assert AgentSession.objects.count() == 2  # the watch is awake


def test_a_draft_outlives_its_session(collection, emit):
    document = stored(emit(collection))
    ToolCall.objects.all().delete()
    AgentSession.objects.filter(pk=emit.session.pk).delete()
    document.refresh_from_db()
    assert (document.session, document.deleted_at) == (None, None)


# --- What keeps it from being saved ---


def test_without_a_collection_the_result_says_so(emit, media):
    result = emit(None)
    assert result.outcome == Outcome.SUCCESS
    assert result.data == {"stored": False, "reason": "no_collection", "truncated": False}
    assert not Document.objects.exists()
    assert files_under(media) == []


def test_a_storage_failure_leaves_no_row_and_is_told_to_the_run(collection, emit, settings, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    settings.MEDIA_ROOT = blocked
    result = emit(collection)

    assert (result.outcome, result.data) == (Outcome.STORAGE_ERROR, None)
    assert result.error.startswith("The document could not be stored")
    outcomes = AuditEvent.objects.filter(chain=emit.session.chain).order_by("seq")
    assert [row.details["outcome"] for row in outcomes] == ["started", "storage_error"]
    assert (Document.objects.count(), Chunk.objects.count(), Attachment.objects.count()) == (0, 0, 0)
    assert not AuditEvent.objects.filter(kind__startswith="document.").exists()


def test_rows_that_cannot_be_written_leave_none_behind(collection, emit, monkeypatch):
    def broken(*args, **more):
        raise RuntimeError("the row is refused")

    monkeypatch.setattr(documents, "_attach", broken)
    assert emit(collection).outcome == Outcome.ERROR
    assert (Document.objects.count(), Chunk.objects.count()) == (0, 0)


def test_a_collection_of_somebody_else_or_a_deleted_one_takes_nothing(owner, collection, emit, media):
    collection_delete(collection=collection, by=owner, now=NOW)
    for target in (make_collection(make_user()), collection):
        result = emit(target)
        assert (result.outcome, "NotFound" in result.error) == (Outcome.ERROR, True)
    assert not Document.objects.exists()
    assert files_under(media) == []


@every_row(
    ("params", "says"),
    [
        ({}, "'content' is missing"),
        ({"content": 5}, "must be text"),
        ({"content": " \n"}, "is empty"),
        ({"content": "x", "collection": "nowhere"}, "must be a public id"),
        ({"content": "x", "collection": 5}, "must be text"),
    ],
)
def test_parameters_that_make_no_sense_are_explained(emit, params, says):
    result = guarded_tool_call(emit.session, ToolIntent.EMIT_ARTIFACT, params, now=NOW)
    assert (result.outcome, says in result.error) == (Outcome.ERROR, True)


# --- Again ---


def test_the_same_draft_again_is_the_same_document(collection, emit, media):
    first, again = emit(collection), emit(collection)
    assert first.data["document_id"] == again.data["document_id"]
    assert (first.data["is_new"], again.data["is_new"]) == (True, False)
    assert (Document.objects.count(), Attachment.objects.count(), len(files_under(media))) == (1, 1, 1)


def test_a_call_that_was_lost_in_flight_may_be_repeated(collection, emit):
    """A worker that died after the rows were written: the call is open, is closed as lost, and is made again."""
    first = emit(collection, key="draft:1")
    ToolCall.objects.update(outcome=Outcome.WORKER_LOST, result=None)
    again = emit(collection, key="draft:1")

    assert not again.replayed
    assert again.data["document_id"] == first.data["document_id"]
    assert ToolCall.objects.order_by("pk").last().repeatable
    assert Document.objects.count() == 1


def test_a_deleted_draft_may_be_written_again(owner, collection, emit):
    document_delete(document=stored(emit(collection)), by=owner, now=NOW)
    emit(collection)
    assert Document.objects.filter(deleted_at=None).count() == 1


def test_an_upload_of_the_same_bytes_is_a_document_of_its_own(owner, collection, emit):
    draft = stored(emit(collection, "words"))
    upload = make_document(owner, "words", collection=collection)
    assert (upload.origin, upload.digest) == (DocumentOrigin.UPLOAD, draft.digest)
    assert upload.pk != draft.pk


# --- Under the guard ---


def test_only_drafting_may_write_drafts(owner, collection):
    for phase in (Phase.INTAKE, Phase.ANALYSIS, Phase.ETHICS_REVIEW, Phase.DELIVERY, Phase.TURN):
        session = make_session(owner=owner, current_phase=phase)
        params = {"collection": str(collection.public_id), "content": "words"}
        with pytest.raises(ToolNotGranted):
            guarded_tool_call(session, ToolIntent.EMIT_ARTIFACT, params, now=NOW)
    assert not Document.objects.exists()


def test_a_draft_with_a_secret_is_refused(collection, emit):
    result = emit(collection, "The password is: password=Tr0ub4dor&3x9Q")
    assert (result.outcome, result.detail) == (Outcome.DENIED, "secret_in_arguments")
    assert not Document.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_no_transaction_may_be_open_while_bytes_are_written():
    from django.db import transaction

    owner = make_user()
    session = make_session(owner=owner, current_phase=Phase.DRAFTING)
    with transaction.atomic(), pytest.raises(OpenTransaction):
        guarded_tool_call(session, ToolIntent.EMIT_ARTIFACT, {"content": "words"}, now=NOW)
