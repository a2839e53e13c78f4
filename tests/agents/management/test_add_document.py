"""`add_document`: add files to a collection."""

import json
import os

import pytest
from django.core.management import CommandError, call_command

from agents.models import Attachment, Collection, Document
from agents.text.formats.limits import MAX_BYTES
from audit.models import AuditEvent
from tests.agents.knowledge.samples import make_collection
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user(username="ada")


@pytest.fixture
def files(tmp_path):
    def make(**contents):
        places = []
        for name, data in contents.items():
            place = tmp_path / f"{name}.txt"
            place.write_bytes(data)
            places.append(str(place))
        return places

    return make


def run(capsys, *arguments):
    call_command("add_document", *arguments)
    return capsys.readouterr().out


def test_files_go_into_the_collection(owner, files, capsys):
    collection = make_collection(owner)
    places = files(one=b"first", two=b"second")
    out = run(capsys, *places, "--collection", "contracts", "--owner", "ada")

    assert sorted(collection.attachments.values_list("document__name", flat=True)) == ["one.txt", "two.txt"]
    assert [line.split(": ")[1].split(".")[0] for line in out.splitlines()] == ["added", "added"]
    assert AuditEvent.objects.get(kind="document.added", details__size=5).actor == "system"


def test_known_file_is_reported_as_known(owner, files, capsys):
    make_collection(owner)
    places = files(one=b"same", two=b"same")
    out = run(capsys, *places, "--collection", "contracts", "--owner", "ada", "--json")

    answer = json.loads(out)
    document = Document.objects.get()
    assert answer["collection_id"] == str(Collection.objects.get().public_id)
    assert [entry["outcome"] for entry in answer["files"]] == ["added", "known"]
    assert {entry["document_id"] for entry in answer["files"]} == {str(document.public_id)}
    assert Attachment.objects.count() == 1


def test_collection_is_created_only_with_create(owner, files, capsys):
    [place] = files(one=b"first")
    with pytest.raises(CommandError, match="--create creates it"):
        run(capsys, place, "--collection", "new", "--owner", "ada")
    assert not Collection.objects.exists()
    run(capsys, place, "--collection", "new", "--owner", "ada", "--create")
    run(capsys, place, "--collection", "new", "--owner", "ada", "--create")
    assert Collection.objects.get().owner == owner


def test_unreadable_file_is_reported_and_others_added(owner, files, capsys, tmp_path):
    make_collection(owner)
    good, bad = files(good=b"words", bad=bytes(1_000))
    absent = str(tmp_path / "absent.txt")
    with pytest.raises(CommandError, match=r"3 of 4 files were not added: .*bad\.txt, .*absent\.txt, "):
        run(capsys, good, bad, absent, str(tmp_path), "--collection", "contracts", "--owner", "ada")
    out = capsys.readouterr().out
    assert "good.txt: added" in out
    assert "bad.txt: refused. It is not text" in out
    assert "absent.txt: refused. No such file or directory" in out
    assert Document.objects.get().name == "good.txt"


def test_pipe_is_refused_and_does_not_block(owner, capsys, tmp_path):
    make_collection(owner)
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(CommandError):
        run(capsys, str(tmp_path / "pipe.txt"), "--collection", "contracts", "--owner", "ada")
    assert "pipe.txt: refused. It is not a regular file." in capsys.readouterr().out


def test_too_long_file_is_not_read_completely(owner, capsys, tmp_path):
    make_collection(owner)
    place = tmp_path / "long.txt"
    with place.open("wb") as file:
        file.truncate(MAX_BYTES * 1_000)
    with pytest.raises(CommandError):
        run(capsys, str(place), "--collection", "contracts", "--owner", "ada")
    assert "longer than 20,000,000 bytes" in capsys.readouterr().out


def test_audit_log_names_the_user(owner, files, capsys):
    make_collection(owner)
    run(capsys, *files(one=b"words"), "--collection", "contracts", "--owner", "ada", "--user", "ada")
    assert AuditEvent.objects.get(kind="document.added").actor == f"user:{owner.pk}"


def test_another_user_cannot_add_for_the_owner(owner, files, capsys):
    make_collection(owner)
    make_user(username="eve")
    [place] = files(one=b"words")
    with pytest.raises(CommandError, match="1 of 1"):
        run(capsys, place, "--collection", "contracts", "--owner", "ada", "--user", "eve")
    with pytest.raises(CommandError, match="nothing of that kind"):
        run(capsys, place, "--collection", "new", "--owner", "ada", "--user", "eve", "--create")
    with pytest.raises(CommandError, match="no user 'nobody'"):
        run(capsys, place, "--collection", "new", "--owner", "nobody")
    assert not Document.objects.exists()
