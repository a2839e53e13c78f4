"""Texts that say the same in other marks, and the words that two texts share."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents.knowledge import words_sqlite
from agents.providers.offline import text as offline
from agents.text import wording
from agents.text.wording import label, likeness, normalised, shared_weights, stems, text_key
from tests.table import every_row

ENDINGS = ("", "s", "ing", "ed", "izations", "fulness", "ational", "ities", "ously", "ement")
SAME = [
    ("Liability is not capped", "liability is not capped."),
    ("Liability is not capped", "  Liability\n is  not capped!? "),
    ("Liability is not capped", "“Liability is not capped.”"),
    ("The tenant's notice", "The tenant\u2019s notice"),
    ("Notice - 30 days", "Notice\u201430 days"),
    ("Notice-30 days", "Notice \u2013 30 days…"),
    ("STRASSE", "straße"),
    ("office", "o\ufb03ce"),
]


@every_row(("one", "other"), SAME)
def test_texts_that_differ_in_marks_alone_have_one_key(one, other):
    assert text_key(one) == text_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Payment after 30 days", "Payment after 60 days"), ("It is capped", "It is not capped"), (".", "!"), ("", ".")],
)
def test_texts_that_say_something_else_have_other_keys(one, other):
    assert text_key(one) != text_key(other)


@every_row("text", [text for pair in SAME for text in pair])
def test_normalising_again_changes_nothing(text):
    assert normalised(normalised(text)) == normalised(text)


def test_lone_surrogate_has_a_key():
    assert len(text_key("half \ud83d pair")) == 64


@every_row(
    ("given", "wanted"),
    [("Payment terms", "payment_terms"), ("payment-terms.", "payment_terms"), ("  ", ""), ("a" * 5 + " b", "aaaaa")],
)
def test_label_has_one_form(given, wanted):
    assert label(given, limit=6 if given.startswith("aaaaa") else 64) == wanted


def test_words_are_compared_by_their_stems_without_fillers():
    assert stems("The payments were paying") == stems("payment, pay")
    assert stems("of the and") == frozenset()
    assert likeness(stems("Payment after 60 days"), stems("The payments are due after 60 days")) == 0.8
    assert likeness(frozenset(), frozenset()) == 0.0


def test_rare_word_weighs_more_than_a_common_one():
    texts = [stems("rent and parking"), stems("rent and notice"), stems("rent"), stems("nothing else")]
    assert shared_weights(stems("the rent of the parking"), texts) == [1 + 1 / 3, 1 / 3, 1 / 3, 0]


@pytest.mark.parametrize(
    "stem", [wording._stem, words_sqlite._stem, offline.stem], ids=["wording", "search", "offline"]
)
def test_threads_do_not_disturb_the_stems_of_each_other(stem):
    words = [f"{start}{end}" for start in ("general", "organ", "hope", "relat", "formal") for end in ENDINGS]
    alone = [stem.__wrapped__(word) for word in words]
    between = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = [*pool.map(lambda _: [stem.__wrapped__(word) for word in words], range(8))]
    finally:
        sys.setswitchinterval(between)
    assert found == [alone] * 8
