"""Shared by the tests of pages: rows that are made once for a module, and pages without their frame."""

import pytest

from tests.agents.admin.frame import frameless
from tests.agents.admin.rows import make_everything

__all__ = ["frameless"]


@pytest.fixture(scope="module")
def everything(module_database):
    return make_everything()


@pytest.fixture
def shared_rows(everything, rolled_back):
    """One row for every page; the changes of a test are rolled back."""
    return everything


@pytest.fixture
def framed():
    """Pages with sidebar, header and scripts, as Home always has them."""


@pytest.fixture
def charted():
    """Pages of agents and triggers with their charts."""


@pytest.fixture(autouse=True)
def _chartless(request, monkeypatch):
    """Pages of agents and triggers without their four charts, which take a third of the time of the page."""
    if not {"charted", "framed"} & set(request.fixturenames):
        for page in ("agents", "triggers"):
            monkeypatch.setattr(f"agents.admin.{page}.small_charts", lambda *_: {})
