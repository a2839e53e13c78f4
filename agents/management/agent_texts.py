"""agent.yaml files on disk: the ones that paths name, in order, and what stands in them."""

from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Final

from django.core.management.base import CommandError

from agents.definitions.schema import Problem
from agents.text.strict_yaml import MAX_BYTES
from audit.management.base import cut

ENDINGS: Final = frozenset({".yaml", ".yml"})


def agent_paths(paths: Iterable[Path]) -> list[Path]:
    """Files as they are named; of a folder all its YAML files, by name."""
    found: list[Path] = []
    for path in paths:
        if not _is_folder(path):
            found.append(path)
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix in ENDINGS and one.is_file())
        if not inside:
            raise CommandError(f"There is no YAML file in {path}.")
        found += inside
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no file can have; reading it says why
        return False


def agent_text(path: Path) -> str | Problem:
    """What the file says, or why it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            return Problem(str(path), 0, "", "a file: this is none")
        with path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Problem(str(path), 0, "", f"at most {MAX_BYTES} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        return Problem(cut(str(path)), 0, "", f"a file that can be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Problem(str(path), 0, "", f"UTF-8 text: byte {error.start} makes no character")


def counted(found: Sized, one: str) -> str:
    """How many there are: 1 file, 2 files."""
    return f"{len(found)} {one}{'' if len(found) == 1 else 's'}"
