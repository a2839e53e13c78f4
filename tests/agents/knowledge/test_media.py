"""Bytes on disk: complete or absent, private, and written once."""

import errno
import hashlib
import os
import stat

import pytest

from agents.exceptions import StorageFailed
from agents.knowledge import documents
from agents.knowledge.documents import bytes_path, bytes_store
from tests.agents.knowledge.samples import files_under

DATA = b"the bytes of a document"
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_path_is_the_digest_in_two_levels_of_folders(media):
    place = bytes_store(DATA, digest=DIGEST)

    assert place == bytes_path(DIGEST) == media / DIGEST[:2] / DIGEST[2:4] / DIGEST
    assert place.read_bytes() == DATA
    assert files_under(media) == [place]


def test_stored_files_are_private(media):
    before = os.umask(0)
    try:
        place = bytes_store(DATA, digest=DIGEST)
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) & 0o077 == 0


def test_existing_bytes_are_not_written_again(media):
    place = bytes_store(DATA, digest=DIGEST)
    before = place.stat().st_ino
    bytes_store(DATA, digest=DIGEST)
    assert place.stat().st_ino == before


def test_file_of_another_length_is_replaced(media):
    place = bytes_store(DATA, digest=DIGEST)
    place.write_bytes(DATA[:5])
    assert bytes_store(DATA, digest=DIGEST).read_bytes() == DATA


@pytest.mark.parametrize("step", ["fsync", "fdopen", "open"])
def test_failed_write_leaves_no_file(media, monkeypatch, step):
    def full(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(documents.os, step, full)
    with pytest.raises(StorageFailed, match="No space left on device"):
        bytes_store(DATA, digest=DIGEST)
    monkeypatch.undo()
    assert files_under(media) == []


def test_file_is_synced_before_it_is_named(media, monkeypatch):
    order = []
    real_sync, real_replace = os.fsync, documents.Path.replace
    monkeypatch.setattr(documents.os, "fsync", lambda fd: order.append("sync") or real_sync(fd))
    monkeypatch.setattr(documents.Path, "replace", lambda old, new: order.append("name") or real_replace(old, new))
    bytes_store(DATA, digest=DIGEST)
    assert order == ["sync", "name", "sync", "sync", "sync"]  # the file; its name; the folders that hold the name
