"""axe-core finds no violation of WCAG 2 (A and AA) on any kind of page with its newest row."""

import pytest

from tests.browser.axe import SCREEN, THEMES, violations
from tests.browser.every_page import PARTS, templates_of

pytestmark = pytest.mark.browser


@pytest.fixture
def room(enter, furnished):
    room = enter(furnished, "admin")
    room.page.set_viewport_size(SCREEN)
    return room


@pytest.fixture(scope="module")
def templates(furnished):
    return templates_of(furnished)


def require_none_on(room, themes):
    wrong = []
    for address, some in themes.items():
        room.open(address)
        wrong += (f"{address} {one}" for one in violations(room.page, some))
    print(f"\n{len(themes)} pages, {sum('dark' in some for some in themes.values())} of them in the dark")
    assert not wrong, "\n".join(wrong)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_accessible(room, templates, part):
    """In dark colours one page of each template; the others have a test of their own."""
    firsts = {template: address for address, template in reversed(templates.items())}.values()
    require_none_on(room, {one: THEMES if one in firsts else ["light"] for one in [*templates][part::PARTS]})


@pytest.mark.stress
@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_has_contrast_in_the_dark(room, templates, part):
    require_none_on(room, {one: ["dark"] for one in [*templates][part::PARTS]})
