"""Which memories and precedents a prompt gets: by shared words and age, within a budget, of one owner only."""

from datetime import timedelta

import pytest

from agents.knowledge.projects import memory_keep
from agents.knowledge.recall import ALIKE, memories_for, near_duplicates, precedents_alike, precedents_for
from agents.models import Memory
from agents.text.wording import likeness, stems
from tests.agents.people.rows import make_precedent
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db

TASK = "Check the payment terms of this lease."


@pytest.fixture
def owner():
    return make_user()


def kept(owner, content, *, days_ago=0):
    memory = Memory.objects.create(owner=owner, content=content, created_at=NOW)
    return memory_keep(memory=memory, by=owner, now=NOW - timedelta(days=days_ago))


def chosen(owner, task=TASK, tokens=1_000):
    return [memory.content for memory in memories_for(owner_id=owner.pk, task=task, tokens=tokens)]


def test_memory_that_shares_words_goes_before_a_newer_one(owner):
    kept(owner, "The landlord accepts late payments.", days_ago=30)
    kept(owner, "The office closes at noon.")
    assert chosen(owner) == ["The landlord accepts late payments.", "The office closes at noon."]


def test_of_equally_relevant_memories_the_newer_one_goes_first(owner):
    kept(owner, "Payment in euros.", days_ago=1)
    kept(owner, "Payment in dollars.", days_ago=2)
    assert chosen(owner) == ["Payment in euros.", "Payment in dollars."]


def test_very_old_memory_loses_to_a_new_one_that_shares_nothing(owner):
    kept(owner, "Late payments are fine.", days_ago=5 * 365)
    kept(owner, "The office closes at noon.")
    assert chosen(owner)[0] == "The office closes at noon."


def test_choice_stays_within_its_budget_and_is_stable(owner):
    for number in range(20):
        kept(owner, f"Payment {number}: " + "x" * 300, days_ago=number)
    kept(owner, "Payment: short.", days_ago=40)
    first = chosen(owner, tokens=400)
    assert sum(map(len, first)) <= 400 * 4
    assert first[-1] == "Payment: short.", "a short one still fits where a long one does not"
    assert first == chosen(owner, tokens=400)
    assert chosen(owner, tokens=0) == []


def test_only_kept_memories_of_the_owner_are_chosen(owner):
    other = make_user()
    kept(other, "Payment: of others.")
    Memory.objects.create(owner=owner, content="Payment: proposed.", created_at=NOW)
    Memory.objects.create(owner=owner, content="Payment: deleted.", state="kept", kept_at=NOW, deleted_at=NOW)
    Memory.objects.create(owner=owner, content="Payment: dismissed.", state="dismissed", kept_at=NOW)
    assert chosen(owner) == []


def test_likely_precedents_are_those_that_share_words(owner):
    often = make_precedent(owner, "Payment after 60 days", observed_count=9)
    once = make_precedent(owner, "Payment in advance", observed_count=1)
    make_precedent(owner, "No parking")
    make_precedent(owner, "Payment after 90 days", dismissed_at=NOW)
    make_precedent(make_user(), "Payment of others")
    assert precedents_for(owner_id=owner.pk, task=TASK, now=NOW) == [often, once]
    assert precedents_for(owner_id=owner.pk, task=TASK, now=NOW, limit=1) == [often]
    assert precedents_for(owner_id=owner.pk, task="nothing of the kind", now=NOW) == []


def test_near_duplicates_are_found_and_different_ones_are_not(owner):
    one = make_precedent(owner, "Payments are due after 60 days")
    other = make_precedent(owner, "Payment is due 60 days after receipt", pattern_kind="habit")
    make_precedent(owner, "Payment is due at once")
    make_precedent(make_user(), "Payments are due after 60 days")
    assert near_duplicates(owner.pk) == {one.pk: other.pk, other.pk: one.pk}
    assert near_duplicates(owner.pk, of=[one.pk]) == {one.pk: other.pk}
    assert precedents_alike(one) == [other]
    assert near_duplicates(make_user().pk) == {}


def test_every_near_duplicate_is_found(owner):
    """The short cut over rare words finds what comparing each with each finds."""
    words = ["rent", "notice", "term", "payment", "parking", "late", "early", "capped"]
    rows = [
        make_precedent(owner, " ".join(words[a:b]), pattern_kind=f"{a}_{b}") for a in range(8) for b in range(a + 1, 9)
    ]
    stemmed = {row.pk: stems(row.summary) for row in rows}
    wanted = {
        pk: max(likeness(mine, other) for other_pk, other in stemmed.items() if other_pk != pk)
        for pk, mine in stemmed.items()
    }
    found = near_duplicates(owner.pk)
    assert {pk: likeness(stemmed[pk], stemmed[other]) for pk, other in found.items()} == {
        pk: best for pk, best in wanted.items() if best >= ALIKE
    }
