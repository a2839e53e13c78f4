"""The bytes of documents on disk, under their digest. A file that is there is whole, and is never written again.

Bytes go to disk before any row speaks of them: a row without its bytes cannot come about, a file without a row can, and
does no harm.
"""

import contextlib
import os
import uuid
from pathlib import Path

from django.conf import settings

from agents.exceptions import StorageFailed

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def bytes_place(digest: str) -> Path:
    return Path(settings.MEDIA_ROOT) / digest[:2] / digest[2:4] / digest


def bytes_store(data: bytes, *, digest: str) -> Path:
    """On disk when this returns, also after a power cut. Raises StorageFailed."""
    place = bytes_place(digest)
    try:
        if place.exists() and place.stat().st_size == len(data):
            return place
        place.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _write(place, data)
    except OSError as error:
        raise StorageFailed(
            f"The document could not be stored ({error.strerror or type(error).__name__}): make room on the disk, or "
            "make the media folder writable, and add it again."
        ) from error
    return place


def _write(place: Path, data: bytes) -> None:
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        _sync_folders(place)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _sync_folders(place: Path) -> None:
    """A new name is on disk only when its folder is, and a new folder only when the one above it is."""
    for folder in list(place.parents)[:3]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
