"""Sessions of browsers: sign a user out everywhere."""

from datetime import datetime

from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction

from agents.exceptions import NotAllowed
from agents.people.access import COMMAND, record_act


@transaction.atomic
def browser_sessions_end(*, user: User, by: User | None, now: datetime, keep: str = "") -> int:
    """Sign a user out of every browser, but for the session whose key is kept. Returns how many sessions ended."""
    if by is not None and by.pk != user.pk:
        if not by.has_perm("auth.change_user"):
            raise NotAllowed("Signing out somebody else needs the permission auth.change_user.")
        if user.is_superuser and not by.is_superuser:
            raise NotAllowed("Only a superuser may sign out a superuser.")
    ended = browser_sessions_delete(user, keep=keep)
    details = {"user_id": user.pk, "sessions": ended}
    record_act("people.signed_out", by=by, now=now, subject=f"user:{user.pk}", unnamed=COMMAND, **details)
    return ended


def browser_sessions_delete(user: User, *, keep: str = "") -> int:
    """Delete the sessions of a user, also those that no list shows: whose they are is written inside each of them."""
    keys = [
        row.session_key
        for row in Session.objects.exclude(session_key=keep).iterator()
        if row.get_decoded().get(SESSION_KEY) == str(user.pk)
    ]
    UserSession.objects.filter(user_id=user.pk).exclude(session_key=keep).delete()
    deleted, _ = Session.objects.filter(session_key__in=keys).delete()
    return deleted
