"""Finds code that could act past the guard: a checker over any source tree, so that it can be shown a bypass."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .source import nodes, shown, source_files

# Who may import what; the module itself always may. Handlers are added by their place in the tree.
IMPORTERS = {
    "agents.metering": {"agents/guard.py", "agents/settlement.py"},
    "agents.settlement": {"agents/guard.py"},
    "agents.tools.dispatch": {"agents/guard.py"},
    "agents.providers.registry": {"agents/metering.py"},
    "agents.skills.running": {"agents/guard.py", "agents/tools/skills.py"},
    "agents.skills.isolated": {"agents/skills/running.py"},
    "agents.skills.builtin": {"agents/skills/registry.py"},
}
# What agents/tools holds besides handlers; any other module there is one, and protected.
MACHINERY = {"__init__", "calls", "context", "dispatch", "notes", "params", "registry", "tool"}
# `request_of` describes a request and sends nothing; the self-test uses it to make its probe a priced call.
HARMLESS = {("agents/selftest.py", "agents.tools.inference.request_of")}
# Who may call a function or method of this name; a folder stands for all of its modules.
CALLERS = {
    "take_mint": {"agents/guard.py"},
    "dispatch.run": {"agents/guard.py"},
    "handler": {"agents/tools/dispatch.py"},
    "perform": {"agents/tools/skills.py"},
    "skill.run": {"agents/skills/running.py", "agents/skills/isolated.py"},
    "complete": {"agents/metering.py", "agents/providers"},
    "provider.stream": {"agents/metering.py", "agents/providers"},
    "provider_for": {"agents/metering.py"},
}


@dataclass(frozen=True)
class Bypass:
    path: str
    line: int
    what: str


def bypasses(root: Path) -> list[Bypass]:
    rules = rules_of(root)
    files = {shown(path, root): path.read_text(encoding="utf-8") for path in source_files(root)}
    return [found for place, text in files.items() for found in bypasses_in(place, nodes(text), rules)]


def rules_of(root: Path) -> dict[str, set[str]]:
    tools = (root / "agents/tools").glob("*.py")
    handlers = (f"agents.tools.{path.stem}" for path in tools if path.stem not in MACHINERY)
    return {**IMPORTERS, **{handler: {"agents/tools/registry.py"} for handler in handlers}}


def bypasses_in(place: str, found_in: list[ast.AST], rules: dict[str, set[str]]) -> Iterator[Bypass]:
    for node in found_in:
        for name in _imported(node, place):
            if not name.startswith("agents."):
                continue
            for module, importers in rules.items():
                itself = place == module.replace(".", "/") + ".py"
                if _is_within(name, module) and not itself and place not in importers and (place, name) not in HARMLESS:
                    yield Bypass(place, node.lineno, f"imports {module}")
        for called in _called(node):
            if not {place, place.rpartition("/")[0]} & CALLERS.get(called, {place}):
                yield Bypass(place, node.lineno, f"calls {called}")


def _imported(node: ast.AST, place: str) -> Iterator[str]:
    """Dotted names that a statement brings in, or that a text could bring in by import_module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = place.split("/")[: -node.level] if node.level else []
        base = ".".join([*package, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _is_within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _called(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name):
        yield node.func.id
    elif isinstance(node.func, ast.Attribute):
        yield node.func.attr
        if isinstance(node.func.value, ast.Name):
            yield f"{node.func.value.id}.{node.func.attr}"
