"""`ceilings`: show or set what a person's agents, triggers and runs are at most."""

from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from agents.accounts import TOGETHER, agents_above, limits_of, limits_set, limits_text
from agents.enums import ApprovalMode, Level
from agents.management.base import RecordedCommand, named_user

DEFAULT: Final = "default"
_OPTIONS: Final = {
    "mode": "mode",
    "level": "highest_level",
    "run": "max_cost_usd",
    "agent_day": "max_cost_per_day_usd",
    "all_day": TOGETHER,
}


def _usd(text: str) -> Decimal | str:
    try:
        return text if text == DEFAULT else Decimal(text)
    except InvalidOperation:
        raise ArgumentTypeError(f"{text!r} is neither an amount of US dollars nor {DEFAULT}.") from None


class Command(RecordedCommand):
    help = (
        "Shows what the agents, triggers and runs of a person are at most; with options, sets that for what is new or "
        f"changed from now on. The word {DEFAULT} takes a ceiling back: then the installation's holds."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="Whose agents, triggers and runs.")
        parser.add_argument("--mode", choices=[*ApprovalMode.values, DEFAULT], help="The laxest approval mode.")
        parser.add_argument("--level", choices=[*Level.values, DEFAULT], help="The highest level of skills.")
        parser.add_argument("--run", type=_usd, help="The highest cap of a run, in USD.")
        parser.add_argument("--agent-day", type=_usd, help="The highest cap per day of one agent or trigger, in USD.")
        parser.add_argument("--all-day", type=_usd, help="Cap per day of all runs together, in USD; holds at once.")
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        user = named_user(options["username"], active=False)
        given = {name: options[option] for option, name in _OPTIONS.items() if options[option] is not None}
        limits: dict[str, Any] = {name: None if value == DEFAULT else value for name, value in given.items()}
        held = limits_set(user=user, **{**self.actor(options), **limits}) if limits else limits_of(user)
        facts = {"user": user.username, **held, "above": agents_above(user)}
        self.print(facts, limits_text(user, held), options)
