"""What the commands of lqops have in common: refusals that can be read, and values that are there."""

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

QUOTED_CHARS: Final = 200


def not_empty(text: str) -> str:
    """An argument that names something. Empty, it would count as left out, and a command do more than was meant."""
    if not text.strip():
        raise ArgumentTypeError("it is empty: say a value, or leave it out (is a variable of the shell unset?)")
    return text


def cut(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"


def brief(message: str, given: Iterable[object]) -> str:
    """The message, with every argument that it quotes cut, as it is or with its odd characters escaped."""
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
    """Refuses in words that fit on a screen, whatever it was given."""

    def add_base_argument(self, parser: CommandParser, *args: Any, **kwargs: Any) -> None:
        """The first that Django does with a parser of its own making, before there are parsers below it."""
        parser.__class__ = BriefParser
        super().add_base_argument(parser, *args, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            said: str | None = super().execute(*args, **options)
        except CommandError as error:
            error.args = (brief(str(error), (*args, *options.values())),)
            raise
        return said


class ActingCommand(BriefCommand):
    """Acts at once, whatever state the rest is in: `up`, `doctor` and `check` look at the installation as a whole."""

    requires_system_checks: list[str] = []

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Who reads no further (`| head -1`) is no error: what was done is done, and the rest is not said."""
        try:
            said = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        return said
