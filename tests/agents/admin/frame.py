"""Pages without what they all share, for tests of their content. `framed` asks for the whole page."""

from functools import cache, partial
from unittest.mock import patch

import pytest
from django.template import engines
from django.utils.functional import SimpleLazyObject
from unfold.sites import UnfoldAdminSite

FRAME = "admin/base_site.html"
FRAMELESS = """<h1>{{ title }}</h1>{% include "admin/parts/halt_bar.html" %}{% include "unfold/helpers/messages.html" %}
{% block content %}{% endblock %}"""

SIDEBAR = UnfoldAdminSite.get_sidebar_list


def _lazy_sidebar(site, request):
    """The sidebar, built only by a page that shows it: it takes a fifth of the time of a page without its frame."""
    return SimpleLazyObject(partial(SIDEBAR, site, request))


@pytest.fixture(autouse=True)
def frameless(request):
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
