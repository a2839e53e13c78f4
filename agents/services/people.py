"""Users of the installation, as far as lqops itself makes or changes them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agents.models import Profile
from audit import recorder
from audit.models import SYSTEM_CHAIN

FIRST_ADMIN = "admin"


@transaction.atomic
def profile_set(*, user: User, opted_in: bool, actor: str, now: datetime) -> Profile:
    """Lets agents run in the background for a user, or no longer. What runs already is left to finish."""
    profile, _ = Profile.objects.update_or_create(user=user, defaults={"opted_in": opted_in})
    kind = "people.opted_in" if opted_in else "people.opted_out"
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor, details={"user_id": user.pk})
    return profile


@transaction.atomic
def first_admin_create(*, password: str, now: datetime) -> User | None:
    """A superuser who has opted in, for an installation that has none. None when there is one, or the name is taken."""
    users = User.objects
    if users.filter(is_superuser=True).exists() or users.filter(username=FIRST_ADMIN).exists():
        return None
    user = users.create_superuser(FIRST_ADMIN, password=password)
    Profile.objects.create(user=user, opted_in=True)
    recorder.append(SYSTEM_CHAIN, "people.first_admin_created", now=now, details={"user_id": user.pk})
    return user
