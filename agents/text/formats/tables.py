"""Text with tables: a table becomes lines, one for each row, as in `| Fee | 100 |`; and the text of CSV files."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agents.exceptions import Invalid
from agents.text.formats.decoding import decode
from agents.text.formats.limits import MAX_CELLS, MAX_CHARS, MAX_ROWS
from agents.text.marks import Part, too_long

MAX_SPAN = 100  # columns that one cell may take


def table_text(rows: Iterable[list[str]], *, is_layout: bool = False) -> str:
    """Return one line for each row that holds text. Columns and cells at the end of a row that are empty are left out.

    A table of one column is no table to a reader, nor is one that only places others on a page: the text of each cell
    stands by itself.
    """
    filled = [row for row in rows if any(row)]
    used = sorted({number for row in filled for number, cell in enumerate(row) if cell})
    if is_layout or len(used) <= 1:
        return "\n".join(cell for row in filled for cell in row if cell)
    return "\n".join(_line([row[number] for number in used if number < len(row)]) for row in filled)


def _line(cells: list[str]) -> str:
    while not cells[-1]:
        cells.pop()
    plain = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in plain)


def too_many_cells() -> str:
    return f"A table has more than {MAX_CELLS:,} cells, the most that is read. Split it."


def bounded_rows(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Pass rows with text on, until there are too many rows, cells or characters."""
    count = cells = chars = 0
    for row in rows:
        if not any(row):
            continue
        count += 1
        cells += len(row)
        chars += sum(map(len, row)) + 1
        if cells > MAX_CELLS:
            raise Invalid(too_many_cells())
        if count > MAX_ROWS:
            raise Invalid(f"A table has more than {MAX_ROWS:,} rows, the most that are read. Split it.")
        if chars > MAX_CHARS:
            raise Invalid(too_long())
        yield row


@dataclass
class _Table:
    rows: list[list[str]] = field(default_factory=list)
    holds_table: bool = False


class TextWriter:
    """Collects text in the order in which it is read. Cells and rows outside of a table are plain text."""

    def __init__(self) -> None:
        self._buffers: list[list[str]] = [[]]
        self._tables: list[_Table] = []

    @property
    def last(self) -> str:
        """The last character that was written here; a line break at the beginning of the text or of a cell."""
        return self._buffers[-1][-1][-1] if self._buffers[-1] else "\n"

    def write(self, piece: str) -> None:
        if piece:
            self._buffers[-1].append(piece)

    def text(self) -> str:
        """Return everything that was written; what is still open is closed."""
        while self._tables:
            self.close_table()
        return "".join(self._buffers[0])

    def open_table(self) -> None:
        if self._tables:
            self._tables[-1].holds_table = True
        self._tables.append(_Table())

    def open_row(self) -> None:
        if self._tables:
            self._tables[-1].rows.append([])

    def open_cell(self) -> None:
        if self._tables:
            self._buffers.append([])

    def close_cell(self, span: int = 1) -> None:
        """End a cell. One that takes several columns is followed by empty ones."""
        if len(self._buffers) <= 1 or not self._tables:
            return
        text = "".join(self._buffers.pop()).strip()
        rows = self._tables[-1].rows or [[]]
        rows[-1] += [text, *[""] * (min(span, MAX_SPAN) - 1)]
        self._tables[-1].rows = rows

    def close_table(self) -> None:
        if not self._tables:
            return
        table = self._tables.pop()
        text = table_text(table.rows, is_layout=table.holds_table)
        self.write(("" if self.last == "\n" else "\n") + text + "\n")


# --- CSV ---

_DELIMITERS = ",;\t|"
_DECLARED = "sep="  # spreadsheets write the delimiter into the first line


def csv_parts(data: bytes) -> Iterator[Part]:
    text = decode(data)
    first, _, rest = text.partition("\n")
    if first.lower().startswith(_DECLARED) and len(first.strip()) == len(_DECLARED) + 1:
        delimiter, text = first.strip()[-1], rest
    else:
        delimiter = max(_DELIMITERS, key=first.count)
    if text.count(delimiter) > MAX_CELLS:  # one line may hold them all
        raise Invalid(too_many_cells())
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        yield Part(table_text(list(bounded_rows([cell.strip() for cell in row] for row in reader))))
    except csv.Error as error:
        raise Invalid(f"It could not be read as CSV: {error} (line {reader.line_num:,}). Save it again.") from None
