"""Docs name only what exists: files, modules, tests, commands, make targets, settings and links."""

import pytest

from .names import missing_names
from .source import ROOT, shown

PAGES = [path for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md") if path.exists()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_every_name_in_a_page_exists(path):
    assert missing_names(path.read_text(encoding="utf-8"), root=ROOT, place=path) == []


@pytest.mark.parametrize(
    "text",
    [
        "`agents/guard/guard.py` and `agents/guard/` and `audit/*.py`",
        "`tests/architecture/test_docs.py::test_name_of_nothing_is_found`",
        "`agents.guard.guarded_tool_call`, `agents.models.Profile`, `audit`, `lqops.asgi:application`",
        "`autonomous_session.halted`, `audit.chain_opened`, `agents.halt_everything`, `audit.view_auditevent`",
        "`manage.py verify_audit --json`, `make test-postgres`, `make PYTHON=python3.12 run`",
        "LQOPS_DATABASE_URL and LQOPS_SECRET_KEY_FILE and LQOPS_TEST_DATABASE_URL",
        "[page](docs/deployment.md) and [elsewhere](https://example.org/absent.md)",
        "make sense of agents/absent.py in running text, which names nothing",
        "```\nmake test   # comment\nmanage.py up\n```",
    ],
)
def test_existing_names_pass(text):
    assert missing_names(text, root=ROOT) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`agents/gard.py`", "file agents/gard.py"),
        ("`tests/architecture/test_docs.py::test_absent`", "file tests/architecture/test_docs.py::test_absent"),
        ("`agents.gard`", "module agents.gard"),
        ("`agents.guard.guarded_call`", "module agents.guard.guarded_call"),
        ("`manage.py verify_everything`", "command verify_everything"),
        ("`make tests`", "target tests"),
        ("```\nmake tea\n```", "target tea"),
        ("set LQOPS_ABSENT to 1", "setting LQOPS_ABSENT"),
        ("[page](docs/absent.md)", "link docs/absent.md"),
    ],
)
def test_name_of_nothing_is_found(text, found):
    assert missing_names(text, root=ROOT) == [found]
