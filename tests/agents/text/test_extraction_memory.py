"""Limits on elements, memory and documents that are read at once."""

import os
import subprocess
import sys
import threading

import pytest

from agents.exceptions import Invalid
from agents.text import extraction
from agents.text.extraction import extract
from agents.text.formats import limits
from tests.agents.knowledge.samples import docx_with_body, make_pdf, with_part

MB = 1_000_000
ASK = """
import resource, sys
from agents.exceptions import Invalid
from agents.text.extraction import extract
try:
    said = len(extract(sys.stdin.buffer.read(), name="a.docx").text)
except Invalid as refusal:
    said = refusal
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, said)
"""


def read_elsewhere(data):
    """What reading it came to, and how much memory the process that read it held at most."""
    done = subprocess.run([sys.executable, "-c", ASK], input=data, capture_output=True, check=True, timeout=60)
    held, _, said = done.stdout.decode().strip().partition(" ")
    return int(held), said


def padded(docx):
    """With so many random bytes beside it that the archive is not packed too tightly."""
    return with_part(docx, "word/media/image1.bin", os.urandom(700_000))


def test_a_small_file_of_too_many_elements_is_refused_in_little_memory():
    bomb = padded(docx_with_body("<w:p/>" * 3_000_000))
    assert len(bomb) < MB

    held, said = read_elsewhere(bomb)

    assert "more than 2,000,000 elements" in said
    assert held < 250 * MB


def test_the_most_elements_that_are_read_fit_into_the_memory():
    # A sixth of the greatest number keeps the test short; memory grows with the number.
    held, said = read_elsewhere(
        padded(docx_with_body("<w:p/>" * (limits.MAX_ELEMENTS // 6) + "<w:p><w:r><w:t>x</w:t></w:r></w:p>"))
    )

    assert said == "1"
    assert held < limits.MAX_MEMORY_BYTES / 4


def test_elements_are_counted_in_every_part_whatever_it_is_called():
    bomb = padded(with_part(docx_with_body("<w:p/>"), "word/other.bin", "<a/>" * (limits.MAX_ELEMENTS + 1)))

    with pytest.raises(Invalid, match="elements"):
        extract(bomb, name="a.docx")


def test_a_document_waits_for_a_reader_for_a_bounded_time(monkeypatch):
    turns = threading.BoundedSemaphore(1)
    monkeypatch.setattr(extraction, "_slots", turns)
    monkeypatch.setattr(extraction, "MAX_WAIT_SECONDS", 0.05)
    page = make_pdf("words")

    with turns, pytest.raises(Invalid, match="Other documents have been read"):
        extract(page, name="a.pdf")

    assert extract(page, name="a.pdf").text == "words"


def test_a_document_that_cannot_be_read_frees_its_reader(monkeypatch):
    monkeypatch.setattr(extraction, "_slots", threading.BoundedSemaphore(1))
    monkeypatch.setattr(extraction, "MAX_WAIT_SECONDS", 0.05)

    for _ in range(2):
        with pytest.raises(Invalid, match="could not be read"):
            extract(b"%PDF-1.4 nothing of the kind", name="a.pdf")
