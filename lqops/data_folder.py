"""Where an installation keeps its database, keys and files.

In this order: LQOPS_VAR_DIR; `var` beside manage.py in a clone; `var` in the current folder, if it holds data of lqops;
`lqops` in the user's data folder. Never beside installed packages: an upgrade, or a cleaned cache, would delete it.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Made at the first start, under names that no other program uses
SIGNS_OF_DATA: Final = ("lqops.sqlite3", "audit_key", "webhook_key")
_NAMES_LQOPS: Final = re.compile(r'^name = "lqops"$', re.MULTILINE)


@dataclass(frozen=True)
class DataFolder:
    """The folder; data of an earlier version that is not used; and why nothing may start like this."""

    path: Path
    unused: Path | None = None
    fault: str = ""


def data_folder(values: Mapping[str, str], *, code: Path) -> DataFolder:
    """Decide on the folder; `code` is the folder that holds the package lqops. Creates nothing.

    It is a fault if only the folder of an earlier version, beside the installed packages, holds data.
    """
    named = values.get("LQOPS_VAR_DIR")
    if is_clone(code):
        return DataFolder(Path(named).absolute() if named else code / "var")
    beside = code / "var"
    chosen = DataFolder(Path(named).absolute()) if named else _for_an_installed_package(values)
    if chosen.fault or chosen.path == beside or not holds_data(beside):
        return chosen
    fault = "" if named or holds_data(chosen.path) else _left_behind(beside, chosen.path)
    return DataFolder(chosen.path, unused=beside, fault=fault)


def is_clone(code: Path) -> bool:
    """True for the source: the pyproject.toml of lqops is there, and no installer's note that it put the code there."""
    try:
        project = (code / "pyproject.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return bool(_NAMES_LQOPS.search(project)) and not any(code.glob("lqops-*.dist-info"))


def holds_data(folder: Path) -> bool:
    return any((folder / name).exists() for name in SIGNS_OF_DATA)


def move_command(old: Path, new: Path) -> str:
    return f"mkdir -p {shlex.quote(str(new))} && mv {shlex.quote(str(old))}/* {shlex.quote(str(new))}/"


def _left_behind(old: Path, new: Path) -> str:
    return (
        f"an earlier version of lqops kept its data in {old}, beside the installed packages, where an upgrade can "
        f"delete it. Stop all its processes and move it: {move_command(old, new)}  (LQOPS_VAR_DIR="
        f"{shlex.quote(str(old))} uses it where it is.)"
    )


def _for_an_installed_package(values: Mapping[str, str]) -> DataFolder:
    here = Path("var")
    if holds_data(here):
        here = here.absolute()
        if here.stat().st_uid == os.geteuid():
            return DataFolder(here)
        # A user who may write to a shared folder must not choose the keys of others who work there.
        return DataFolder(
            here,
            fault=f"{here} holds data of lqops and belongs to another user. To use it, set LQOPS_VAR_DIR="
            f"{shlex.quote(str(here))}; otherwise start in another folder.",
        )
    shared = values.get("XDG_DATA_HOME", "")
    if Path(shared).is_absolute():  # the specification says to ignore any other
        return DataFolder(Path(shared, "lqops"))
    try:
        return DataFolder(Path.home() / ".local/share/lqops")
    except RuntimeError:
        return DataFolder(here, fault="this user has no home folder: set LQOPS_VAR_DIR to a folder for the data.")
