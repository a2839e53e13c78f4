"""Hidden text is restored exactly: any text, any lookalike, ten thousand values."""

import random
import re
import string

from hypothesis import given
from hypothesis import strategies as st

from agents.anonymize import Anonymizer, Kind
from tests.agents.anonymize.test_recall import MAKERS, SENTENCES, TITLES


def mark_of(anonymizer: Anonymizer) -> str:
    return anonymizer.hide("a@example.com").rpartition("_")[2]


@st.composite
def spliced(draw):
    """A text with values of every kind, glued together with anything."""
    source = random.Random(draw(st.integers(0, 10_000)))
    glue = st.text(st.sampled_from(" \n\t.,;:-_'\"\\&@+/()ab1\u00fc\u0301\u2019王") | st.characters(), max_size=6)
    pieces = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(sorted(MAKERS)))
        value = MAKERS[kind](source)
        shown = draw(st.sampled_from([value, f"{source.choice(TITLES)} {value}", SENTENCES[kind][0].format(value)]))
        pieces += [draw(glue), shown, draw(glue)]
    return "".join(pieces)


@given(st.text(max_size=300))
def test_any_text_is_restored(text):
    anonymizer = Anonymizer(["Anna Müller"])
    assert anonymizer.restore(anonymizer.hide(text)) == text


@given(spliced())
def test_any_text_with_personal_data_is_restored(text):
    anonymizer = Anonymizer(["Anna Müller", "Süd-Öl GmbH"])
    hidden = anonymizer.hide(text)
    assert anonymizer.restore(hidden) == text
    assert anonymizer.hide(text) == hidden


@given(st.lists(spliced(), max_size=4), st.data())
def test_text_with_lookalike_placeholders_is_restored(pieces, data):
    """The mark of the call is known to the attacker here, which it is not in life."""
    anonymizer = Anonymizer()
    mark = mark_of(anonymizer)
    forged = st.builds(
        lambda kind, number, form, cut, case: case(f"{kind}_{number}{form}_{mark}")[cut:],
        st.sampled_from(sorted(Kind)),
        st.integers(0, 12),
        st.sampled_from(["", "b", "z"]),
        st.sampled_from([0, 0, 0, 1, 3]),
        st.sampled_from([str, str.lower, str.title, lambda text: text.replace("_", "\\_"), lambda text: text[:-1]]),
    )
    text = "".join(piece + data.draw(forged) for piece in pieces) + data.draw(forged)
    assert anonymizer.restore(anonymizer.hide(text)) == text


@given(spliced())
def test_nothing_hidden_is_left_in_the_text(text):
    """Whatever stands behind a placeholder stands nowhere else as a word, so far as it tells anything."""
    anonymizer = Anonymizer()
    hidden = anonymizer.hide(text)
    for placeholder in re.findall(rf"(?:EMAIL|IBAN|CARD)_\d+[b-z]?_{mark_of(anonymizer)}", hidden):
        original = anonymizer.restore(placeholder)
        assert not re.search(rf"(?<![\w.'%+@-]){re.escape(original)}(?![\w.@:-])", hidden)


def test_a_labelled_number_is_hidden_elsewhere_without_its_label():
    hidden = Anonymizer().hide(
        "Pay 4455667788. Account number 4455667788! Tel. 912 345 678 or 912 345 678 (x4455667788)"
    )
    assert "4455667788." not in hidden
    assert "912 345 678" not in hidden
    assert "x4455667788" in hidden  # a part of a longer word is another word


def test_placeholders_of_other_calls_stay_unchanged():
    anonymizer = Anonymizer()
    mark = mark_of(anonymizer)
    other = "q0q" if mark != "q0q" else "z9z"
    text = f"PERSON_1 EMAIL_1_{other} [PERSON_1_{other}] a@example.com"
    hidden = anonymizer.hide(text)
    assert hidden == f"PERSON_1 EMAIL_1_{other} [PERSON_1_{other}] EMAIL_1_{mark}"
    assert anonymizer.restore(hidden) == text
    for foreign in ("EMAIL_1", f"EMAIL_2_{mark}", f"EMAIL_1b_{mark}", f"EMAIL_1_{other}", f"PERSON_1_{mark}"):
        assert anonymizer.restore(foreign) == foreign


def test_a_placeholder_of_this_call_in_the_input_is_text():
    anonymizer = Anonymizer()
    hidden = anonymizer.hide("a@example.com")
    twice = anonymizer.hide(f"{hidden} b@example.com")
    assert twice.startswith("TEXT_1_")
    assert anonymizer.restore(twice) == f"{hidden} b@example.com"


def test_a_placeholder_that_overlaps_another_calls_is_restored():
    for _ in range(30):
        anonymizer = Anonymizer(["Zed"])
        text = "PERSON_1_a1Zed, ORG_3_b2 PERSON_1_a1_Zed"
        assert anonymizer.restore(anonymizer.hide(text)) == text
        mark = mark_of(anonymizer)
        reply = f"PERSON_1_a1PERSON_1_{mark}"
        anonymizer.hide("Zed")
        assert anonymizer.restore(reply) == "PERSON_1_a1Zed"


def test_thousands_of_values_stay_distinct():
    source = random.Random(5)
    values = list(
        dict.fromkeys("".join(source.choices(string.ascii_lowercase, k=9)) + "@example.com" for _ in range(3_000))
    )
    anonymizer = Anonymizer()
    text = "\n".join(values)
    hidden = anonymizer.hide(text)
    assert len(set(hidden.split("\n"))) == len(values) == 3_000
    assert "@" not in hidden
    assert anonymizer.restore(hidden) == text
    assert anonymizer.restore(hidden.lower()) == text


def test_more_spellings_than_letters_get_a_number_of_their_own():
    name = "abcdefgh"
    spellings = ["".join(c.upper() if n >> at & 1 else c for at, c in enumerate(name)) for n in range(60)]
    anonymizer = Anonymizer([name])
    text = " ".join(spellings)
    hidden = anonymizer.hide(text)
    assert anonymizer.restore(hidden) == text
    assert len(set(hidden.split())) == 60
    assert {word.split("_")[1].rstrip(string.ascii_lowercase) for word in hidden.split()} == {"1", "2", "3"}
