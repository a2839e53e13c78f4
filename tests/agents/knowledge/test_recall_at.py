"""The labelled set is sound, and full-text search answers what it is known to answer."""

from collections import Counter

import pytest

from agents.knowledge.search import search_chunks
from tests.agents.knowledge.recall_at import FIRST, KINDS, answered, labelled_questions
from tests.agents.knowledge.samples import make_document
from tests.factories import make_user

QUESTIONS = labelled_questions()


def test_each_passage_has_a_name_and_a_question_of_its_own():
    assert len({one.name for one in QUESTIONS}) == len({one.question for one in QUESTIONS}) == len(QUESTIONS) == 40
    assert Counter(one.kind for one in QUESTIONS) == {"same": 14, "other": 13, "mixed": 13}
    assert set(KINDS) == {one.kind for one in QUESTIONS}


def test_only_the_first_hits_count():
    [first, *_] = QUESTIONS
    others = [f"other {number}" for number in range(FIRST)]

    assert answered([first], lambda _: [*others[1:], first.name]) == {first.kind: 1}
    assert not answered([first], lambda _: [*others, first.name])


@pytest.mark.django_db
def test_full_text_answers_what_shares_words_and_nothing_else():
    owner = make_user()
    for one in QUESTIONS:
        make_document(owner, one.text, name=one.name)

    found = answered(QUESTIONS, lambda text: [hit.name for hit in search_chunks(owner_id=owner.pk, query=text)])

    assert found == {"same": 14, "mixed": 12}  # of 14 and 13; none of the 13 in other words
