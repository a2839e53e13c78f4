"""The files and folders that an isolated skill may read: the system's libraries and what Python imports from."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from django.conf import settings

# Programs, libraries and what they read. Not all of /etc: settings and keys of other programs are there.
_SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/sys/devices/system/cpu",
    *(f"/etc/{name}" for name in (
        "alternatives", "fonts", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types",
        "nsswitch.conf", "passwd", "pki", "ssl", "timezone",
    )),
    *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")),
)  # fmt: skip
_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULES: Final = (".py", ".pyc", ".so", ".zip", ".egg")


def search_path() -> list[str]:
    """Return the folders that Python imports from, with the one of lqops."""
    return list(dict.fromkeys(str(Path(place).absolute()) for place in (str(_ROOT), *filter(None, sys.path))))


def readable_places(module: str) -> list[str]:
    """Return what a skill of this module may read; a folder stands for all in it. Nothing private is in them."""
    private = private_places()
    roots = [Path(place).resolve() for place in (*_SYSTEM, sys.prefix, sys.base_prefix, *_package_places(module))]
    found = [str(part) for root in roots for part in _without(root, private)]
    for place in search_path():
        root = Path(place).resolve()
        if not any(root.is_relative_to(known) for known in roots):
            found += [str(part) for part in _importable(root, private)]
    return found


def _package_places(module: str) -> list[str]:
    """Return where the package of a module is: it may be installed from a folder that is not on the search path."""
    package = sys.modules.get(module.partition(".")[0])
    file = getattr(package, "__file__", None)
    return list(getattr(package, "__path__", [file] if file else []))


def without_private(folders: Iterable[str]) -> list[str]:
    """Return folders that a skill declares, less what is private in them."""
    private = private_places()
    return [str(part) for folder in folders for part in _without(Path(folder).resolve(), private)]


def private_places() -> list[Path]:
    """Return where lqops keeps its keys, its database and its documents."""
    databases = [str(found["NAME"]) for found in settings.DATABASES.values() if "sqlite" in found["ENGINE"]]
    named = [value for name, value in os.environ.items() if name.startswith("LQOPS_") and name.endswith("_FILE")]
    own: list[str | Path] = [settings.VAR_DIR, settings.MEDIA_ROOT, settings.LQOPS_CHECKPOINT_FILE]
    return [Path(place).resolve() for place in (*own, *databases, *filter(None, named))]


def _without(root: Path, private: Iterable[Path]) -> Iterator[Path]:
    """Yield a place, or its parts if something in it is private."""
    inside = [place for place in private if place.is_relative_to(root)]
    if not inside:
        yield root
    elif root not in inside:
        for part in _parts(root):
            if not part.is_symlink():
                yield from _without(part, inside)


def _importable(root: Path, private: list[Path]) -> Iterator[Path]:
    """Yield the modules and packages of a folder that Python imports from; other files there are nobody's business."""
    if root.is_file():
        yield from _without(root, private)
    for part in _parts(root):
        if part.suffix in _MODULES or (part.name.isidentifier() and _is_package(part)):
            yield from _without(part.resolve(), private)


def _is_package(folder: Path) -> bool:
    """Tell whether Python can import from a folder: it holds modules, or folders with modules."""
    return any(folder.glob("*.py")) or any(folder.glob("*/*.py"))


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
