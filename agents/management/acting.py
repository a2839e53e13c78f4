"""Who acts when a command is run: the user that is named, or nobody (the machine itself)."""

from argparse import ArgumentParser

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.management.base import CommandError


def add_acting_user(parser: ArgumentParser) -> None:
    parser.add_argument("--user", help="The username that the record names as the one who did this.")


def acting_user(username: str | None) -> User | None:
    return None if username is None else named_user(username)


def named_user(username: str) -> User:
    user = get_user_model().objects.filter(username=username, is_active=True).first()
    if user is None:
        raise CommandError(f"There is no active user {username!r}.")
    return user
