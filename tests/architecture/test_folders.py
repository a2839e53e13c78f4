"""Folders stay short enough to read; ruff limits the complexity of functions (C901)."""

from collections import Counter

from .source import ROOT, shown, source_files

MOST_MODULES = 20
# Each file is a command, named as people type it.
EXEMPT = {"agents/management/commands"}


def test_folder_has_at_most_twenty_modules():
    modules = Counter(shown(path.parent) for path in source_files() if path.name != "__init__.py")

    crowded = {folder: count for folder, count in modules.items() if count > MOST_MODULES}

    assert {folder: count for folder, count in crowded.items() if folder not in EXEMPT} == {}
    assert crowded.keys() >= EXEMPT, "small enough now: take it out of EXEMPT"


def test_source_files_are_found():
    assert ROOT / "agents/__init__.py" in list(source_files())
