"""Saved views of lists: a search with its filters under a name, for oneself or shared with everybody.

A view holds a query and no rows: whoever opens a shared one sees what they may see.
"""

from datetime import datetime
from typing import Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Case, Q, QuerySet, When

from agents.exceptions import Invalid
from agents.models import SavedView
from agents.people.access import record_act, require_access
from agents.text.clean import one_line

MAX_VIEWS: Final = 20
NAME_CHARS: Final = 60
QUERY_CHARS: Final = 1_000
DELETE_PERMISSION: Final = "agents.delete_savedview"


def views_of(user: User, list_name: str) -> QuerySet[SavedView]:
    """Return the views of a list that this user has, by name, then those that others share."""
    rows = SavedView.objects.filter(Q(owner_id=user.pk) | Q(is_shared=True), list_name=list_name)
    is_shared_by_others = Case(When(owner_id=user.pk, then=0), default=1)
    return rows.select_related("owner").order_by(is_shared_by_others, "name", "pk")


@transaction.atomic
def view_save(*, list_name: str, name: str, query: str, shared: bool, by: User, now: datetime) -> SavedView:
    """Save a view; one of the same name is replaced."""
    name = one_line(name, NAME_CHARS)
    if not name:
        raise Invalid("Give the view a name.")
    if len(query) > QUERY_CHARS:
        raise Invalid(f"The search and filters have {len(query)} characters; the maximum is {QUERY_CHARS}.")
    own = User.objects.select_for_update().get(pk=by.pk).lqops_views.filter(list_name=list_name)
    if own.exclude(name=name).count() >= MAX_VIEWS:
        raise Invalid(f"You have {MAX_VIEWS} views of this list, which is the maximum. Delete one first.")
    given = {"query": query, "is_shared": shared, "created_at": now}
    view, _ = SavedView.objects.update_or_create(owner=by, list_name=list_name, name=name, defaults=given)
    subject = f"view:{view.pk}"
    record_act("view.saved", by=by, now=now, subject=subject, view_id=view.pk, list=list_name, shared=shared)
    return view


@transaction.atomic
def view_delete(*, view: SavedView, by: User, now: datetime) -> None:
    """Delete a view: one's own, or with the permission a shared one of somebody else."""
    require_access(by, owner_id=view.owner_id, permission=DELETE_PERMISSION)
    pk = view.pk
    if view.delete()[0]:
        record_act("view.deleted", by=by, now=now, subject=f"view:{pk}", view_id=pk, list=view.list_name)
