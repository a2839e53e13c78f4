"""The skills of this installation: the built-in ones, those of named modules, and those of installed packages.

A skill that cannot be loaded is reported and left out; it keeps no other from working.
"""

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType

from agents.conf import skill_modules
from agents.skills import builtin
from agents.skills.skill import Skill

logger = logging.getLogger(__name__)

GROUP = "lqops_skills"


@cache
def installed_skills() -> Mapping[str, Skill]:
    """By name, in the order of their names. Read once for a process."""
    found: dict[str, Skill] = {}
    for source, module in _modules():
        for declared in vars(module).values():
            if isinstance(declared, Skill):
                _add(found, declared, source)
    return MappingProxyType(dict(sorted(found.items())))


def skill_named(name: str) -> Skill | None:
    return installed_skills().get(name)


def _add(found: dict[str, Skill], declared: Skill, source: str) -> None:
    known = found.setdefault(declared.name, declared)
    if known is not declared:
        logger.error("the skill %s of %s is left out: there is one of that name already", declared.name, source)


def _modules() -> Iterable[tuple[str, ModuleType]]:
    inside = [f"{builtin.__name__}.{found.name}" for found in pkgutil.iter_modules(builtin.__path__)]
    outside = [entry.value for entry in entry_points(group=GROUP)]
    for name in [*sorted(inside), *skill_modules(), *sorted(outside)]:
        try:
            yield name, importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 whatever is wrong with somebody's module, the others work
            logger.error("no skills are taken from %s: %s: %s", name, type(error).__name__, error)  # noqa: TRY400
