"""Names of the users, and of the things, whose ids stand in the record: a courtesy of whoever shows it, no part of it.

What the things are the record does not know: whoever does says how they are named, to whom.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

Named = Callable[[Mapping[str, Any], AbstractBaseUser | AnonymousUser], Mapping[str, Any]]
_known: list[Named] = []


def name_things_by(named: Named) -> None:
    """Takes the one who knows the names of what receipts speak of."""
    _known[:] = [named]


def names_of_things(receipt: Mapping[str, Any], user: AbstractBaseUser | AnonymousUser) -> Mapping[str, Any]:
    """What this user may be told beside the receipt; nothing if nobody knows."""
    return {name: told for named in _known for name, told in named(receipt, user).items()}


USER: Final = re.compile(r"\buser:(\d{1,18})\b", re.ASCII)


def usernames(actors: Iterable[str]) -> dict[str, str]:
    """By actor, such as user:7, the name of that user; actors that are no users, or are gone, have none."""
    pks = [int(found[1]) for actor in set(actors) if (found := USER.fullmatch(actor))]
    users = get_user_model().objects.in_bulk(pks)
    return {f"user:{pk}": user.get_username() for pk, user in users.items()}


def actors_of(receipt: Mapping[str, Any]) -> set[str]:
    """Everybody whom a receipt names."""
    return {f"user:{receipt['owner_id']}", receipt["asked_by"] or "", *(event["actor"] for event in receipt["events"])}
