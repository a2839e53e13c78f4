"""The files that the architecture tests read, found from this file's own place, and what is in them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("lqops", "audit", "agents")
TEXT_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "manage.py", ".gitignore")
TEXT_FOLDERS = (*SOURCE, "tests", "docs", "templates", ".ci")


def source_files(root: Path = ROOT, folders: tuple[str, ...] = SOURCE) -> Iterator[Path]:
    """Python files, without migrations: those are generated and never edited once they are released."""
    for folder in folders:
        yield from (path for path in sorted((root / folder).rglob("*.py")) if "migrations" not in path.parts)


def files_of_tests() -> Iterator[Path]:
    return source_files(folders=("tests",))


PICTURES = {".png", ".svg"}


def text_files() -> Iterator[Path]:
    yield from (ROOT / name for name in TEXT_FILES if (ROOT / name).exists())
    for folder in TEXT_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix not in PICTURES:
                yield path


def shown(path: Path, root: Path = ROOT) -> str:
    return path.relative_to(root).as_posix()


def nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Looks into statements alone: no expression holds a function with a name."""
    found: list[ast.AST] = [ast.parse(source)]
    for node in found:
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            found += getattr(node, block, [])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
