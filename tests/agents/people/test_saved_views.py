"""Saved views: own and shared, named once, bounded, audited."""

import pytest

from agents.exceptions import Invalid, NotFound
from agents.models import SavedView
from agents.people.saved_views import MAX_VIEWS, QUERY_CHARS, view_delete, view_save, views_of
from tests.factories import NOW, make_user

from .rows import allowed, told

pytestmark = pytest.mark.django_db


def save(by, name="Failed", **more):
    return view_save(
        **{"list_name": "finding", "name": name, "query": "q=x", "shared": False, "by": by, "now": NOW, **more}
    )


def test_own_and_shared_views_are_listed_by_name():
    mine, other = make_user(), make_user()
    save(other, "Secret")
    shared = save(other, "B", shared=True)
    own = save(mine, "A")
    save(mine, "elsewhere", list_name="approval")
    assert list(views_of(mine, "finding")) == [own, shared]


def test_own_views_stand_before_shared_ones():
    mine, other = make_user(), make_user()
    shared = save(other, "A", shared=True)
    own = [save(mine, "B", shared=True), save(mine, "C")]
    assert list(views_of(mine, "finding")) == [*own, shared]
    assert list(views_of(other, "finding")) == [shared, own[0]]


def test_same_name_is_replaced():
    user = make_user()
    first = save(user)
    again = save(user, query="state=all", shared=True)
    assert first.pk == again.pk
    assert SavedView.objects.values_list("query", "is_shared").get() == ("state=all", True)
    assert [row[0] for row in told("view.saved")] == ["view.saved", "view.saved"]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"name": " \u200b\n"}, "a name"), ({"query": "x" * (QUERY_CHARS + 1)}, "the maximum is 1000")],
)
def test_unusable_views_are_refused(more, words):
    with pytest.raises(Invalid, match=words):
        save(make_user(), **more)
    assert not SavedView.objects.exists()


def test_number_of_views_is_bounded():
    user = make_user()
    for number in range(MAX_VIEWS):
        save(user, f"view {number}")
    with pytest.raises(Invalid, match="the maximum"):
        save(user, "one more")
    save(user, "view 0", query="other")
    save(user, "one more", list_name="approval")
    assert SavedView.objects.count() == MAX_VIEWS + 1


def test_only_the_owner_or_the_permission_deletes():
    owner = make_user()
    first, second = save(owner, "a", shared=True), save(owner, "b", shared=True)
    with pytest.raises(NotFound):
        view_delete(view=first, by=make_user(), now=NOW)
    admin = allowed("delete_savedview")
    view_delete(view=first, by=admin, now=NOW)
    pk = second.pk
    view_delete(view=second, by=owner, now=NOW)
    assert not SavedView.objects.exists()
    assert told("view.deleted")[-1] == ("view.deleted", f"user:{owner.pk}", {"view_id": pk, "list": "finding"})
