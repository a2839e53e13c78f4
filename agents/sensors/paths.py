"""Paths of sensors: only below LQOPS_SENSOR_ROOTS, opened step by step, without following symbolic links."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Final

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PathRefused(Exception):
    """The path may not be read, or cannot be; the text says why."""


@contextmanager
def refused_errors() -> Iterator[None]:
    """Raise errors of the system as PathRefused, in words."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise PathRefused("the path contains a symbolic link, or something that is not a folder") from None
        raise PathRefused(f"it cannot be read: {error.strerror}") from None


def resolve_path(path: str, roots: Sequence[Path]) -> tuple[Path, tuple[str, ...]]:
    """Return the root of a path and the steps below it. A relative path is below the first root."""
    if not roots:
        raise PathRefused("no folder may be watched: LQOPS_SENSOR_ROOTS is empty")
    given = PurePath(path)
    if ".." in given.parts or "\0" in path:
        raise PathRefused("the path contains ..")
    if not given.is_absolute():
        return roots[0], given.parts
    for root in roots:
        if given.is_relative_to(root):
            return root, given.relative_to(root).parts
    raise PathRefused("the path is outside of the folders in LQOPS_SENSOR_ROOTS")


def missing_text(path: str, roots: Sequence[Path]) -> str:
    """Say that a path leads to nothing, with the whole of it."""
    root, steps = resolve_path(path, roots)
    return f"{root.joinpath(*steps)} does not exist now"


@contextmanager
def opened(root: Path, steps: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Open a path step by step below its root. The root is the operator's, and may contain links."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, step in enumerate(steps, 1):
            below = os.open(step, FILE_FLAGS if number == len(steps) else FOLDER_FLAGS, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle, steps[-1] if steps else root.name
    finally:
        os.close(handle)
