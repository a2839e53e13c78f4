"""Files for the owner alone: the var folder, its documents and secrets, and the file of an embedded database.

An existing installation is tightened at start. Where the file system does not support modes, its own rules apply.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")


def private_process() -> None:
    """Make every file that this process or its children create private. Each entry point calls it first."""
    os.umask(OTHERS)


def private_folder(folder: Path) -> Path:
    """Make a folder private, and create it if needed. A folder that cannot be created fails where it is used."""
    with suppress(OSError):
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _tighten(folder, FOLDER_MODE)
    return folder


def private_database(name: str) -> None:
    """Make an existing SQLite file private, and the files that SQLite keeps beside it."""
    path = Path(name)
    for suffix in SQLITE_SUFFIXES:
        with suppress(OSError):
            _tighten(path.with_name(path.name + suffix), FILE_MODE)


def make_secret(path: Path) -> None:
    """Create a file with a random secret unless it exists. Processes that start together agree on one value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=FILE_MODE)
        draft.write_text(secrets.token_urlsafe(48), encoding="utf-8")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()


def _tighten(path: Path, mode: int) -> None:
    current = stat.S_IMODE(path.stat().st_mode)
    if current & ~mode:
        path.chmod(current & mode)
