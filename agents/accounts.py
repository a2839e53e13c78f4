"""Users of the installation, as far as lqops itself makes or changes them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agents.enums import Mode, TerminalReason
from agents.exceptions import NotAllowed
from agents.models import AgentSession, Profile
from agents.people.access import actor_of
from agents.sessions.halts import sessions_halt
from audit import recorder
from audit.models import SYSTEM_CHAIN

FIRST_ADMIN = "admin"
OPTED_OUT = "The owner has opted out."


def profile_set(*, user: User, opted_in: bool, by: User | None, now: datetime, halt_all: bool = False) -> Profile:
    """Lets agents run in the background for a user, or no longer.

    Opting out ends the user's loops and heartbeats, which would never end by themselves; a phased run is left to
    finish, unless `halt_all` is asked for. The word is committed first, so nothing new starts; then each session is
    halted on its own. Said again, it halts what an interrupted opting out has left.
    """
    _check_person(user, by)
    with transaction.atomic():
        profile, _ = Profile.objects.update_or_create(user=user, defaults={"opted_in": opted_in})
        kind = "people.opted_in" if opted_in else "people.opted_out"
        _record(user, kind, by=by, now=now)
    if not opted_in:
        going = AgentSession.objects.active().filter(owner=user)
        ended = going if halt_all else going.filter(mode__in=(Mode.LOOP, Mode.HEARTBEAT))
        pks = list(ended.order_by("pk").values_list("pk", flat=True))
        sessions_halt(pks, by=by, reason=OPTED_OUT, now=now, ends_as=TerminalReason.OPTED_OUT)
    return profile


@transaction.atomic
def email_notices_set(*, user: User, enabled: bool, by: User | None, now: datetime) -> Profile:
    """Whether the user's notices are sent by e-mail as well."""
    _check_person(user, by)
    profile, _ = Profile.objects.update_or_create(user=user, defaults={"email_notices": enabled})
    _record(user, "people.email_notices_set", by=by, now=now, enabled=enabled)
    return profile


@transaction.atomic
def first_admin_create(*, password: str, now: datetime) -> User | None:
    """A superuser who has opted in, for an installation that has none. None when there is one, or the name is taken."""
    users = User.objects
    if users.filter(is_superuser=True).exists() or users.filter(username=FIRST_ADMIN).exists():
        return None
    user = users.create_superuser(FIRST_ADMIN, password=password)
    Profile.objects.create(user=user, opted_in=True)
    _record(user, "people.first_admin_created", by=None, now=now)
    return user


def _check_person(user: User, by: User | None) -> None:
    if by is not None and by.pk != user.pk and not by.has_perm("agents.change_profile"):
        raise NotAllowed(f"{by} may not decide for {user}: the permission agents.change_profile is missing.")


def _record(user: User, kind: str, *, by: User | None, now: datetime, **details: bool) -> None:
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), details={"user_id": user.pk, **details})
