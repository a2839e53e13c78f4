"""Documents to read: small PDFs and DOCX files made by hand, and rows made through the services."""

import io
import zipfile

from agents.knowledge.documents import collection_create, document_add
from tests.factories import NOW

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_collection(owner, name="contracts", **more):
    return collection_create(owner=owner, name=name, by=None, **{"now": NOW, **more})


def make_document(owner, text="The term is twelve months.", **more):
    document, _ = document_add(
        **{"owner": owner, "name": "contract.txt", "data": text.encode(), "by": None, "now": NOW, **more}
    )
    return document


def files_under(folder):
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


# --- PDF ---


def make_pdf(*pages, extra=b""):
    """One line of text per page, in Helvetica."""
    kids = " ".join(f"{10 + 2 * number} 0 R" for number in range(len(pages)))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for number, line in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET".encode()
        objects[10 + 2 * number] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {11 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        ).encode()
        objects[11 + 2 * number] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn)
    return pdf_file(objects, extra)


def pdf_file(objects, extra):
    out, places = b"%PDF-1.4\n", {}
    for number, body in objects.items():
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%d 1\n%010d 00000 n \n" % (number, place) for number, place in places.items())
    start = len(out)
    size = max(objects) + 1
    return (
        out
        + b"xref\n0 1\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
        % (
            table,
            size,
            extra,
            start,
        )
    )


# --- DOCX ---


def docx_of(document):
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def docx_with_body(body):
    """A DOCX with this XML inside its body."""
    import docx

    return with_part(
        docx_of(docx.Document()), "word/document.xml", f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    )


def with_part(data, name, content):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, content if entry.filename == name else old.read(entry))
        if name not in old.namelist():
            new.writestr(name, content)
    return out.getvalue()


def zip_of(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()
