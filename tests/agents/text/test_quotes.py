"""A quote is verified if its words stand in the source, however they are set; the result is a slice of the source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.quotes import LEFT_OUT_CHARS, LONGEST_QUOTE, _cuts_number, find_quote, is_verifiable_quote
from audit.redaction import redact
from tests.effort import takes_at_most
from tests.table import every_row

SOURCE = "Pay within 60 days. Notice: 60 days. Pay within 60 days."


def test_a_quote_is_found_where_it_stands():
    assert find_quote("Notice: 60 days.", SOURCE, 0) == (20, 36)


@every_row(("hint", "start"), [(0, 0), (18, 0), (19, 37), (37, 37), (56, 37), (10**9, 37), (-5, 0)])
def test_the_place_nearest_to_the_hint_is_chosen(hint, start):
    for quote in ("Pay within 60 days.", "Pay\nwithin 60 days."):
        assert find_quote(quote, SOURCE, hint) == (start, start + 19)


@every_row("quote", ["", "   ", "60", " 60 ", "Pay"])
def test_a_quote_that_is_too_short_is_not_verified(quote):
    assert not is_verifiable_quote(quote)
    assert find_quote(quote, SOURCE) is None


def test_a_masked_secret_is_not_verified():
    masked = redact("The key is AKIAIOSFODNN7EXAMPLE.")
    assert "[redacted:" in masked
    assert find_quote(masked, masked) is None


# --- As models write them ---


@every_row(
    ("source", "quote", "found"),
    [
        ("The tenant\n   shall pay\u00a0rent.", "The tenant shall pay rent.", "The tenant\n   shall pay\u00a0rent."),
        ("… end of page\n\n\fnext page …", "end of page next page", "end of page\n\n\fnext page"),
        ("the rental agree-\nment ends", "rental agreement ends", "rental agree-\nment ends"),
        ("the rental agree-\n\n  ment ends", "rental agree-ment ends", "rental agree-\n\n  ment ends"),
        ("a long-\nterm lease ends", "a long-term lease", "a long-\nterm lease"),
        ("a long-\nterm lease ends", "a long- term lease", "a long-\nterm lease"),
        ("the agree\u00ad\nment", "the agreement", "the agree\u00ad\nment"),
        ("the co\u00adhabitant", "the cohabitant", "the co\u00adhabitant"),
        ("agree-\nment on a long-\nterm", "agreement on a long-term", "agree-\nment on a long-\nterm"),
        ("pages 10\u201320 of it", "pages 10-20 of it", "pages 10\u201320 of it"),
        ("of 10-\n20 days", "of 10-20 days", "of 10-\n20 days"),
        ("it ends — at once", "it ends - at once", "it ends — at once"),
        ("it ends -- at once", "it ends — at once", "it ends -- at once"),
        ("a \u201crush\u201d job", 'a "rush" job', "a \u201crush\u201d job"),
        ("the landlord\u2019s", "the landlord's", "the landlord\u2019s"),
        ("il dit «\u00a0non\u00a0» toujours", 'il dit "non" toujours', "il dit «\u00a0non\u00a0» toujours"),
        ("er sagt »nein« immer", 'er sagt "nein" immer', "er sagt »nein« immer"),
        ("the o\ufb03ce of \ufb01nance", "the office of finance", "the o\ufb03ce of \ufb01nance"),
        ("le cafe\u0301 noir", "le café noir", "le cafe\u0301 noir"),
        ("le café noir", "le cafe\u0301 noir", "le café noir"),
        ("und so weiter\u2026 und", "und so weiter... und", "und so weiter\u2026 und"),
        ("契約\n期間は一年", "契約期間は一年", "契約\n期間は一年"),
        ("a list:\n - item  one\n", "- item one", "- item  one"),
        ("the sum of  5 —", "sum of 5 —", "sum of  5 —"),
        ("it is due at once", "\u201cit is due at once\u201d", "it is due at once"),
        ("that it is due at once today", "… it is due at once …", "it is due at once"),
        ("A tenant shall not pay the rent.", "A tenant shall … pay the rent.", "A tenant shall not pay the rent."),
        ("We shall all (so) pay the rent.", '"We shall all [...] pay the rent."', "We shall all (so) pay the rent."),
    ],
)  # fmt: skip
def test_a_quote_is_verified_however_it_is_set(source, quote, found):
    place = find_quote(quote, source)
    assert place is not None, quote
    assert source[slice(*place)] == found


@every_row(
    ("source", "quote"),
    [
        (SOURCE, "pay within 60 days."),  # another case
        (SOURCE, "Pay within 61 days."),
        (SOURCE, "Paywithin 60 days."),
        (SOURCE, "Pay with in 60 days."),
        ("you shall re-sign it", "you shall resign it"),  # a hyphen, and not at the end of a line
        ("you shall resign it", "you shall re-sign it"),
        ("of 10-\n20 days", "of 1020 days"),  # figures are not hyphenated
        ("of 10 20 days", "of 10-20 days"),
        ("of 5 degrees", "-5 degrees"),
        ("of 5 degrees", "of 5 degrees —"),
        ("-5 degrees - - of", "- - 5 degrees"),
        ("of 10² metres", "of 102 metres"),
        ('a pipe of 6" in', "a pipe of 6' in"),
        ("un resumé complet", "un resume complet"),
        ("un resume\u0301", "un  resume"),
        ("the o\ufb03ce works", "ice works"),  # begins inside of a ligature
        ("The tenant shall pay the rent.", "pay the rent … The tenant shall"),
        ("The tenant shall pay the rent.", "The tenant … the rent."),  # parts that are too short
        ("The tenant shall pay the rent.", "The tenant shall … pay the rant."),
        (f"The tenant shall {'x' * LEFT_OUT_CHARS} pay the rent.", "The tenant shall … pay the rent."),
        ("tenant shall " * 5, " … ".join(["tenant shall"] * 5)),  # too many parts
        ("the tenant" + " " * LONGEST_QUOTE + "shall pay", "the tenant shall pay"),
        ("... and so on", ". . . . . ."),
        ("of $1,000,000 in all", "of $1,000"),  # figures of another number
        ("of 15 million", "5 million"),
        ("of 1.5 million", "5 million"),
        ("of 15\nmillion", "5 million"),
    ],
)
def test_another_text_is_not_verified(source, quote):
    assert find_quote(quote, source) is None


# --- Any text ---


@given(st.text(st.characters(), max_size=200), st.data())
def test_every_slice_of_a_text_is_verified_at_its_own_place(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    place = find_quote(text[start:end], text, start)
    if is_verifiable_quote(text[start:end]) and not _cuts_number(text, start, end):
        assert place == (start, end)
    elif is_verifiable_quote(text[start:end]):
        assert place is None or not _cuts_number(text, *place)
    else:
        assert place is None


WORDS = [
    "the",
    "tenant\u2019s",
    "rent",
    "“due”",
    "on",
    "10\u201320",
    "May",
    "ofﬁce",
    "— or —",
    "co-owner",
    "café",
    "payment.",
    "租期",
]
GAPS = [" ", "  ", "\n", "\r\n", "\n\n\f", "\u00a0", "\t ", " \u200b"]
MANGLED = str.maketrans(
    {"\u2019": "'", "“": '"', "”": '"', "\u2013": "-", "—": "-", "ﬁ": "fi", "\u00ad": None, "\u200b": None}
)


@st.composite
def documents(draw):
    """Words, some of them hyphenated at the end of a line or by soft hyphens, and gaps of all kinds between them."""
    hyphenated = st.sampled_from(["agree-\nment", "ter\u00admi\u00adnation", "obliga\u00ad\ntion", "land-\n\n  lord"])
    words = draw(st.lists(st.one_of(st.sampled_from(WORDS), hyphenated), min_size=4, max_size=30))
    gaps = draw(st.lists(st.sampled_from(GAPS), min_size=len(words), max_size=len(words)))
    return words, gaps


def plainly(text):
    """Join what is hyphenated, and set marks and spaces plainly."""
    joined = text.replace("-\n\n  ", "").replace("-\n", "").replace("\u00ad\n", "")
    return " ".join(joined.translate(MANGLED).split())


def mangled(words, draw):
    """Write words down as a model does: joined, plain marks, other gaps."""
    return "".join(plainly(word) + draw(st.sampled_from(GAPS)) for word in words).strip()


@given(documents(), st.data())
def test_every_mangled_slice_of_a_document_is_verified_and_a_changed_word_is_not(document, data):
    words, gaps = document
    text = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    first = data.draw(st.integers(0, len(words) - 3))
    last = data.draw(st.integers(first + 2, len(words) - 1))
    quote = mangled(words[first : last + 1], data.draw)
    start = sum(len(word + gap) for word, gap in zip(words[:first], gaps, strict=False))
    whole = "".join(word + gap for word, gap in zip(words[first : last + 1], gaps[first:], strict=False))[
        : -len(gaps[last])
    ]

    place = find_quote(quote, text, start)

    assert place is not None, (quote, text)
    assert plainly(text[slice(*place)]) == plainly(whole)  # the same words stand at several places, perhaps
    at = data.draw(st.integers(first, last))
    changed = [*words[first:at], "zeppelin", *words[at + 1 : last + 1]]
    assert find_quote(mangled(changed, data.draw), text, start) is None


# --- Speed ---


@pytest.mark.long
@every_row(
    ("source", "quote"),
    [
        ("ab" * 120_000, "ab" * 2_000 + "c"),
        ("a" * 120_000, "ab" + "a" * 9_000),
        ("a-b " * 15_000, "a b " * 1_000),  # every place has the letters, and no place the gaps
        ("-" * 120_000 + "\n" * 120_000, "- - - - nothing"),
        ("\u0301" * 25_000, "e\u0301" * 1_000),
        ("tenant shall pay " * 4_000, "tenant shall pay … tenant shall not … tenant shall"),
    ],
)
def test_a_repetitive_text_is_searched_quickly(source, quote):
    assert find_quote(quote, source, len(source) // 2) is None
    assert takes_at_most(1, lambda: find_quote(quote, source, len(source) // 2))
