"""Base class of lqops commands: no system checks, no empty values, no error on a closed pipe."""

import os
import secrets
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

MIN_KEY_CHARS: Final = 32


def not_empty(text: str) -> str:
    """Refuse an empty argument: it would count as left out, and the command would do more than was meant."""
    if not text.strip():
        raise ArgumentTypeError("empty value: give one, or leave the option out (is a shell variable unset?)")
    return text


def key_file(path: Path) -> str:
    """Return the key in a file, which is created with a random one unless it exists."""
    with suppress(FileExistsError), open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(secrets.token_urlsafe(48))
    key = path.read_text(encoding="utf-8").strip()
    if len(key) < MIN_KEY_CHARS:
        raise CommandError(f"{path} holds {len(key)} characters; a key needs {MIN_KEY_CHARS} or more.")
    return key


class ActingCommand(BaseCommand):
    """A command that runs without system checks: `up`, `doctor` and `check` examine the installation."""

    requires_system_checks: list[str] = []

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run; a closed pipe (`| head -1`) is no error."""
        try:
            output: str | None = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            release_stdout()
            return None
        return output


def release_stdout() -> None:
    """Drop what is left in the buffer of stdout; Python would report an error for it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
