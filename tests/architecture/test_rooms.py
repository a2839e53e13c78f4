"""The "Rooms" table of docs/architecture.md names exactly the folders and modules of agents/."""

import re

from .source import ROOT

ROOM = re.compile(r"`(agents/\w+(?:/|\.py))`")
UNLISTED = {"agents/__init__.py", "agents/migrations/"}


def named_rooms(page: str) -> list[str]:
    """Return the rooms in the table of the section "Rooms", in order."""
    section = re.search(r"^## Rooms\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [room for row in rows for room in ROOM.findall(row)]


def existing_rooms() -> set[str]:
    packages = {f"agents/{path.parent.name}/" for path in (ROOT / "agents").glob("*/__init__.py")}
    return packages | {f"agents/{path.name}" for path in (ROOT / "agents").glob("*.py")}


def test_the_table_of_rooms_matches_the_folder_agents():
    named = named_rooms((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))

    assert sorted(named) == sorted(existing_rooms() - UNLISTED)


def test_rooms_are_read_from_the_table_of_their_section_only():
    page = (
        "`agents/a/`\n## Rooms\n`agents/b/`\n| `agents/c/`, `agents/d.py` | `agents/e/f.py` |\n## Next\n| `agents/g/` |"
    )

    assert named_rooms(page) == ["agents/c/", "agents/d.py"]
