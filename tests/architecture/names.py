"""Find names in a page that do not exist: files, modules, tests, commands, make targets, settings, links."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.apps import apps
from django.core.management import get_commands

from audit.kinds import KINDS

CODE = re.compile(r"```.*?\n(.*?)```|`([^`\n]+)`", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")
PATH = re.compile(r"(?<![\w./-])((?:agents|audit|lqops|tests|docs|templates|\.ci)/[\w./*-]*)(?:::(\w+))?")
DOTTED = re.compile(r"(?<![\w./-])((?:agents|audit|lqops|tests)(?:\.[A-Za-z_]\w*)+)(?![\w/])")
COMMAND = re.compile(r"(?:manage\.py|\blqops) ([a-z]\w*)")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
SETTING = re.compile(r"\bLQOPS_[A-Z_]+\b")


def missing_names(page: str, *, root: Path, place: Path | None = None) -> list[str]:
    """Return the names in a page that do not exist. Only code and links count, not running text."""
    code = "\n".join(block or span for block, span in CODE.findall(page))
    beside = (place or root / "README.md").parent
    return [
        *(f"link {link}" for link in LINK.findall(page) if not (beside / link).exists()),
        *(f"file {path}" for path in _missing_files(code, root)),
        *(f"module {name}" for name in DOTTED.findall(code) if not _is_known(name, root)),
        *(f"command {name}" for name in COMMAND.findall(code) if name not in get_commands()),
        *(f"target {name}" for name in TARGET.findall(code) if name not in _targets(root)),
        *(f"setting {name}" for name in SETTING.findall(page) if name not in _settings(root)),
    ]


def _missing_files(code: str, root: Path) -> Iterator[str]:
    for path, test in PATH.findall(code):
        named = path.rstrip(".")
        if not any(root.glob(named)):
            yield named
        elif test and test not in _bound(root / named):
            yield f"{named}::{test}"


def _is_known(name: str, root: Path) -> bool:
    """Whether this is a module, a name in one, an audit kind, or a permission."""
    if name in KINDS or name in _permissions():
        return True
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        module = root.joinpath(*parts[:cut])
        file = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
        if file.exists():
            return cut == len(parts) or parts[cut] in _bound(file)
    return False


@cache
def _bound(file: Path) -> set[str]:
    """Return the names that a file binds or imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


@cache
def _permissions() -> set[str]:
    return {
        f"{model._meta.app_label}.{codename}"
        for model in apps.get_models()
        for codename in [
            *(codename for codename, _ in model._meta.permissions),
            *(f"{verb}_{model._meta.model_name}" for verb in model._meta.default_permissions),
        ]
    }


def _targets(root: Path) -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@cache
def _settings(root: Path) -> set[str]:
    files = [*(root / "lqops").glob("*.py"), root / "tests/settings.py"]
    names = {name for file in files for name in SETTING.findall(file.read_text(encoding="utf-8"))}
    return names | {f"{name}_FILE" for name in names if name.endswith(("_KEY", "_PASSWORD", "_TOKEN"))}
