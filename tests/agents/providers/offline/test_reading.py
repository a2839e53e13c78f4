"""Parts of the reading: words, sentences, quantities, polarity and names."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.providers.offline.text import (
    DAY,
    EVERY,
    GENERIC,
    LEAST,
    LONGEST_SENTENCE,
    MOST,
    OPPOSITE_ROLES,
    OPPOSITES,
    PERCENT,
    PERCENT_A_YEAR,
    Document,
    difference,
    meaning,
    quantities,
    split_sentences,
    stem,
    words_of,
)
from agents.providers.offline.verdicts import (
    AFFIRMS,
    FORBIDS,
    RESTRICTS,
    commitment_of,
    contradiction,
    names_in,
    requirements_of,
)
from tests.table import every_row


def shown(text):
    return [text[one.start : one.end] for one in split_sentences(text) if not one.is_heading]


@every_row(
    ("text", "sentences"),
    [
        ("It rains. It pours! Does it? Four", ["It rains.", "It pours!", "Does it?", "Four"]),
        ("See Sec. 4 of Acme Inc. v. Doe. Next one.", ["See Sec. 4 of Acme Inc. v. Doe.", "Next one."]),
        (
            "It runs from 1 Jan. to 31 Dec. 2025. Then it ends.",
            ["It runs from 1 Jan. to 31 Dec. 2025.", "Then it ends."],
        ),
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
        ("Do you test backups?\n\nA: Never.", ["Do you test backups?\n\nA: Never."]),
        ("Do you test? The weather is fine.", ["Do you test?", "The weather is fine."]),
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


def test_sentences_keep_their_headings_and_lead_ins():
    text = (
        "# Terms\n\n7. Termination. Either party may end it.\n\nDuties\nThe Supplier shall not:\n(a) sell data;\n"
        "(b) lose data.\nNew text here."
    )
    found = {text[one.start : one.end]: one for one in split_sentences(text)}

    assert found["# Terms"].is_heading
    assert found["7. Termination."].is_heading
    assert found["Either party may end it."].heading == "7. Termination."
    assert (found["(a) sell data;"].heading, found["(a) sell data;"].lead) == ("Duties", "The Supplier shall not:")
    assert found["Duties"].is_heading


def test_short_lines_without_text_below_are_sentences():
    assert shown("Hard hats required\n\nFire exits kept clear") == ["Hard hats required", "Fire exits kept clear"]
    assert shown("Safety\n\nNo smoking") == ["No smoking"]


def test_a_very_long_sentence_is_cut():
    assert max(map(len, shown("word " * 2_000))) <= LONGEST_SENTENCE
    assert max(map(len, shown("w" * 4_000))) <= LONGEST_SENTENCE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Termi-\nnation \ufb01nal soft\u00adhyphen", ["termination", "final", "softhyphen"]),
        ("the Customer\u2019s cafe\u0301, non-\nexclusive", ["the", "customer", "caf\u00e9", "nonexclusive"]),
        ("AES256 1,000.50 don't 's", ["aes", "256", "1,000.50", "don't", "s"]),
    ],
)
def test_words_are_normalised(text, words):
    assert [word.text for word in words_of(text)] == words


@every_row("phrase", ["Late payments", "late  PAYMENTS", "late-payments", "\u201clate payments\u201d", "..."])
def test_a_phrase_is_found_where_it_stands(phrase):
    text = "Some late pay-\n  ments ... here"
    start, end = Document(text).phrase(phrase)

    assert text[start:end] in ("late pay-\n  ments", "...")


@every_row("phrase", ["early payments", "payment", "!!", " "])
def test_an_absent_phrase_is_not_found(phrase):
    assert Document("Some late payments here.").phrase(phrase) is None


@every_row(
    "words",
    [
        "terminate terminates terminated termination cancel",
        "pay paid payment payable settle",
        "notify notice inform",
        "confidential confidentiality secret",
        "indemnify indemnity indemnification",
        "renew renewal extends",
    ],
)
def test_words_with_one_meaning(words):
    assert len({meaning(word) for word in words.split()}) == 1


def test_word_tables_are_consistent():
    assert stem("getting") == "get"
    assert meaning("the") == meaning("thirty") == meaning("30") == ""
    assert "" not in GENERIC | OPPOSITES.keys() | OPPOSITE_ROLES.keys()
    assert all(one in OPPOSITES[other] for one, others in OPPOSITES.items() for other in others)
    assert all(role in OPPOSITE_ROLES[other] for role, others in OPPOSITE_ROLES.items() for other in others)


@every_row(
    ("text", "found"),
    [
        ("within thirty (30) days", [(30, DAY, MOST)]),
        ("Net 60", [(60, DAY, MOST)]),
        ("five business days", [(7, DAY, "")]),
        ("at least 12 characters", [(12, "charact", LEAST)]),
        ("8 or more characters", [(8, "charact", LEAST)]),
        ("TLS 1.2 or higher", [(1.2, "tls", LEAST)]),
        ("not to exceed USD 1.5 million", [(1_500_000, "money USD", MOST)]),
        ("EUR 5k or 10.000,00 EUR", [(5_000, "money EUR", ""), (10_000, "money EUR", "")]),
        ("1.5% per month", [(18, PERCENT_A_YEAR, "")]),
        ("18 percent a year", [(18, PERCENT_A_YEAR, "")]),
        ("fifteen percent (15%) or less", [(15, PERCENT, ""), (15, PERCENT, MOST)]),
        ("one hundred and twenty days", [(120, DAY, "")]),
        ("two thousand five hundred dollars", [(2_500, "money USD", "")]),
        ("no fewer than 3 copies", [(3, "copi", LEAST)]),
        ("tested at least annually", [(365.25, EVERY, MOST)]),
        ("every 2 years", [(730.5, EVERY, MOST)]),
        ("not more than every 7 days", [(7, EVERY, LEAST)]),
        ("once a week", [(7, EVERY, MOST)]),
        ("on the 5th day, the first day", [(5, "day of the month", ""), (1, "day of the month", "")]),
        ("Section 5 on 31 January 2025, 12/05/2024, 10:30, May 4, 2nd", []),
        ("in 2025 one of them, a 7", []),
    ],
)
def test_quantities(text, found):
    assert [(round(one.value, 2), one.unit, one.bound) for one in quantities(text)] == found


@every_row(
    ("found", "wanted", "why"),
    [
        ("within one month", "within 30 days", ""),
        ("within 31 days", "within 30 days", "more than"),
        ("at least 10 days", "within 30 days", "only a minimum"),
        ("at most 40 days", "at least 30 days", "only a maximum"),
        ("20 days", "at least 30 days", "less than"),
        ("30 days", "60 days", "differs"),
        ("EUR 5", "USD 5", "another currency"),
    ],
)
def test_quantities_are_compared(found, wanted, why):
    assert why in difference(quantities(found)[0], quantities(wanted)[0])
    assert bool(why) == bool(difference(quantities(found)[0], quantities(wanted)[0]))


@every_row(
    ("clause", "polarity"),
    [
        ("The Supplier shall pay.", AFFIRMS),
        ("The Supplier shall not pay.", FORBIDS),
        ("Payment is prohibited.", FORBIDS),
        ("Payment is not prohibited.", AFFIRMS),
        ("The fee shall not exceed 5 EUR.", AFFIRMS),
        ("This includes, but is not limited to, paper.", AFFIRMS),
        ("If it does not rain, they play.", AFFIRMS),
        ("Nobody may enter without a permit.", RESTRICTS),
        ("They may enter only with a permit.", RESTRICTS),
        ("Entry requires the prior consent of the owner.", RESTRICTS),
        ("Do you encrypt? No.", FORBIDS),
        ("Is nothing stored in clear? Yes.", AFFIRMS),
        ("Encrypted: [ ] No [x] Yes", AFFIRMS),
    ],
)
def test_polarity(clause, polarity):
    assert commitment_of(clause).polarity == polarity


@every_row(
    ("found", "wanted", "why"),
    [
        ("The Supplier shall pay", "The Supplier shall pay", ""),
        ("The Supplier shall not pay", "The Supplier shall pay", "opposite"),
        ("The Supplier may pay", "The Supplier shall pay", "allows"),
        ("The Supplier shall use reasonable efforts to pay", "The Supplier shall pay", "efforts"),
        ("The Customer shall pay", "The Supplier shall pay", "other side"),
        ("Fees are paid by the Customer", "Fees are paid by the Supplier", "other side"),
        ("Fees are paid by check", "The Supplier pays fees", ""),
        ("Each party shall pay", "The Supplier shall pay", ""),
        ("It may enter only with consent", "It may enter", "condition"),
        ("It shall pay only after delivery", "It shall pay after delivery", ""),
        ("It may assign", "It may not assign", "opposite"),
        ("It may not assign without consent", "It may not assign", "exception"),
        ("It may assign", "It may assign only with consent", "lacks"),
    ],
)
def test_contradictions_between_clauses_are_found(found, wanted, why):
    said = contradiction(commitment_of(found), commitment_of(wanted))

    assert why in said
    assert bool(why) == bool(said)


def test_capitalised_words_behind_an_article_are_not_names():
    assert names_in("governed by the laws of the State of New York") == {"new", "york"}
    assert names_in("The Processor shall tell the Controller.") == frozenset()


def test_a_clause_without_content_requires_nothing():
    assert [one.text for one in requirements_of("The goods are new; and so on")] == ["The goods are new"]
    assert requirements_of("of the") == []
