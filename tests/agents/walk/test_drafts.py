"""Drafts that a run saves: only when asked to, into its collection, and honest when that fails."""

import errno
from unittest.mock import patch

import pytest

from agents.enums import DocumentOrigin, Outcome, ToolIntent, TriggerKind
from agents.knowledge import documents
from agents.knowledge.documents import collection_delete
from agents.models import Attachment, Document
from tests.agents.walk.scene import intents, model, reply, run
from tests.factories import NOW, make_trigger

pytestmark = pytest.mark.django_db
DRAFT = {"name": "letter", "content": "# Dear landlord"}


def drafted(scene, *drafts, **params):
    with model(reply(artifacts=list(drafts or [DRAFT]))):
        return run(scene.of_document(**{"emit_artifacts": True, **params}))


def notes(session):
    known = {"Pays late", "Renews", "Ethics review: none flagged"}
    return [(one.severity, one.title) for one in session.findings.all() if one.title not in known]


def saved():
    return list(Document.objects.filter(origin=DocumentOrigin.ARTIFACT).values_list("name", "text"))


def test_a_draft_becomes_a_document_of_the_collection(scene):
    session = drafted(scene, collection=str(scene.collection.public_id))
    [document] = session.artifacts.all()
    assert (document.name, document.text) == ("letter.md", DRAFT["content"])
    assert Attachment.objects.filter(document=document, collection=scene.collection).exists()
    assert notes(session) == []
    assert ("drafting", "emit_artifact") in intents(session)
    assert "1 draft saved." in session.notifications.get().body


def test_a_draft_goes_into_the_collection_of_the_trigger(scene):
    trigger = make_trigger(owner=scene.owner, kind=TriggerKind.WATCH, collection=scene.collection)
    session = drafted(scene, trigger=trigger)
    assert Attachment.objects.get(document__session=session).collection == scene.collection


def test_drafts_that_nobody_asked_for_are_ignored(scene):
    session = drafted(scene, emit_artifacts=False, collection=str(scene.collection.public_id))
    assert (saved(), notes(session)) == ([], [])
    assert ("drafting", ToolIntent.EMIT_ARTIFACT) not in intents(session)


@pytest.mark.parametrize("deleted", [False, True])
def test_without_a_collection_one_note_says_so(scene, deleted):
    trigger = None
    if deleted:
        trigger = make_trigger(owner=scene.owner, kind=TriggerKind.WATCH, collection=scene.collection)
    session = scene.of_document(emit_artifacts=True, trigger=trigger)
    if deleted:
        collection_delete(collection=scene.collection, by=scene.owner, now=NOW)
    with model(reply(artifacts=[DRAFT, {"name": "b", "content": "two"}])):
        run(session)
    assert (saved(), notes(session)) == ([], [("info", "Drafts were not saved")])


def test_a_disk_that_fails_is_one_warning_and_no_row(scene, settings, tmp_path):
    session = scene.of_document(collection=str(scene.collection.public_id), emit_artifacts=True)
    settings.MEDIA_ROOT = tmp_path
    full = patch.object(documents, "_write", side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with full, model(reply(artifacts=[DRAFT, {"name": "b", "content": "two"}])):
        run(session)
    assert (saved(), notes(session)) == ([], [("warn", "Drafts could not be saved")])
    assert session.status == "completed"
    assert {one.outcome for one in session.tool_calls.filter(intent="emit_artifact")} == {Outcome.STORAGE_ERROR}
    assert "saved" not in session.notifications.get().body


def test_a_collection_that_is_gone_is_one_warning(scene):
    collection = str(scene.collection.public_id)
    session = scene.of_document(collection=collection, emit_artifacts=True)
    collection_delete(collection=scene.collection, by=scene.owner, now=NOW)
    with model(reply(artifacts=[DRAFT])):
        run(session)
    assert notes(session) == [("warn", "Drafts could not be saved")]


def test_a_draft_with_a_masked_secret_is_not_saved(scene):
    leaking = {"name": "keys", "content": "The key is AKIAIOSFODNN7EXAMPLE."}
    session = drafted(scene, leaking, collection=str(scene.collection.public_id))
    assert (saved(), notes(session)) == ([], [("warn", "Drafts could not be saved")])


@pytest.mark.long
def test_a_draft_that_is_too_long_is_cut_and_that_is_told(scene):
    session = drafted(scene, {"name": "long", "content": "word " * 200_001}, collection=str(scene.collection.public_id))
    assert notes(session) == [("info", "Drafts were cut")]
    assert len(session.artifacts.get().text) == 1_000_000
