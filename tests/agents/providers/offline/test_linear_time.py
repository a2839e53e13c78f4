"""Reading takes linear time, so that no document stalls its worker."""

import pytest

from agents.providers.offline import other_purposes, provider
from agents.providers.offline.provider import CUT_OFF, markings
from agents.providers.offline.text import Document, quantities, split_sentences, words_of
from agents.providers.offline.verdicts import is_negated, requirements_of
from agents.text.blocks import render_block
from agents.walk.parsing import parse_analysis, parse_judgement
from tests.agents.providers.offline.corpora import clauses
from tests.agents.providers.offline.offline_calls import NONCE, analysis, document, playbook
from tests.effort import grows_too_fast, takes_at_most
from tests.table import every_row

# What a run of marks stands between decides whether a pattern finds its end.
SHAPES = [("", ""), ("no 30 (30", "x"), ("a over", " x")]
SMALL, TIMES = 1_500, 4

MARKS = list(".!?\u2026,;:'\"\u201c\u201d\u2019()[]{}<>-\u2013*#|/%$=+_&~`\\ \t\n\r0aA\u56fd\u0301\u00ad\u3002\u0663")
MIXES = [
    ".)", ".\"", ". ", ".a", ".0", "?.", "!\n", "? ", "?a ", "?yes", "?no", "a.", "a,", "a\n", "a-\n", "a'", "A.",
    "0,", "0.", "0%", "0 ", "1:", "- ", "* ", "(a) ", "\n\n", "\n ", "\r\n", "x:\n", "- a\n", "x:\n- a\n", "# a\nb. ",
    "no ", "no.", "not ", "neither a ", "in no ", "shall not ", "is ly", "be \t", "only ", "subject to ", "requires a ",
    "if ", "as ", "by ", "may ", "thirty ", "one-", "one and ", "(30 ", "30 (30", "(30  % ", "every ", "first ",
    "net ", "jan ", "at least ", "over  ", "over by ", "exceed", "from a ", "from ", "to ", "non-", "non- \n", "e.g. ",
    "Section ", ", but ", "a; ", ", and ", " and shall", "it is. ", "CONFIDENTIAL ", "\nCONFIDENTIAL", "STRICTLY ",
    "legal ", "privileged and ", "claim:", "Quote: a\n", "a -> ", "+ a: ", "- a = 1\n", "```", "```\n", "{", "{\"a\":",
    "{\"findings\":[", "<<<", "<<<a ", "\"a", "\u201ca", "\\\"", "\u2610 ", "[ ] ", "[", "A ", "Ab ", "once a ",
]  # fmt: skip


def block(kind, text):
    return render_block(kind, text, nonce=NONCE)


def everything_of(text):
    found = Document(text)
    return found.index, found.is_english, found.phrase("nowhere to be found")


READERS = {
    "sentences": split_sentences,
    "words": words_of,
    "quantities": quantities,
    "negation": is_negated,
    "requirements": requirements_of,
    "markings": markings,
    "document": everything_of,
    "judge": lambda text: other_purposes.judge([block("claim", "Pay in 30 days."), block("quote", text)], 1_000),
    "precheck": lambda text: other_purposes.precheck([text], 100),
    "signal": lambda text: other_purposes.signal([text, text], 100),
    "reply": parse_analysis,
    "judgement": parse_judgement,
}


def in_shape(size, begins, piece, ends):
    return begins + (piece * size)[:size] + ends


def slow_ones(read, shapes):
    read("The Customer shall pay within 30 days. No other term applies.")  # what is made once is made now
    return [
        shape
        for shape in shapes
        if grows_too_fast(read, lambda size, shape=shape: in_shape(size, *shape), SMALL, times=TIMES)
    ]


@pytest.mark.long
@every_row("name", READERS)
def test_reading_takes_linear_time(name, some):
    """Every ninth piece in one of the shapes, every third one in the long run, all in all shapes in the full run."""
    pieces = enumerate(some((MARKS + MIXES)[::3], 3))
    shapes = [(SHAPES[number % 3][0], piece, SHAPES[number % 3][1]) for number, piece in pieces]
    assert slow_ones(READERS[name], shapes) == []


@pytest.mark.stress
@pytest.mark.parametrize("name", READERS)
def test_reading_takes_linear_time_in_every_shape(name):
    shapes = [(begins, piece, ends) for piece in MARKS + MIXES for begins, ends in SHAPES]
    assert slow_ones(READERS[name], shapes) == []


def test_a_heading_of_many_words_over_many_lines_takes_linear_time():
    def made(size):
        half = size // 2
        words = " ".join(f"term{number}" for number in range(half // 8))
        return f"# {words}\n\n" + "It is agreed.\nx:\n- so it is\n\n" * (half // 32)

    assert not grows_too_fast(everything_of, made, 4 * SMALL, times=TIMES)


@every_row("run", ["." * 20_000, "?! " * 6_000, "…" * 20_000, "\u201d." * 10_000])
def test_a_run_of_marks_does_not_stall_an_analysis(run):
    text = document(f"Invoices are paid within 30 days of receipt {run}")
    assert analysis(playbook(clauses.PAYMENT), text)["analyst"]["verdicts"]
    assert takes_at_most(2, lambda: analysis(playbook(clauses.PAYMENT), text))


def test_a_document_that_is_too_long_is_reported_as_cut_off(monkeypatch):
    assert provider.MAX_DOCUMENT_CHARS == 1_000_000
    monkeypatch.setattr(provider, "MAX_DOCUMENT_CHARS", 20_000)
    filler = "It is agreed. " * (20_000 // 14 + 1)
    found = analysis(playbook(clauses.PAYMENT), document(f"{filler}\n\nInvoices are paid within 90 days of receipt."))

    assert CUT_OFF in [finding["content"] for finding in found["findings"]]
    assert all(finding["end"] <= 20_000 for finding in found["findings"])
