"""Files that the architecture tests read, and their syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("lqops", "audit", "agents")
TEXT_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "manage.py", ".gitignore")
TEXT_FOLDERS = (*SOURCE, "tests", "docs", "templates", ".ci")
PICTURES = {".png", ".svg"}
CHECKED = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute, ast.Constant)


def source_files(root: Path = ROOT, folders: tuple[str, ...] = SOURCE) -> Iterator[Path]:
    """Yield Python files without migrations, which are never edited once they are released."""
    for folder in folders:
        found = [path for path in sorted((root / folder).rglob("*.py")) if "migrations" not in path.parts]
        yield from found if root != ROOT else not_empty(found, folder)


def text_files() -> Iterator[Path]:
    """Yield every file that holds text: source, tests, pages, templates, configuration."""
    yield from (ROOT / name for name in TEXT_FILES if (ROOT / name).exists())
    for folder in TEXT_FOLDERS:
        found = [path for path in sorted((ROOT / folder).rglob("*")) if path.is_file() and path.suffix not in PICTURES]
        yield from not_empty([path for path in found if "__pycache__" not in path.parts], folder)


def not_empty(found: list[Path], folder: str) -> list[Path]:
    """Return what was found; a check that reads nothing would find nothing wrong."""
    if not found:
        raise LookupError(f"there is nothing to read in {folder}")
    return found


def shown(path: Path, root: Path = ROOT) -> str:
    return path.relative_to(root).as_posix()


def nodes(source: str) -> list[ast.AST]:
    """Return the nodes that the checks look at: imports, calls, attributes and constants."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, CHECKED)]
