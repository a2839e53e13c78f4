"""Regular expressions match the same in every Python that lqops supports.

Before 3.11.5 a possessive repetition of a group, as in `(?:ab?)*+`, may miss what it should match; of one character, as
in `[a-z]*+`, it is right. An atomic group around a greedy repetition means the same and is right everywhere, with more
memory: `audit/repetition.py` writes it for the Pythons that need it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from re import _compiler, _constants, _parser
from typing import Any

import pytest

from audit import repetition
from audit.redaction import named, places

from .source import ROOT, shown, source_files


def repeats_a_group(pattern: str | bytes, flags: int = 0) -> bool:
    return any(
        operator is _constants.POSSESSIVE_REPEAT and not _compiler._simple(arguments[2])
        for operator, arguments in _operations(_parser.parse(pattern, flags))
    )


def _operations(parsed: Any) -> Iterator[tuple[Any, Any]]:
    for operator, arguments in parsed:
        yield operator, arguments
        yield from _inside(arguments)


def _inside(arguments: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(arguments, _parser.SubPattern):
        yield from _operations(arguments)
    elif isinstance(arguments, list | tuple):
        for argument in arguments:
            yield from _inside(argument)


def _patterns(value: Any, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth:
        if isinstance(value, Mapping):
            value = [*value.keys(), *value.values()]
        elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            value = [getattr(value, name, None) for name in value.__dataclass_fields__]
        if isinstance(value, list | tuple | set | frozenset):
            for one in value:
                yield from _patterns(one, depth - 1)


@pytest.mark.parametrize("pattern", ["(?:ab?)*+", "(?>x(?:a|bc)++)", "(?:a|bc){2,5}+", "(?:ab)?+", "(?=(?:ab?)*+)"])
def test_possessive_group_is_found(pattern):
    assert repeats_a_group(pattern)


@pytest.mark.parametrize(
    "pattern", ["[a-z]*+", r"\d++(?>(?:[.,]\d++)*)", "a?+", "(?:a){2,}+", "(?>(?:ab?c)*)", "(ab)+"]
)
def test_possessive_character_and_atomic_group_are_right(pattern):
    assert not repeats_a_group(pattern)


# Reads every pattern as a Python before 3.11.5 would compile it.
READ_AS_OLD = """
from audit import repetition
repetition.MISSES = True
import django
django.setup()
from tests.architecture.test_patterns import patterns_of_product, repeats_a_group
found = patterns_of_product()
assert len(found) > 100, "too few patterns were read"
assert len([one for _, one in found if "(?>" in str(one.pattern)]) > 10, "they are not those of an old Python"
print(*[place for place, one in found if repeats_a_group(one.pattern, one.flags)], end="")
"""


def patterns_of_product() -> list[tuple[str, re.Pattern[Any]]]:
    found = {}
    for path in source_files():
        name = shown(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if name.startswith("lqops") and name not in sys.modules:
            continue  # settings and sign-in of another installation
        with suppress(ModuleNotFoundError):  # of an extra that is not installed
            for constant, value in vars(import_module(name)).items():
                found |= {id(one): (f"{name}.{constant}", one) for one in _patterns(value)}
    texts = [(f"audit.redaction.places.{anchor[0]}", re.compile(anchor[2])) for anchor in places.ANCHORS]
    texts.append(("audit.redaction.named._PLACEHOLDERS", re.compile(named._PLACEHOLDERS, re.VERBOSE)))
    return [*found.values(), *texts]


def test_no_pattern_of_an_old_python_repeats_a_group_possessively():
    done = subprocess.run([sys.executable, "-c", READ_AS_OLD], capture_output=True, text=True, cwd=ROOT, check=False)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("misses", [False, True])
@pytest.mark.parametrize(
    ("times", "text", "end"), [("*", "abaab!", 5), ("+", "abaab!", 5), ("{1,2}", "abaab", 3), ("+", "!", -1)]
)
def test_repetition_takes_what_it_can_and_gives_nothing_back(misses, times, text, end, monkeypatch):
    monkeypatch.setattr(repetition, "MISSES", misses)
    found = re.match(repetition.possessive("ab?", times), text)

    assert (found.end() if found else -1) == end
    assert not re.match(repetition.possessive("a|b", times) + "[ab]", "ab" if times == "{1,2}" else "abab")
