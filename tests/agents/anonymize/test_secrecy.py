"""The mapping stays in its instance: not in repr, pickles, log lines or other calls."""

import copy
import gc
import logging
import pickle
import re
import sys
import threading

import pytest

from agents.anonymize import Anonymizer, Kind
from agents.anonymize.anonymizer import FORMS, LAST_LETTERS, LONGEST
from agents.anonymize.reading import Span, merged
from tests.table import every_row

TEXT = "Mr Weber <weber@example.com>, account 4455667788"


def test_repr_shows_nothing_of_the_values():
    anonymizer = Anonymizer(["Zaphod Beeblebrox"])
    anonymizer.hide(TEXT)
    stream = anonymizer.stream()
    stream.feed("PERSON_")
    assert not hasattr(anonymizer, "__dict__")
    assert not hasattr(stream, "__dict__")
    assert not re.search("Weber|Zaphod|PERSON", f"{anonymizer!r}{anonymizer}{stream!r}")


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_anonymizer_can_be_neither_pickled_nor_copied(take):
    anonymizer = Anonymizer()
    anonymizer.hide(TEXT)
    for holder in (anonymizer, anonymizer.stream()):
        with pytest.raises(TypeError, match="holds the personal data of one call") as refused:
            take(holder)
        assert "Weber" not in str(refused.value)


def test_an_anonymizer_writes_no_log_line(caplog):
    with caplog.at_level(logging.DEBUG):
        anonymizer = Anonymizer(["Anna Weber"])
        anonymizer.restore(anonymizer.hide(TEXT))
    assert caplog.records == []


def test_modules_keep_nothing_of_a_call():
    canary = "Quetzalcoatlus"
    anonymizer = Anonymizer([f"{canary} Ltd"])
    anonymizer.hide(f"Mr {canary}, {canary}@example.com")
    del anonymizer
    gc.collect()
    modules = [module for name, module in sys.modules.items() if name.startswith("agents.anonymize")]
    assert len(modules) == 5  # the folder, whole
    seen = " ".join(repr(value) for module in modules for value in vars(module).values())
    assert canary not in seen
    gc.unfreeze()  # what was loaded before the tests is looked through as well
    held = [thing for thing in gc.get_objects() if type(thing) is dict and canary.lower() in thing]
    gc.freeze()
    assert held == []


def test_two_calls_know_nothing_of_each_other():
    first, second = Anonymizer(["Anna Weber"]), Anonymizer()
    assert second.hide("Anna Weber") == "Anna Weber"
    hidden = first.hide(TEXT)
    assert second.restore(hidden) == hidden or hidden.split("_")[2][:3] == second.hide("a@b.de").split("_")[2]


def test_threads_with_an_instance_each_do_not_mix():
    wrong = []

    def work(number):
        anonymizer = Anonymizer([f"Name{number}er"])
        for turn in range(30):
            text = f"Mr Person{number}x{turn} wrote u{number}.{turn}@example.com to Name{number}er."
            text = text.replace(str(number), chr(97 + number))
            hidden = anonymizer.hide(text)
            if anonymizer.restore(hidden) != text or "@" in hidden:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_placeholders_are_plain_short_and_marked_at_random():
    hidden = [Anonymizer().hide("a@example.com") for _ in range(40)]
    assert all(re.fullmatch(r"EMAIL_1_[a-z][0-9][a-z]", placeholder) for placeholder in hidden)
    assert len(set(hidden)) > 20
    assert max(len(kind) + len("_1_x7k") for kind in Kind) == 12
    assert LONGEST == 23
    assert len(FORMS) == 26


def test_no_placeholder_completes_a_mark_that_was_cut_short():
    assert not {kind[0].lower() for kind in Kind} & set(LAST_LETTERS)
    for _ in range(60):
        anonymizer = Anonymizer()
        mark = anonymizer.hide("a@example.com").rpartition("_")[2]
        for kind, value in zip(
            ("PHONE", "IP", "CARD", "ORG"), ("+493012345678", "203.0.113.9", "4222222222222", "Acme Ltd"), strict=True
        ):
            text = f"EMAIL_1_{mark[:2]} {value} {kind}_1_{mark[:2]}"
            assert anonymizer.restore(anonymizer.hide(text)) == text


def test_no_kind_ends_with_another():
    assert not [(a, b) for a in Kind for b in Kind if a != b and a.endswith(b)]


def test_an_original_has_one_placeholder_in_all_texts_of_a_call():
    anonymizer = Anonymizer()
    first = anonymizer.hide("a@example.com")
    assert anonymizer.hide("b@example.com and a@example.com").endswith(first)
    assert anonymizer.hide("A@Example.com") == first.replace("_1_", "_1b_")


def test_spellings_of_one_number_share_their_number():
    hidden = Anonymizer().hide(
        "DE89 3704 0044 0532 0130 00, DE89370400440532013000, 4111 1111 1111 1111, 4111111111111111"
    )
    assert [word.split("_")[1] for word in hidden.split(", ")] == ["1", "1b", "1", "1b"]


@every_row(
    ("spans", "expected"),
    [
        ([], []),
        ([(0, 5, "IP"), (5, 9, "CARD")], [(0, 5, "IP", ""), (5, 9, "CARD", "")]),
        ([(0, 5, "IP", "k"), (4, 12, "CARD"), (11, 14, "IBAN")], [(0, 14, "CARD", "")]),
        ([(0, 9, "ORG", "k"), (2, 4, "IP")], [(0, 9, "ORG", "k")]),
        ([(0, 9, "ORG"), (0, 9, "ORG", "k")], [(0, 9, "ORG", "k")]),
        ([(0, 9, "PHONE"), (0, 9, "CARD", "")], [(0, 9, "CARD", "")]),
        ([(0, 9, "PERSON"), (3, 12, "IBAN")], [(0, 12, "IBAN", "")]),
    ],
)
def test_overlapping_spans_are_joined_under_the_heaviest_kind(spans, expected):
    made = [Span(start, end, Kind(kind), *key) for start, end, kind, *key in spans]
    assert [tuple(span) for span in merged(made)] == expected
    assert merged(reversed(made)) == merged(made)
