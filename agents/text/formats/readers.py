"""The reader of each kind, and the attachments of mails, which are read by the reader of theirs."""

from collections.abc import Callable, Iterator, Mapping

from agents.exceptions import Invalid
from agents.text.formats.decoding import decode
from agents.text.formats.html import html_parts
from agents.text.formats.kinds import Kind, kind_of
from agents.text.formats.limits import MAX_READ_ATTACHMENTS
from agents.text.formats.mail import Mail, MailAttachment, read_eml, read_msg
from agents.text.formats.office import docx_parts, odt_parts, pptx_parts, xlsx_parts
from agents.text.formats.pdf import pdf_parts
from agents.text.formats.rtf import rtf_parts
from agents.text.formats.tables import csv_parts
from agents.text.marks import Part, join_parts

_FILES: Mapping[Kind, Callable[[bytes], Iterator[Part]]] = {
    Kind.PDF: pdf_parts,
    Kind.DOCX: docx_parts,
    Kind.XLSX: xlsx_parts,
    Kind.PPTX: pptx_parts,
    Kind.ODT: odt_parts,
    Kind.RTF: rtf_parts,
    Kind.CSV: csv_parts,
    Kind.HTML: html_parts,
}
_MAILS: Mapping[Kind, Callable[[bytes], Mail]] = {Kind.EML: read_eml, Kind.MSG: read_msg}


def read_parts(kind: Kind, data: bytes) -> Iterator[Part]:
    """Return the parts of a document. Those of a mail are its text, then its attachments, of any kind that is read."""
    if kind not in _MAILS:
        yield from _file_parts(kind, data)
        return
    mail = _MAILS[kind](data)
    yield Part(mail.text())
    for number, attachment in enumerate(mail.attachments):
        if number < MAX_READ_ATTACHMENTS and attachment.data:
            yield from _attachment_parts(attachment)


def _file_parts(kind: Kind, data: bytes) -> Iterator[Part]:
    if kind in _MAILS:  # attached to another: its own attachments are only named
        yield Part(_MAILS[kind](data).text())
    elif kind in _FILES:
        yield from _FILES[kind](data)
    else:
        yield Part(decode(data))


def _attachment_parts(attachment: MailAttachment) -> Iterator[Part]:
    """Return the text of an attachment, or why it was not read: a mail is not refused for what is attached."""
    label = f"attachment {attachment.name}"
    heading = f"# Attachment {attachment.name}\n\n"
    try:
        kind = kind_of(attachment.data, name=attachment.name, media_type=attachment.media_type)
        parts = list(_file_parts(kind, attachment.data))
        join_parts(parts)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 whatever a parser raises, the attachment is at fault
        why = str(error) if isinstance(error, Invalid) else "It is damaged."
        yield Part(f"{heading}Not read. {why}", label)
        return
    for number, part in enumerate(parts):
        place = f"{label}, {part.label}" if part.label else label
        yield Part(part.text if number else heading + part.text, place)
