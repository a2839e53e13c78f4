"""Base classes of all lqops commands: short error messages, no empty values, no error on a closed pipe."""

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

QUOTED_CHARS: Final = 200


def not_empty(text: str) -> str:
    """Refuse an empty argument: it would count as left out, and the command would do more than was meant."""
    if not text.strip():
        raise ArgumentTypeError("empty value: give one, or leave the option out (is a shell variable unset?)")
    return text


def cut(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"


def brief(message: str, given: Iterable[object]) -> str:
    """Cut every argument that the message quotes, as it is or with its odd characters escaped."""
    for text in sorted(_texts(given), key=len, reverse=True):
        if len(text) > QUOTED_CHARS:
            for form in (text, repr(text)[1:-1]):
                message = message.replace(form, cut(form))
    return message


def _texts(given: Iterable[object]) -> Iterator[str]:
    for one in given:
        if isinstance(one, str | Path):
            option, _, value = str(one).partition("=")
            yield from {str(one), str(one).strip(), value if option.startswith("-") else ""}
        elif isinstance(one, list | tuple):
            yield from _texts(one)


class BriefParser(CommandParser):
    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = sys.argv if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        return super().error(brief(message, self._given))


class BriefCommand(BaseCommand):
    """A command whose error messages fit on a screen, whatever it was given."""

    def add_base_argument(self, parser: CommandParser, *args: Any, **kwargs: Any) -> None:
        """Replace the parser's class: Django calls this first, before there are subparsers."""
        parser.__class__ = BriefParser
        super().add_base_argument(parser, *args, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output: str | None = super().execute(*args, **options)
        except CommandError as error:
            error.args = (brief(str(error), (*args, *options.values())),)
            raise
        return output


class ActingCommand(BriefCommand):
    """A command that runs without system checks: `up`, `doctor` and `check` examine the installation."""

    requires_system_checks: list[str] = []

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run; a closed pipe (`| head -1`) is no error."""
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            release_stdout()
            return None
        return output


def release_stdout() -> None:
    """Drop what is left in the buffer of stdout; Python would report an error for it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
