"""Find code that could act without the guard, in any source tree: tests can show it a bypass."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .source import nodes, shown, source_files

# Module and its allowed importers; the module itself is always allowed. A folder stands for all of its modules.
IMPORTERS = {
    "agents.guard.metering": {"agents/guard/guard.py", "agents/guard/settlement.py"},
    "agents.guard.settlement": {"agents/guard/guard.py"},
    "agents.guard.dispatch": {"agents/guard/guard.py"},
    "agents.providers.registry": {"agents/guard/metering.py"},
    "agents.skills.running": {"agents/guard/guard.py", "agents/guard/intents.py", "agents/skills/isolation_report.py"},
    "agents.skills.isolated": {"agents/skills/process.py"},
    "agents.skills.process": {
        "agents/skills/isolation.py",
        "agents/skills/isolation_report.py",
        "agents/skills/running.py",
    },
    "agents.builtin_skills": {"agents/skills/registry.py"},
    "agents.guard.intents": {"agents/guard"},
    "agents.guard.retrieve": {"agents/guard/intents.py"},
}
# Function or method and its allowed callers.
CALLERS = {
    "take_pass_maker": {"agents/guard/guard.py"},
    "dispatch.run": {"agents/guard/guard.py"},
    "handler": {"agents/guard/dispatch.py"},
    "perform": {"agents/guard/intents.py"},
    "run_isolated": {"agents/skills/running.py", "agents/skills/isolation_report.py"},  # the report runs its own probe
    "call_isolated": {"agents/skills/running.py"},
    "run_process": {"agents/skills/isolation.py"},
    "skill.run": {"agents/skills/running.py", "agents/skills/isolated.py"},
    "complete": {"agents/guard/metering.py", "agents/providers"},
    "provider.stream": {"agents/guard/metering.py", "agents/providers"},
    "provider_for": {"agents/guard/metering.py"},
}


@dataclass(frozen=True)
class Bypass:
    path: str
    line: int
    what: str


def bypasses(root: Path) -> list[Bypass]:
    files = {shown(path, root): path.read_text(encoding="utf-8") for path in source_files(root)}
    return [found for place, text in files.items() for found in bypasses_in(place, nodes(text))]


def bypasses_in(place: str, found_in: list[ast.AST]) -> Iterator[Bypass]:
    for node in found_in:
        for name in _imported(node, place):
            if not name.startswith("agents."):
                continue
            for module, importers in IMPORTERS.items():
                itself = place == module.replace(".", "/") + ".py"
                if _is_within(name, module) and not itself and not {place, place.rpartition("/")[0]} & importers:
                    yield Bypass(place, node.lineno, f"imports {module}")
        for called in _called(node):
            if not {place, place.rpartition("/")[0]} & CALLERS.get(called, {place}):
                yield Bypass(place, node.lineno, f"calls {called}")


def _imported(node: ast.AST, place: str) -> Iterator[str]:
    """Yield dotted names that a statement imports, or that a string could import by import_module."""
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
