"""One file of each kind, made by other code than the code that reads it, each with the same sentence in it."""

import io
import struct
import zipfile
from dataclasses import dataclass

import docx
import xlsxwriter
from fpdf import FPDF
from PIL import Image

IMAGE = object()  # a page that is one
SENTENCE = "The Customer shall pay within 30 days."
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def zip_of(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in entries.items():
            packing = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(name, content, packing)
    return out.getvalue()


# --- PDF ---


def pdf_of(*pages, password=None):
    """Each page with these lines, or with an image."""
    made = FPDF()
    made.set_font("Helvetica", size=12)
    if password is not None:
        made.set_encryption(owner_password="owner", user_password=password)
    for page in pages:
        made.add_page()
        if page is IMAGE:
            made.image(Image.new("L", (8, 8)))
        elif page:
            made.multi_cell(0, text=page)
    return bytes(made.output())


# --- DOCX ---


def docx_of(*paragraphs, table=()):
    made = docx.Document()
    for text in paragraphs:
        made.add_paragraph(text)
    if table:
        grid = made.add_table(len(table), len(table[0]))
        for row, cells in enumerate(table):
            for column, text in enumerate(cells):
                grid.cell(row, column).text = text
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


# --- XLSX ---


def xlsx_of(sheets, *, hidden=(), write=None):
    """Sheets by name, each a list of rows. `write` gets the workbook and its sheets, to add more."""
    out = io.BytesIO()
    workbook = xlsxwriter.Workbook(out, {"in_memory": True})
    made = {}
    for name, rows in sheets.items():
        made[name] = workbook.add_worksheet(name)
        for number, cells in enumerate(rows):
            made[name].write_row(number, 0, cells)
        if name in hidden:
            made[name].hide()
    if write:
        write(workbook, made)
    workbook.close()
    return out.getvalue()


# --- PPTX ---

_P = "http://schemas.openxmlformats.org/presentationml/2006/main"
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"


def pptx_of(slides, *, notes=(), hidden=()):
    """Slides as XML of their text bodies; notes by the number of the slide."""
    notes = dict(notes)
    parts = {
        "_rels/.rels": _relations({"r1": ("officeDocument", "ppt/presentation.xml")}),
        "ppt/presentation.xml": _presentation(len(slides)),
        "ppt/_rels/presentation.xml.rels": _relations(
            {f"s{number}": ("slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1)}
        ),
    }
    for number, body in enumerate(slides, 1):
        shown = ' show="0"' if number in hidden else ""
        parts[f"ppt/slides/slide{number}.xml"] = _slide("sld", body, shown)
        if number in notes:
            parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = _relations(
                {"n": ("notesSlide", f"../notesSlides/notesSlide{number}.xml")}
            )
            parts[f"ppt/notesSlides/notesSlide{number}.xml"] = _slide("notes", slide_text(notes[number]))
    return zip_of(parts)


def slide_text(*paragraphs):
    inside = "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in paragraphs)
    number = '<a:p><a:fld type="slidenum"><a:t>99</a:t></a:fld></a:p>'
    return f"<p:sp><p:txBody>{inside}{number}</p:txBody></p:sp>"


def slide_table(*rows):
    def cell(text):
        return f"<a:tc><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"

    lines = "".join(f"<a:tr>{''.join(map(cell, row))}</a:tr>" for row in rows)
    return f"<p:graphicFrame><a:tbl>{lines}</a:tbl></p:graphicFrame>"


def _presentation(count):
    slides = "".join(f'<p:sldId id="{255 + number}" r:id="s{number}"/>' for number in range(1, count + 1))
    return f'<p:presentation xmlns:p="{_P}" xmlns:r="{OFFICE}"><p:sldIdLst>{slides}</p:sldIdLst></p:presentation>'


def _slide(kind, body, attributes=""):
    tree = f"<p:cSld><p:spTree>{body}</p:spTree></p:cSld>"
    return f'<p:{kind} xmlns:p="{_P}" xmlns:a="{_A}"{attributes}>{tree}</p:{kind}>'


def _relations(targets):
    rows = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for name, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{RELATIONS}">{rows}</Relationships>'


# --- ODT ---


def odt_of(body, *, manifest="<manifest/>", before=""):
    names = {
        "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
        "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
        "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
    }
    spaces = " ".join(f'xmlns:{name}="{space}"' for name, space in names.items())
    inside = f"<office:body><office:text>{body}</office:text></office:body>"
    content = f"{before}<office:document-content {spaces}>{inside}</office:document-content>"
    return zip_of(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": content,
            "META-INF/manifest.xml": manifest,
        }
    )


# --- EML ---


def eml_of(body=SENTENCE, *, kind="text/plain; charset=utf-8", attachments=(), headers=""):
    """A mail as bytes, written by hand. Attachments are names and bytes."""
    top = (
        "From: Ada Lovelace <ada@example.org>\r\nTo: Bob <bob@example.org>, Eve <eve@example.org>\r\n"
        "Date: Mon, 02 Mar 2026 09:30:00 +0100\r\nSubject: =?utf-8?q?Terms_for_Gr=C3=BCn?=\r\n"
        f"{headers}MIME-Version: 1.0\r\n"
    )
    if not attachments:
        return f"{top}Content-Type: {kind}\r\n\r\n".encode() + body.encode()
    parts = [f"Content-Type: {kind}\r\n\r\n".encode() + body.encode()]
    for name, data in attachments:
        described = f'Content-Type: application/octet-stream; name="{name}"\r\n'
        disposition = f'Content-Disposition: attachment; filename="{name}"\r\n'
        encoded = b"".join(b"=%02X" % byte + (b"=\r\n" if at % 20 == 19 else b"") for at, byte in enumerate(data))
        head = f"{described}{disposition}Content-Transfer-Encoding: quoted-printable\r\n\r\n"
        parts.append(head.encode() + encoded)
    joined = b"".join(b"--edge\r\n" + part + b"\r\n" for part in parts)
    return f'{top}Content-Type: multipart/mixed; boundary="edge"\r\n\r\n'.encode() + joined + b"--edge--\r\n"


# --- MSG: a compound file with streams and folders, as [MS-CFB] describes it ---

_SECTOR, _SMALL, _CUTOFF = 512, 64, 4_096
_END, _FREE, _FAT_SECTOR = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
_FOLDER, _STREAM, _ROOT = 1, 2, 5


@dataclass
class _Entry:
    """A line of the directory. A folder names its first child; each child the next one, on its right."""

    name: str
    kind: int
    data: bytes = b""
    child: int = _FREE
    right: int = _FREE
    start: int = _END

    def packed(self):
        raw = f"{self.name}\0".encode("utf-16-le")
        head = raw.ljust(64, b"\0") + struct.pack("<HBB3L", len(raw), self.kind, 1, _FREE, self.right, self.child)
        return head + bytes(36) + struct.pack("<LQ", self.start, len(self.data))


class _Sectors:
    """Data in pieces of one size, and the table that chains them."""

    def __init__(self, size):
        self.size, self.data, self.chain = size, b"", []

    def add(self, data):
        """Return the number of the first piece."""
        if not data:
            return _END
        start, count = len(self.chain), -(-len(data) // self.size)
        self.data += data.ljust(count * self.size, b"\0")
        self.chain += [*range(start + 1, start + count), _END]
        return start


def ole_of(tree):
    """Names to bytes (streams) or to dicts (folders)."""
    root = _Entry("Root Entry", _ROOT)
    entries = [root]
    _add_entries(tree, root, entries)
    small, big = _Sectors(_SMALL), _Sectors(_SECTOR)
    for entry in entries:
        if entry.kind == _STREAM:
            entry.start = (small if len(entry.data) < _CUTOFF else big).add(entry.data)
    root.data, root.start = small.data, big.add(small.data)
    small_table = _table(small.chain)
    small_start = big.add(small_table)
    folder_start = big.add(b"".join(entry.packed() for entry in entries))
    tables = -(-len(big.chain) // (_SECTOR // 4 - 1))  # each of them takes a place in itself
    places = list(range(len(big.chain), len(big.chain) + tables))
    head = struct.pack(
        "<8s16x5H6x9L",
        *(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6),
        *(0, tables, folder_start, 0, _CUTOFF, small_start, len(small_table) // _SECTOR, _END, 0),
    )
    head += struct.pack(f"<{tables}L", *places).ljust(109 * 4, b"\xff")
    return head + big.data + _table([*big.chain, *[_FAT_SECTOR] * tables])


def _table(chain):
    packed = struct.pack(f"<{len(chain)}L", *chain)
    return packed.ljust(-(-len(packed) // _SECTOR) * _SECTOR, b"\xff")


def _add_entries(tree, parent, entries):
    before = None
    for name, content in tree.items():
        is_folder = isinstance(content, dict)
        entry = _Entry(name, _FOLDER) if is_folder else _Entry(name, _STREAM, content)
        if before is None:
            parent.child = len(entries)
        else:
            before.right = len(entries)
        before = entry
        entries.append(entry)
        if is_folder:
            _add_entries(content, entry, entries)


def msg_of(body=SENTENCE, *, attachments=(), html=None, **texts):
    """A mail as Outlook saves it. `texts` replace properties by their number, as in `p0037="Subject"`."""
    properties = {
        "p0037": "Terms",
        "p0C1A": "Ada Lovelace",
        "p5D01": "ada@example.org",
        "p0E04": "Bob; Eve",
        "p1000": body,
        **texts,
    }
    sent = struct.pack("<HHI8s", 0x40, 0x39, 6, struct.pack("<Q", 134_170_326_000_000_000))
    tree = {"__properties_version1.0": bytes(32) + sent}
    tree |= {f"__substg1.0_{name[1:]}001F": text.encode("utf-16-le") for name, text in properties.items() if text}
    if html is not None:
        tree["__substg1.0_10130102"] = html.encode()
    for number, (name, data) in enumerate(attachments):
        tree[f"__attach_version1.0_#{number:08X}"] = {
            "__properties_version1.0": bytes(8),
            "__substg1.0_3707001F": name.encode("utf-16-le"),
            "__substg1.0_37010102": data,
        }
    return ole_of(tree)


# --- RTF ---


def rtf_of(body):
    return b"{\\rtf1\\ansi\\ansicpg1252{\\fonttbl{\\f0 Arial;}}\\f0 " + body + b"\\par}"


def one_of_each():
    """Name of the file → its bytes; SENTENCE stands in each."""
    return {
        "a.pdf": pdf_of("First page.", SENTENCE),
        "a.docx": docx_of("Terms", SENTENCE),
        "a.xlsx": xlsx_of({"Terms": [["Clause", "Text"], ["Payment", SENTENCE]]}),
        "a.pptx": pptx_of([slide_text("Terms"), slide_text(SENTENCE)]),
        "a.odt": odt_of(f"<text:h>Terms</text:h><text:p>{SENTENCE}</text:p>"),
        "a.rtf": rtf_of(SENTENCE.encode()),
        "a.eml": eml_of(),
        "a.msg": msg_of(),
        "a.csv": f"Clause,Text\nPayment,{SENTENCE}\n".encode(),
        "a.html": f"<html><body><h1>Terms</h1><p>{SENTENCE}</p></body></html>".encode(),
        "a.md": f"# Terms\n\n{SENTENCE}\n".encode(),
        "a.txt": SENTENCE.encode(),
    }
