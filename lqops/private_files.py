"""What lqops keeps is its owner's alone: the var folder, the documents in it, and the file of an embedded database.

An installation that is already there is tightened when it is started. A system or disk that does not let modes be set
is left as it is: who may use the folder is then decided there.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
BESIDE: Final = ("", "-wal", "-shm", "-journal")


def private_process() -> None:
    """From now on nothing that this process or its children make is for others; each way in calls it first."""
    os.umask(OTHERS)


def private_folder(folder: Path) -> Path:
    """The folder, made if need be; what cannot be made is found by whoever uses it."""
    with suppress(OSError):
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _tighten(folder, FOLDER_MODE)
    return folder


def private_database(name: str) -> None:
    """The file of an embedded database and what SQLite puts beside it, where they are already there."""
    path = Path(name)
    for ending in BESIDE:
        with suppress(OSError):
            _tighten(path.with_name(path.name + ending), FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    held = stat.S_IMODE(path.stat().st_mode)
    if held & ~mode:
        path.chmod(held & mode)
