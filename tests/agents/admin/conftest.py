"""Shared by the tests of pages: rows that are made once for a module, and pages without their frame."""

from functools import cache, partial
from unittest.mock import patch

import pytest
from django.template import engines
from django.utils.functional import SimpleLazyObject
from unfold.sites import UnfoldAdminSite

from tests.agents.admin.rows import make_everything

FRAME = "admin/base_site.html"
FRAMELESS = """<h1>{{ title }}</h1>{% include "admin/parts/halt_bar.html" %}{% include "unfold/helpers/messages.html" %}
{% block content %}{% endblock %}"""

SIDEBAR = UnfoldAdminSite.get_sidebar_list


def _lazy_sidebar(site, request):
    """The sidebar, built only by a page that shows it: it takes a fifth of the time of a page without its frame."""
    return SimpleLazyObject(partial(SIDEBAR, site, request))


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


@pytest.fixture(autouse=True)
def _frameless(request):
    """Pages without the frame that they all share: it takes half the time of a page."""
    if "framed" in request.fixturenames:
        yield
        return
    engine = engines["django"].engine
    [loader] = engine.template_loaders
    kept = loader.get_template_cache.pop(FRAME, None)  # all other templates stay compiled from test to test
    loader.get_template_cache[FRAME] = _frameless_template()
    with patch.object(UnfoldAdminSite, "get_sidebar_list", _lazy_sidebar):
        yield
    del loader.get_template_cache[FRAME]
    if kept is not None:
        loader.get_template_cache[FRAME] = kept


@cache
def _frameless_template():
    return engines["django"].engine.from_string(FRAMELESS)
