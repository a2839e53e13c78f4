"""Who did it, as the record names them."""

from typing import Final

from django.contrib.auth.models import User

SYSTEM: Final = "system"
COMMAND: Final = "command"  # somebody at a terminal, who has not said who


def actor_of(user: User | None, unnamed: str = SYSTEM) -> str:
    return unnamed if user is None else f"user:{user.pk}"
