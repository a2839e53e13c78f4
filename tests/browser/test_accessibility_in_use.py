"""axe-core finds no violation of WCAG 2 (A and AA) on pages in use, of errors and before the door."""

import re

import pytest

from tests.browser.axe import SCREEN, require_none, violations
from tests.browser.sight import expect

pytestmark = pytest.mark.browser


@pytest.fixture
def room(enter, furnished):
    room = enter(furnished, "admin")
    room.page.set_viewport_size(SCREEN)
    return room


def test_axe_notices_a_violation(room):
    room.open("/admin/ask/")
    require_none(room.page)
    faint = '<p style="color: #ccc; background: #fff">faint</p><button></button>'
    room.page.evaluate("html => document.querySelector('#content').insertAdjacentHTML('beforeend', html)", faint)

    assert {one.split(" (")[0] for one in violations(room.page)} == {"color-contrast", "button-name"}


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


@pytest.mark.sampled(3)
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
