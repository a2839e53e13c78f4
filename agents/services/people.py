"""Users of the installation, as far as lqops itself makes or changes them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from agents.models import Profile
from audit import recorder
from audit.models import SYSTEM_CHAIN

FIRST_ADMIN = "admin"


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
