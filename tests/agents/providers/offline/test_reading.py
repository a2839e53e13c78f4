"""Parts of the reading: words, sentences, figures and negation."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agents.providers.offline.text import (
    DAYS,
    LEAST,
    MAX_SENTENCE,
    MOST,
    Document,
    difference,
    quantities,
    split_sentences,
    stem,
    words_of,
)
from agents.providers.offline.verdicts import is_negated, requirements_of
from tests.table import every_row


def shown(text):
    return [text[one.start : one.end] for one in split_sentences(text) if not one.is_heading]


@every_row(
    ("text", "sentences"),
    [
        ("It rains. It pours! Does it? Four", ["It rains.", "It pours!", "Four"]),
        ("See Sec. 4 of Acme Inc. and so on. Next one.", ["See Sec. 4 of Acme Inc. and so on.", "Next one."]),
        (
            "Wrapped text goes on over\r\nseveral lines. It ends here.",
            ["Wrapped text goes on over\r\nseveral lines.", "It ends here."],
        ),
        ("He said \u201cno.\u201d She left.", ["He said \u201cno.\u201d", "She left."]),
        ("1.2 The fee is due. 1.3 It is fixed.", ["1.2 The fee is due.", "1.3 It is fixed."]),
        ("- first point\n- second point", ["- first point", "- second point"]),
        ("本合同有效。双方同意。", ["本合同有效。", "双方同意。"]),
        ("Total: 5 EUR\nTerms: Net 30", ["Total: 5 EUR", "Terms: Net 30"]),
        ("| Encrypted? | No. |\n| Tested? | Yes |", ["| Encrypted? | No. |", "| Tested? | Yes |"]),
        ("", []),
    ],
)
def test_sentences(text, sentences):
    assert shown(text) == sentences


@given(st.text(max_size=300))
def test_sentences_are_in_order_and_hold_every_word(text):
    spans = [(one.start, one.end) for one in split_sentences(text)]

    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(any(start <= word.start < end for start, end in spans) for word in words_of(text))


def test_sentences_keep_the_heading_lead_in_or_question_above_them():
    text = (
        "# Terms\n\n7. Termination. Either party may end it.\n\nDuties\nThe Supplier shall not:\n(a) sell data;\n"
        "(b) lose data.\nIs it tested?\nYes."
    )
    found = {text[one.start : one.end]: one for one in split_sentences(text)}

    assert found["# Terms"].is_heading
    assert found["7. Termination."].is_heading
    assert found["Either party may end it."].context == "7. Termination."
    assert found["Duties"].is_heading
    assert found["(a) sell data;"].context == "The Supplier shall not:"
    assert found["Yes."].context == "Is it tested?"


def test_short_lines_without_text_below_are_sentences():
    assert shown("Hard hats required\n\nFire exits kept clear") == ["Hard hats required", "Fire exits kept clear"]
    assert shown("Safety\n\nNo smoking") == ["No smoking"]


def test_a_very_long_sentence_is_cut():
    assert max(map(len, shown("word " * 2_000))) <= MAX_SENTENCE
    assert max(map(len, shown("w" * 4_000))) <= MAX_SENTENCE


def test_words_are_lower_case_without_possessives():
    assert [word.text for word in words_of("The Customer\u2019s AES256, 1,000.50 don't")] == [
        "the", "customer", "aes", "256", "1,000.50", "don't",
    ]  # fmt: skip


@every_row("phrase", ["Late payments", "late  PAYMENTS", "late-payments", "\u201clate payments\u201d"])
def test_a_phrase_is_found_where_it_stands(phrase):
    text = "Some late\n  payments here"
    start, end = Document(text).phrase(phrase)

    assert text[start:end] == "late\n  payments"


@every_row("phrase", ["early payments", "payment", "!!", " "])
def test_an_absent_phrase_is_not_found(phrase):
    assert Document("Some late payments here.").phrase(phrase) is None


@every_row("words", ["terminate terminated termination", "pay paid payment payable", "notify notice", "renew renewal"])
def test_forms_of_a_word_have_one_stem(words):
    assert len({stem(word) for word in words.split()}) == 1


def test_numbers_and_words_without_a_subject_have_no_stem():
    assert stem("the") == stem("thirty") == stem("30") == ""


@every_row(
    ("text", "found"),
    [
        ("within thirty (30) days", [(30, DAYS, MOST)]),
        ("no later than 2 weeks", [(14, DAYS, MOST)]),
        ("not less than forty-five days", [(45, DAYS, LEAST)]),
        ("at least 10 business days", [(10, DAYS, LEAST)]),
        ("net 30", [(30, DAYS, MOST)]),
        ("48 hours, one year", [(2, DAYS, ""), (365.25, DAYS, "")]),
        ("not to exceed USD 1.5 million", [(1_500_000, "USD", MOST)]),
        ("EUR 5, \u00a31,000.50 or 20 dollars", [(5, "EUR", ""), (1000.5, "GBP", ""), (20, "USD", "")]),
        ("at least 99.9 % or 5 percent of 5 persons", [(99.9, "%", LEAST), (5, "%", ""), (5, "person", "")]),
        ("no fewer than 3 copies", [(3, "copi", LEAST)]),
        ("8.1 Each party in Section 5", []),
    ],
)
def test_quantities(text, found):
    assert [(round(one.value, 2), one.unit, one.bound) for one in quantities(text)] == found


@every_row(
    ("found", "wanted", "why"),
    [
        ("within one month", "within 30 days", ""),
        ("within 31 days", "within 30 days", "more than"),
        ("20 days", "at least 30 days", "less than"),
        ("40 days", "at least 30 days", ""),
        ("30 days", "60 days", "less than"),
    ],
)
def test_quantities_are_compared(found, wanted, why):
    said = difference(quantities(found)[0], quantities(wanted)[0])

    assert why in said
    assert bool(why) == bool(said)


@every_row(
    ("clause", "expected"),
    [
        ("The Supplier shall pay.", False),
        ("The Supplier shall not pay.", True),
        ("Payment is prohibited.", True),
        ("Payment is not prohibited.", False),
        ("Neither party may assign without consent.", False),
        ("Nobody may enter unless permitted.", False),
        ("The fee shall not exceed 5 EUR.", False),
        ("Neither party's liability shall exceed 5 EUR.", False),
        ("This includes, but is not limited to, paper.", False),
    ],
)
def test_negation(clause, expected):
    assert is_negated(clause) is expected


def test_a_clause_without_content_requires_nothing():
    assert [one.text for one in requirements_of("The goods are new; and so")] == ["The goods are new"]
    assert requirements_of("of the") == []
