"""The archive inside DOCX, XLSX, PPTX and ODT: checked before it is unpacked, and its XML read as a stream."""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents.exceptions import Invalid
from agents.text.formats.limits import MAX_ELEMENTS, MAX_ENTRIES, MAX_UNPACKED_BYTES

_ENTRY = b"PK\x01\x02"  # begins each entry of the directory
_PIECE = 1_048_576
_ENCRYPTED = 0x1  # flag of an entry
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


def archive_names(data: bytes) -> list[str]:
    """Check the archive by its directory, before anything is unpacked, and return the names of its entries.

    No reader unpacks more of a file than it declares, so the declared sizes are the bound.
    """
    entries = data.count(_ENTRY)  # before the directory is read, since reading a huge one takes time
    if entries > MAX_ENTRIES:
        raise Invalid(f"Its archive has {entries:,} entries; at most {MAX_ENTRIES:,} are read. Save it again.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, UnicodeDecodeError):
        raise Invalid("Its archive is damaged or cut off. Save it again.") from None
    unpacked = sum(entry.file_size for entry in listed)
    if unpacked > MAX_UNPACKED_BYTES:
        raise Invalid(f"It would unpack to {unpacked:,} bytes; at most {MAX_UNPACKED_BYTES:,} are read. Split it.")
    if any(entry.flag_bits & _ENCRYPTED for entry in listed):
        raise Invalid("Its archive is protected by a password. Save it without one.")
    return [entry.filename for entry in listed]


class Relation(NamedTuple):
    """A part that another part refers to."""

    id: str
    kind: str
    target: str


class Package:
    """The parts of an archive of Office or OpenDocument."""

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._check_markup()

    def read(self, name: str) -> bytes:
        try:
            return self._archive.read(name)
        except KeyError:
            raise Invalid(f"It lacks its part {name!r}: it is damaged. Save it again.") from None

    def parse(self, name: str, target: Any) -> Any:
        """Feed a part to a parser target and return what its `close` returns. Declared entities are refused."""
        from defusedxml.ElementTree import DefusedXMLParser

        parser = DefusedXMLParser(target=target, forbid_dtd=True)
        parser.feed(self.read(name))
        return parser.close()

    def main_part(self) -> str:
        """The name of the part that holds the document itself."""
        for relation in self.relations(""):
            if relation.kind.endswith("/officeDocument"):
                return relation.target
        raise Invalid("It does not say where its text is: it is damaged. Save it again.")

    def relations(self, part: str) -> Iterator[Relation]:
        folder, name = posixpath.split(part)
        place = posixpath.join(folder, "_rels", f"{name}.rels")
        if place in self._archive.namelist():
            for attributes in self.parse(place, Attributes(_RELATIONS)):
                target = attributes.get("Target", "")
                if attributes.get("TargetMode") != "External":
                    whole = posixpath.normpath(posixpath.join(f"/{folder}", target)).lstrip("/")
                    yield Relation(attributes.get("Id", ""), attributes.get("Type", ""), whole)

    def _check_markup(self) -> None:
        """Count the elements in every entry: only the document itself says which of them hold markup."""
        elements = 0
        for entry in self._archive.infolist():
            with self._archive.open(entry) as unpacked:
                while piece := unpacked.read(_PIECE):
                    elements += piece.count(b"<") - piece.count(b"</")
                    if elements > MAX_ELEMENTS:
                        raise Invalid(f"It has more than {MAX_ELEMENTS:,} elements. Split it, or save it as PDF.")


class Attributes:
    """A parser target that collects the attributes of the elements with a name."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._found: list[dict[str, str]] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == self._wanted:
            self._found.append(attributes)

    def close(self) -> list[dict[str, str]]:
        return self._found
