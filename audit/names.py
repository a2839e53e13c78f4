"""Names of the users whose ids stand in the record: a courtesy of whoever shows it, no part of the record."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth import get_user_model

USER: Final = re.compile(r"\buser:(\d{1,18})\b", re.ASCII)


def usernames(actors: Iterable[str]) -> dict[str, str]:
    """By actor, such as user:7, the name of that user; actors that are no users, or are gone, have none."""
    pks = [int(found[1]) for actor in set(actors) if (found := USER.fullmatch(actor))]
    users = get_user_model().objects.in_bulk(pks)
    return {f"user:{pk}": user.get_username() for pk, user in users.items()}


def actors_of(receipt: Mapping[str, Any]) -> set[str]:
    """Everybody whom a receipt names."""
    return {f"user:{receipt['owner_id']}", receipt["asked_by"] or "", *(event["actor"] for event in receipt["events"])}
