"""Reads prompt skills: folders with a SKILL.md in the open Agent Skills format. Never runs a file.

Reads only below a root: every folder and file is opened by descriptor, and symbolic links are not followed, so
replacing a file between check and read leads nowhere else. Every error names the file and the limit.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from agents.definitions.loader import lines_of, require_valid
from agents.definitions.schema import Section
from agents.definitions.values import listed, text
from agents.exceptions import Invalid
from agents.text.strict_yaml import UNSTORABLE, Node, read_yaml

SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_BYTES: Final = 256 * 1024
MAX_FILES: Final = 100
MAX_FOLDERS: Final = 100
MAX_DEPTH: Final = 8
MAX_BYTES: Final = 5 * 1024 * 1024
NAME_CHARS: Final = 64
DESCRIPTION_CHARS: Final = 1_024
COMPATIBILITY_CHARS: Final = 500
_OR_EMPTY = BeforeValidator(lambda value: "" if value is None else value)
Words = Annotated[str, text(MAX_SKILL_BYTES, lines=True, needed=False), _OR_EMPTY]
Tool = Annotated[str, text(MAX_SKILL_BYTES, what="the name of a tool", lines=True, needed=False)]

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FENCE: Final = "---"
# O_NONBLOCK: opening a pipe does not block; it is refused later.
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class SkillFiles:
    """A skill as its files define it. The digest covers every file of the folder."""

    name: str
    description: str
    front_matter: Mapping[str, object]
    body: str
    folder: str
    digest: str


def skill_names(root: Path) -> list[str]:
    """Return the folders in a root, including links, so that links are refused instead of skipped."""
    try:
        with os.scandir(root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
            )
    except OSError as error:
        raise Invalid(f"{root}: cannot be read: {error.strerror}.") from None


def read_skill(root: Path, name: str) -> SkillFiles:
    """Read the skill in the folder `name` of a root."""
    folder = root / name
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS:
        raise Invalid(
            f"{root}: {name!a} is not a skill name: 1 to {NAME_CHARS} lower-case letters, digits and single hyphens."
        )
    files = _Files(folder)
    try:
        with _opened(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as parent:
            files.read_folder(parent, name, "", depth=1)
    except OSError as error:
        raise Invalid(f"{folder}: cannot be read: {error.strerror}.") from None
    if files.skill is None:
        raise Invalid(f"{folder}: there is no {SKILL_FILE}.")
    front, body = _split(folder / SKILL_FILE, files.skill)
    return SkillFiles(name, str(front["description"]), front, body, str(folder), files.digest())


class _Files:
    """The files of one folder that were read so far, and their limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skill: bytes | None = None
        self._digests: dict[bytes, str] = {}
        self._folders = 0
        self._bytes = 0

    def digest(self) -> str:
        """Return a digest of sorted paths and file digests. Paths contain no NUL, so it is unambiguous."""
        lines = (path + b"\0" + self._digests[path].encode() + b"\n" for path in sorted(self._digests))
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def read_folder(self, parent: int, name: str, path: str, *, depth: int) -> None:
        full_path = self.folder / path
        self._folders += 1
        if self._folders > MAX_FOLDERS or depth > MAX_DEPTH:
            raise Invalid(f"{full_path}: a skill may have at most {MAX_FOLDERS} folders, {MAX_DEPTH} deep.")
        with _opened(full_path, _OPEN_FOLDER, name=name, parent=parent) as here, os.scandir(here) as entries:
            for entry in entries:
                if UNSTORABLE.search(entry.name):
                    raise Invalid(f"{full_path}: the file name {entry.name!a} cannot be stored.")
                inner = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir(follow_symlinks=False):
                    self.read_folder(here, entry.name, inner, depth=depth + 1)
                else:
                    self._read_file(here, entry.name, inner)

    def _read_file(self, parent: int, name: str, path: str) -> None:
        full_path = self.folder / path
        if len(self._digests) >= MAX_FILES:
            raise Invalid(f"{self.folder}: more than {MAX_FILES} files, the limit of a skill.")
        limit = MAX_BYTES - self._bytes
        with _opened(full_path, _OPEN_FILE, name=name, parent=parent) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Invalid(f"{full_path}: is not a plain file.")
            content = _read(file, limit + 1)
        if len(content) > limit:
            raise Invalid(f"{self.folder}: more than {MAX_BYTES} bytes, the limit of a skill.")
        self._bytes += len(content)
        self._digests[os.fsencode(path)] = hashlib.sha256(content).hexdigest()
        if path == SKILL_FILE:
            if len(content) > MAX_SKILL_BYTES:
                raise Invalid(f"{full_path}: is {len(content)} bytes long; the limit is {MAX_SKILL_BYTES}.")
            self.skill = content


@contextmanager
def _opened(full_path: Path, flags: int, *, name: str = "", parent: int | None = None) -> Iterator[int]:
    try:
        opened = os.open(name or full_path, flags, dir_fd=parent)
    except OSError as error:
        # O_NOFOLLOW reports a link as ELOOP, or as "not a directory" with O_DIRECTORY.
        link = " Symbolic links are not followed." if full_path.is_symlink() else ""
        raise Invalid(f"{full_path}: cannot be opened: {error.strerror}.{link}") from None
    try:
        yield opened
    finally:
        os.close(opened)


def _read(file: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(file, min(most, 1 << 16))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _split(file: Path, content: bytes) -> tuple[dict[str, object], str]:
    """Return the validated front matter and the Markdown after it."""
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file}: is not UTF-8 text: byte {error.start} is invalid.") from None
    if unstorable := UNSTORABLE.search(text):
        line = text.count("\n", 0, unstorable.start()) + 1
        raise Invalid(f"{file}: the character U+{ord(unstorable[0]):04X} cannot be stored (line {line}).")
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.rstrip() == _FENCE][:2]
    if fences[:1] != [0] or len(fences) == 1:
        raise Invalid(f"{file}: must start with front matter between two lines of {_FENCE} (line 1).")
    body = "\n".join(lines[fences[1] + 1 :]).strip()
    if not body:
        raise Invalid(f"{file}: has no text after its front matter (line {fences[1] + 1}).")
    try:
        root = read_yaml("\n".join(lines[1 : fences[1]]), first_line=2)
        return _front_matter(root, file.parent.name), body
    except Invalid as refusal:
        raise Invalid(f"{file}: {refusal}") from None


def _split_tools(value: object) -> object:
    """Accept tool names that are separated by blanks."""
    return value.split() if isinstance(value, str) else value


class FrontMatter(Section):
    """The keys of the front matter."""

    name: Annotated[str, text(NAME_CHARS)]
    description: Annotated[str, text(DESCRIPTION_CHARS, lines=True)]
    license: Annotated[str, text(DESCRIPTION_CHARS, lines=True, needed=False)] = ""
    compatibility: Annotated[str, text(COMPATIBILITY_CHARS, lines=True, needed=False)] = ""
    metadata: dict[str, Words] = Field(default_factory=dict)
    allowed_tools: Annotated[list[Tool], listed("tools", MAX_FILES), BeforeValidator(_split_tools)] = Field(
        default_factory=list, alias="allowed-tools"
    )


def _front_matter(root: Node, folder: str) -> dict[str, object]:
    lines = lines_of(root)
    front = require_valid(FrontMatter, _written(root), lines)
    if front.name != folder:
        raise Invalid(f"name: {front.name!r} is not the name of its folder, {folder!r} (line {lines['name']})")
    return front.model_dump(by_alias=True, exclude_defaults=True)


def _written(node: Node) -> Any:
    """Return the values of a tree. Numbers stay as they are written: `version: 1.10` is not 1.1."""
    if node.kind == "map":
        return {key: _written(value) for key, value in node.entries.items()}
    if node.kind == "list":
        return [_written(item) for item in node.items]
    return None if node.is_nothing else node.text
