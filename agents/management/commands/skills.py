"""`skills`: lists the callable skills with their levels, limits and counters, and sets one of them."""

import json
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from agents.conf import clock
from agents.enums import Level
from agents.exceptions import LqopsError
from agents.management.base import named_user
from agents.skills.registry import (
    Changes,
    ListedSkill,
    skill_listed,
    skill_set,
    skill_to_set,
    skills_left_out,
    skills_listed,
)
from audit.management.base import ActingCommand

USAGE = 2
DECLARED = "declared"
NO_LIMIT = "none"


class Command(ActingCommand):
    help = (
        "Lists the callable skills: level, state, limit, and how often each was called in this clock hour (UTC). "
        "`skills set NAME` changes one, from its next call on; only a superuser may lower a level."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="JSON instead of lines.")
        acts = parser.add_subparsers(dest="act", help="What to do; without it they are listed.")
        setting = acts.add_parser("set", help="Sets the level of a skill, its limit, or whether it is on.")
        setting.add_argument("name", help="The name of the skill.")
        setting.add_argument("--user", required=True, help="Who sets it; needs agents.change_skillsetting.")
        setting.add_argument("--level", choices=[*Level.values, DECLARED], help="A level; declared: as its author did.")
        switch = setting.add_mutually_exclusive_group()
        switch.add_argument("--enabled", action="store_const", const=True, help="Switches it on.")
        switch.add_argument("--disabled", dest="enabled", action="store_const", const=False, help="Switches it off.")
        setting.add_argument(
            "--hourly-limit", type=_limit, metavar="N", help="Calls in a clock hour; none takes the limit away."
        )
        setting.add_argument("--json", action="store_true", default=SUPPRESS, help="JSON instead of a line.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = self._set(options) if options["act"] == "set" else skills_listed(now=clock())
        if options["json"]:
            facts = [listed.facts for listed in found]
            self.stdout.write(json.dumps(facts[0] if options["act"] else facts, cls=DjangoJSONEncoder))
            return
        for listed in found:
            self.stdout.write(_line(listed))
        for line in skills_left_out():
            self.stderr.write(line)

    def _set(self, options: dict[str, Any]) -> list[ListedSkill]:
        changes = _changes(options)
        if not changes:
            raise CommandError("Say what to set: --level, --enabled, --disabled or --hourly-limit.", returncode=USAGE)
        by, now = named_user(options["user"]), clock()
        try:
            skill = skill_to_set(options["name"])
            skill_set(name=skill.name, declared=skill.level, by=by, now=now, **changes)
        except LqopsError as error:
            raise CommandError(str(error)) from error
        listed = skill_listed(skill.name, now=now)
        return [listed] if listed else []


def _changes(options: dict[str, Any]) -> Changes:
    changes = Changes()
    if options["enabled"] is not None:
        changes["enabled"] = options["enabled"]
    if options["level"] is not None:
        changes["level"] = None if options["level"] == DECLARED else options["level"]
    if options["hourly_limit"] is not None:
        changes["hourly_limit"] = None if options["hourly_limit"] == NO_LIMIT else options["hourly_limit"]
    return changes


def _limit(text: str) -> int | str:
    if text == NO_LIMIT:
        return text
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is neither a number from 0 on nor {NO_LIMIT}")
    return int(text)


def _line(listed: ListedSkill) -> str:
    state = "on" if listed.enabled else "off"
    level = listed.level or "unknown"
    if listed.skill is None:
        state = f"{state}, not installed"
    elif listed.level != listed.declared:
        level = f"{level} (declared {listed.declared})"
    if listed.skill and listed.skill.lacking:
        state = f"{state}, not offered: {listed.skill.lacking}"
    limit = "no limit" if listed.limit is None else f"limit {listed.limit}"
    use = listed.use
    return f"{listed.name}  {level}  {state}  {limit}  used {use.used_this_hour}, refused {use.refused_this_hour}"
