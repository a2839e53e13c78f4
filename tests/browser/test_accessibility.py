"""axe-core finds no violation of WCAG 2 (A and AA) on any page, in light and in dark colours."""

import re
import shutil

import pytest

from tests.browser.every_page import addresses_of, told_by
from tests.browser.product import running
from tests.browser.sight import expect

axe = pytest.importorskip("axe_playwright_python.base", reason="pip install -e '.[browser]'")
pytestmark = pytest.mark.browser

FILL = """
from django.contrib.auth.models import User
from tests.agents.admin.rows import make_everything
make_everything(User.objects.get(username="admin"))
"""
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Colours differ between the themes, and nothing else does.
THEMES = {"light": {"type": "tag", "values": LEVELS}, "dark": {"type": "rule", "values": ["color-contrast"]}}
PARTS = 4  # so that none is near the time limit of a test
SCREEN = {"width": 1280, "height": 2000}  # so high that nothing is below the bar at the end of a list


@pytest.fixture(scope="module")
def furnished(migrated, tmp_path_factory):
    """The samples, and a row for every page."""
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var) as started:
        told_by(started, FILL)
        yield started


@pytest.fixture
def room(enter, furnished):
    room = enter(furnished, "admin")
    room.page.set_viewport_size(SCREEN)
    return room


def violations(page):
    """What axe finds in each theme: the rule, the theme, and the element with what is wrong about it."""
    page.evaluate(axe.AXE_SCRIPT)
    return [one for theme, rules in THEMES.items() for one in _violations_of(page, theme, rules)]


def require_none(page):
    found = violations(page)
    assert not found, "\n".join(found)


def _violations_of(page, theme, rules):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    # unfold follows the system a moment later
    page.evaluate("isDark => document.documentElement.classList.toggle('dark', isDark)", theme == "dark")
    page.wait_for_timeout(150)  # until colours have faded in
    found = page.evaluate("rules => axe.run({resultTypes: ['violations'], runOnly: rules})", rules)
    for violation in found["violations"]:
        for node in violation["nodes"]:
            yield f"{violation['id']} ({theme}): {node['html'][:160]} {node['failureSummary'][:300]}"


def test_axe_notices_a_violation(room):
    room.open("/admin/ask/")
    require_none(room.page)
    faint = '<p style="color: #ccc; background: #fff">faint</p><button></button>'
    room.page.evaluate("html => document.querySelector('#content').insertAdjacentHTML('beforeend', html)", faint)

    assert {one.split(" (")[0] for one in violations(room.page)} == {"color-contrast", "button-name"}


@pytest.fixture(scope="module")
def addresses(furnished):
    return addresses_of(furnished)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_accessible(room, addresses, part):
    found = {}
    for address in addresses[part::PARTS]:
        room.open(address)
        found[address] = violations(room.page)
    print(f"\n{len(found)} of {len(addresses)} pages in {len(THEMES)} themes")

    wrong = [f"{address} {one}" for address, some in found.items() for one in some]
    assert not wrong, "\n".join(wrong)


STATES = {
    "run": lambda room: room.open_session("supplier-contract-brightline.md"),
    "search": lambda room: (room.page.keyboard.press("/"), room.page.keyboard.type("northgate")),
    "shortcuts": lambda room: room.page.keyboard.press("?"),
    "filters": lambda room: (room.open("/admin/agents/agentsession/"), room.page.get_by_text("Filters").first.click()),
    "empty list": lambda room: room.open("/admin/agents/finding/?q=nothing-like-it"),
    "ask": lambda room: (
        room.open("/admin/ask/"),
        room.page.get_by_label("Ask", exact=True).fill("pause everything"),
        room.page.get_by_role("button", name="Send").click(),
    ),
    "form with errors": lambda room: (
        room.open("/admin/agents/trigger/add/?kind=schedule"),
        room.page.get_by_role("button", name=re.compile("Add|Save")).last.click(),
    ),
    "phone": lambda room: (
        room.page.set_viewport_size({"width": 390, "height": 2000}),
        room.open("/admin/agents/approval/"),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_page_in_use_is_accessible(room, state):
    STATES[state](room)
    room.page.wait_for_load_state("networkidle") if state != "run" else None

    require_none(room.page)


@pytest.mark.parametrize("address", ["/admin/no-such-page/", "/admin/agents/agentsession/999999/change/"])
def test_error_pages_are_accessible(room, address):
    with room.watch.expects("404"):
        room.open(address)
        expect(room.page.get_by_role("heading").first).to_be_visible()
        require_none(room.page)


def test_pages_before_the_door_are_accessible(enter, furnished):
    furnished.make_people({"sten": ""})
    room = enter(furnished)
    require_none(room.page)
    with room.watch.expects("403"):
        room.sign_in("sten")
        expect(room.page.get_by_role("heading", name="Not allowed")).to_be_visible()
        require_none(room.page)
