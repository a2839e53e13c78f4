"""The "Packages" table of docs/architecture.md names exactly the folders and modules of agents/."""

import re

from .source import ROOT

PACKAGE = re.compile(r"`(agents/\w+(?:/|\.py))`")
UNLISTED = {"agents/__init__.py", "agents/migrations/"}


def named_packages(page: str) -> list[str]:
    """Return the packages in the table of the section "Packages", in order."""
    section = re.search(r"^## Packages\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [package for row in rows for package in PACKAGE.findall(row)]


def existing_packages() -> set[str]:
    packages = {f"agents/{path.parent.name}/" for path in (ROOT / "agents").glob("*/__init__.py")}
    return packages | {f"agents/{path.name}" for path in (ROOT / "agents").glob("*.py")}


def test_the_table_of_packages_matches_the_folder_agents():
    named = named_packages((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))

    assert sorted(named) == sorted(existing_packages() - UNLISTED)


def test_packages_are_read_from_the_table_of_their_section_only():
    table = "| `agents/c/`, `agents/d.py` | `agents/e/f.py` |"
    page = f"`agents/a/`\n## Packages\n`agents/b/`\n{table}\n## Next\n| `agents/g/` |"

    assert named_packages(page) == ["agents/c/", "agents/d.py"]
