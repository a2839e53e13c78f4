"""RTF: text, and tables as lines."""

import re
from collections.abc import Iterator

from agents.exceptions import Invalid
from agents.text.formats.tables import table_text
from agents.text.marks import Part

_BRACES = re.compile(rb"\\[\\{}]|[{}]")
_BINARY = b"\\bin"  # what follows may hold braces of its own
_DEPTH = {b"{": 1, b"}": -1}
MAX_DEPTH = 1_000


def rtf_parts(data: bytes) -> Iterator[Part]:
    from striprtf.striprtf import rtf_to_text

    if _BINARY not in data:
        _check_groups(data)
    text = rtf_to_text(data.decode("cp1252", "replace"), errors="replace")  # type: ignore[no-untyped-call]
    yield Part(_with_tables(text))


def _check_groups(data: bytes) -> None:
    depth = 0
    for brace in _BRACES.finditer(data):
        depth += _DEPTH.get(brace[0], 0)
        if depth > MAX_DEPTH:
            raise Invalid(f"The RTF has groups that are nested more than {MAX_DEPTH:,} deep. Save it again.")
        if depth == 0:
            return
    raise Invalid("The RTF is cut off: its end is missing. Copy or save it again.")


def _with_tables(text: str) -> str:
    """The library ends each cell with `|` and each row with a line break; a table is a run of such lines."""
    out: list[str] = []
    rows: list[list[str]] = []
    for line in [*text.split("\n"), ""]:
        if line.rstrip().endswith("|"):
            rows.append([cell.strip() for cell in line.rstrip()[:-1].split("|")])
            continue
        if rows:
            out.append(table_text(rows))
            rows = []
        out.append(line)
    return "\n".join(out)
