"""Who did it, as the record names them."""

from django.contrib.auth.models import User


def actor_of(user: User | None) -> str:
    return "system" if user is None else f"user:{user.pk}"
