"""`skills`: list the callable skills with their levels, limits and counters, and change one."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError

from agents.conf import clock
from agents.enums import Level
from agents.management.base import JsonCommand, named_user
from agents.skills.registry import (
    ListedSkill,
    installed_skill,
    skill_listed,
    skill_set,
    skills_left_out,
    skills_listed,
)

USAGE = 2
DECLARED = "declared"
NO_LIMIT = "none"


class Command(JsonCommand):
    help = (
        "Lists the callable skills: level, state, limit, and calls in this clock hour (UTC). "
        "`skills set NAME` changes one, from its next call on; only a superuser may lower a level."
    )
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        acts = parser.add_subparsers(dest="act", help="The action. Default: list the skills.")
        setting = acts.add_parser("set", help="Changes the level, the limit or the state of a skill.")
        setting.add_argument("name", help="The name of the skill.")
        setting.add_argument(
            "--user", required=True, help="Who changes it; needs the permission agents.change_skillsetting."
        )
        setting.add_argument(
            "--level", choices=[*Level.values, DECLARED], help="A level; declared: the level declared by its author."
        )
        switch = setting.add_mutually_exclusive_group()
        switch.add_argument("--enabled", action="store_const", const=True, help="Enables the skill.")
        switch.add_argument("--disabled", dest="enabled", action="store_const", const=False, help="Disables the skill.")
        setting.add_argument("--hourly-limit", type=_limit, metavar="N", help="Calls per clock hour; none: no limit.")
        setting.add_argument("--json", action="store_true", default=SUPPRESS, help=self.json_help)

    def run(self, options: dict[str, Any]) -> None:
        found = self._set(options) if options["act"] == "set" else skills_listed(now=clock())
        facts = [listed.facts for listed in found]
        self.print(facts[0] if options["act"] else facts, "\n".join(map(_line, found)), options)
        if not options["json"]:
            for line in skills_left_out():
                self.stderr.write(line)

    def _set(self, options: dict[str, Any]) -> list[ListedSkill]:
        given = {name: options[name] for name in ("enabled", "level", "hourly_limit") if options[name] is not None}
        if not given:
            raise CommandError(
                "Give at least one change: --level, --enabled, --disabled or --hourly-limit.", returncode=USAGE
            )
        changes: Any = {name: None if value in {DECLARED, NO_LIMIT} else value for name, value in given.items()}
        by = named_user(options["user"])
        now = clock()
        skill = installed_skill(options["name"])
        skill_set(name=skill.name, declared=skill.level, by=by, now=now, **changes)
        listed = skill_listed(skill.name, now=now)
        return [listed] if listed else []


def _limit(text: str) -> int | str:
    if text == NO_LIMIT:
        return text
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is neither a number, 0 or more, nor {NO_LIMIT}")
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
