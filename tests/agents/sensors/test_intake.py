"""Files dropped into a watched folder become documents of a collection, and start the runs that watch it."""

import os
import time

import pytest
import yaml

from agents.conf import clock
from agents.enums import TriggerKind
from agents.knowledge import documents
from agents.knowledge.documents import document_add
from agents.models import AgentSession, Attachment, Collection, Document
from agents.roster.files import agent_import
from agents.sensors import intake
from tests.agents.sensors.scene import Scene, running_slice, sensor
from tests.agents.triggers.rows import make_playbook
from tests.factories import make_trigger, make_user
from tests.flows.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def inbox(tmp_path, settings, monkeypatch):
    settings.MEDIA_ROOT = tmp_path / "media"
    monkeypatch.setattr(intake, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr("agents.sensors.watch.SETTLE_SECONDS", 0.1)
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def dropping():
    return sensor("feed", "watch", {"path": "inbox", "into": "Contracts"}, ["files"], ())


def make_scene(*given):
    scene = Scene(*(given or (dropping(),)), fields={"files": "array"})
    Collection.objects.create(owner=scene.agent.owner, name="Contracts", created_at=clock())
    return scene


def names():
    attached = Attachment.objects.filter(collection__name="Contracts", detached_at__isnull=True)
    return sorted(attached.values_list("document__name", flat=True))


def test_files_become_documents_once(inbox):
    (inbox / "before.txt").write_text("Here before the sensor.")
    scene = make_scene()
    with running_slice():
        until(lambda: names() == ["before.txt"])
        (inbox / "contract.txt").write_text("The supplier is liable.")
        (inbox / ".hidden.txt").write_text("no")
        (inbox / "half.pdf.part").write_text("no")
        until(lambda: len(names()) == 2)
    with running_slice():
        (inbox / "copy.txt").write_text("The supplier is liable.")
        until(lambda: "copy.txt" in str(scene.value("files")))

    assert names() == ["before.txt", "contract.txt"], "the same bytes are the same document"
    change = next(one for one in scene.value("files") if one["name"] == "contract.txt")
    assert change["document"] == str(Document.objects.get(name="contract.txt").public_id)


def test_file_that_is_dropped_under_a_new_name_runs_under_that_name(inbox):
    """The owner has the same bytes elsewhere, under an old name."""
    scene = make_scene()
    owner, contracts = scene.agent.owner, Collection.objects.get(name="Contracts")
    document_add(owner=owner, name="old.txt", data=b"The supplier is liable.", by=None, now=clock())
    make_trigger(owner=owner, kind=TriggerKind.WATCH, collection=contracts, playbook=make_playbook(owner=owner))
    with running_slice():
        (inbox / "lease 2027.txt").write_text("The supplier is liable.")
        until(lambda: AgentSession.objects.filter(trigger_kind=TriggerKind.WATCH).exists())
    run = AgentSession.objects.get(trigger_kind=TriggerKind.WATCH)
    assert names() == ["lease 2027.txt"]
    assert Document.objects.get(public_id=run.spec.document).name == "lease 2027.txt"


def test_file_that_is_still_written_is_added_when_it_is_complete(inbox):
    scene = make_scene()
    with running_slice():
        until(lambda: scene.sensor().read_at)
        path = inbox / "slow.txt"
        for number in range(6):
            with path.open("a") as file:
                file.write(f"part {number}\n")
            time.sleep(0.15)
        until(lambda: names() == ["slow.txt"])

    [document] = Document.objects.all()
    assert document.text.count("part") == 6


def test_file_that_cannot_be_read_is_a_problem_of_its_own(inbox):
    scene = make_scene()
    (inbox / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(100))
    (inbox / "fine.txt").write_text("Fine.")
    with running_slice():
        until(lambda: names() == ["fine.txt"] and scene.errors())

    assert "photo.jpg was not added" in scene.errors()[0]


def test_full_disk_leaves_the_file_for_the_next_look(inbox, monkeypatch):
    scene = make_scene()
    full = {"is": True}
    store = documents.bytes_store

    def stored(data, *, digest):
        if full["is"]:
            raise documents.StorageFailed("The disk is full.")
        return store(data, digest=digest)

    monkeypatch.setattr(documents, "bytes_store", stored)
    (inbox / "a.txt").write_text("A contract.")
    os.utime(inbox / "a.txt", (1, 1))
    with running_slice():
        until(scene.errors)
        full["is"] = False
        until(lambda: names() == ["a.txt"])

    assert scene.errors() == ["a.txt could not be added: The disk is full."], "reported once"


def test_missing_collection_is_an_error_that_says_what_to_do(inbox):
    scene = Scene(dropping(), fields={"files": "array"})
    (inbox / "a.txt").write_text("A contract.")
    with running_slice(time_scale=0.1):
        until(lambda: scene.sensor().failures)

    assert "has no collection 'Contracts': create it" in scene.sensor().problem


def test_definition_creates_the_collection_and_a_dropped_file_is_reviewed(inbox):
    owner = make_user()
    make_playbook(owner, name="NDA")
    trigger = {"name": "Review", "kind": "watch", "collection": "Contracts", "playbook": "NDA"}
    text = {"name": "Clerk", "sensors": [dropping()], "triggers": [trigger]}
    written = agent_import(owner=owner, text=yaml.safe_dump(text), by=None, now=clock())
    assert "Collection 'Contracts' created." in written.messages

    (inbox / "nda.txt").write_text("This agreement is confidential.")
    os.utime(inbox / "nda.txt", (1, 1))
    taken = intake.take_in("inbox", "Contracts", ["nda.txt"], agent_id=written.agent.pk)

    assert list(taken.added) == ["nda.txt"]
    until(lambda: AgentSession.objects.filter(trigger__kind=TriggerKind.WATCH).exists())
