"""Users of the installation, as far as lqops itself makes or changes them."""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from agents.models import Profile

FIRST_ADMIN = "admin"


@transaction.atomic
def first_admin_create(*, password: str) -> AbstractBaseUser | None:
    """A superuser who has opted in, for an installation that has none. None when there is one, or the name is taken."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists() or users.filter(username=FIRST_ADMIN).exists():
        return None
    user = users.create_superuser(FIRST_ADMIN, password=password)
    Profile.objects.create(user=user, opted_in=True)
    return user
