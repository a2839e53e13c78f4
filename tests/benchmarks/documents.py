"""Text from documents: pages and megabytes per second of PDF, DOCX and HTML.

`python -m tests.benchmarks.documents [--rounds 5] [--pages 50]`; needs no database. A document is read as a person's
upload is, in a process of its own; the reference is the same reader in this process.
"""

import argparse
from html import escape

from tests.benchmarks.guard import connection  # noqa: F401 sets Django up

# isort: split
from agents.text.extraction import extract
from agents.text.formats.kinds import kind_of
from agents.text.formats.readers import read_parts
from tests.agents.text.files import docx_of, pdf_of
from tests.benchmarks.paired import measure, record

LINE = "Either party may end this agreement with three months' notice to the end of a quarter. "
PARAGRAPH = LINE * 5
PER_PAGE = 8  # paragraphs


def documents(pages: int) -> dict[str, bytes]:
    """A document of each kind, with so many pages of the same text."""
    numbered = [f"{number}. {PARAGRAPH}" for number in range(pages * PER_PAGE)]
    by_page = ["\n".join(numbered[start : start + PER_PAGE]) for start in range(0, len(numbered), PER_PAGE)]
    html = "".join(f"<p>{escape(text)}</p>" for text in numbered)
    return {
        "a.pdf": pdf_of(*by_page),
        "a.docx": docx_of(*numbered),
        "a.html": f"<!doctype html><html><body><h1>Agreement</h1>{html}</body></html>".encode(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=50)
    given = parser.parse_args()
    for name, data in documents(given.pages).items():
        kind = kind_of(data, name=name, media_type="")
        assert PARAGRAPH[:40] in extract(data, name=name).text
        contenders = {
            "here": lambda kind=kind, data=data: list(read_parts(kind, data)),
            "apart": lambda name=name, data=data: extract(data, name=name),
        }
        rows = measure(contenders, rounds=given.rounds, steps=1, warm=1)
        ratios = [row["apart"] / row["here"] for row in rows]
        by = {"ratios": ratios, "reference": "reading in the same process"}
        title = f"document.{name.partition('.')[2]}"
        record(f"{title}.pages", [given.pages / row["apart"] for row in rows], unit="pages/s", database="none", **by)
        record(f"{title}.bytes", [len(data) / 1e6 / row["apart"] for row in rows], unit="MB/s", database="none", **by)


if __name__ == "__main__":
    main()
