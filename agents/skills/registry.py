"""The skills of this installation: the built-in ones, those of named modules, and those of installed packages.

A skill that cannot be loaded is reported and left out; it keeps no other from working. What only the turns of loops are
offered is known by its name, and not listed.
"""

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

from agents.conf import skill_modules
from agents.skills.pacing import LOOP_SKILLS
from agents.skills.skill import Skill

logger = logging.getLogger(__name__)

GROUP = "lqops_skills"
BUILTIN = "agents.builtin_skills"
_left_out: list[str] = []  # of the last time that they were loaded


@cache
def installed_skills() -> Mapping[str, Skill]:
    """By name, in the order of their names. Read once for a process."""
    _left_out.clear()
    found = dict(LOOP_SKILLS)
    for source, module in _modules():
        for declared in vars(module).values():
            if isinstance(declared, Skill):
                _add(found, declared, source)
    return MappingProxyType({name: found[name] for name in sorted(found.keys() - LOOP_SKILLS.keys())})


def skills_left_out() -> tuple[str, ...]:
    """What could not be loaded, and why, a sentence each."""
    installed_skills()
    return tuple(_left_out)


def skill_named(name: str) -> Skill | None:
    return LOOP_SKILLS.get(name) or installed_skills().get(name)


def _add(found: dict[str, Skill], declared: Skill, source: str) -> None:
    known = found.setdefault(declared.name, declared)
    if known is not declared:
        _leave_out(f"the skill {declared.name} of {source} is left out: there is one of that name already")


def _leave_out(why: str) -> None:
    _left_out.append(f"{why[:1].upper()}{why[1:]}.")
    logger.error("%s", why)


def _modules() -> Iterable[tuple[str, ModuleType]]:
    inside = [f"{BUILTIN}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(BUILTIN).__path__)]
    outside = [entry.value for entry in entry_points(group=GROUP)]
    for name in [*sorted(inside), *skill_modules(), *sorted(outside)]:
        if (module := _imported(name)) is not None:
            yield name, module


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 whatever is wrong with somebody's module, the others work
        _leave_out(f"no skills are taken from {name}: {type(error).__name__}: {error}")
        return None
