"""What is set for one browser: notifications of decisions that wait, and the density of lists."""

import re

import pytest

from tests.browser.room import CONTRACT, PRIVILEGED
from tests.browser.sight import expect

pytestmark = pytest.mark.browser

SETTINGS = "/admin/agents/channel/"
# The browser's own notifications, noted as they are shown.
NOTED = """
window.shown = [];
window.Notification = class extends Notification {
  constructor(title, options) { super(title, options); window.shown.push({title, tag: options.tag, it: this}); }
};
"""


def switch(room):
    return room.page.get_by_label("Notifications for approvals and questions that wait for you")


def test_notifications_are_off_until_somebody_allows_them(enter, product):
    room = enter(product, "admin")
    room.open(SETTINGS)

    expect(switch(room)).not_to_be_checked()
    switch(room).click()

    expect(room.page.get_by_role("status").filter(has_text="The browser blocks notifications")).to_be_visible()
    expect(switch(room)).not_to_be_checked()


def test_browser_tells_of_an_approval_and_leads_to_it(enter, product):
    room = enter(product, "admin")
    room.page.context.grant_permissions(["notifications"], origin=product.address)
    room.page.add_init_script(NOTED)
    room.open(SETTINGS)
    switch(room).click()
    expect(room.page.get_by_role("status").filter(has_text="On, while a page")).to_be_visible()
    room.open("/admin/agents/playbook/")

    other = enter(product, "admin")
    other.add_document("told-by-the-browser.md", PRIVILEGED + CONTRACT)
    room.page.wait_for_function("window.shown.length > 0")

    [shown] = room.page.evaluate("window.shown.map(one => [one.title, one.tag])")
    assert "waits for approval" in shown[0]
    assert re.fullmatch(r"lqops-\d+", shown[1])
    room.page.evaluate("window.shown[0].it.dispatchEvent(new Event('click'))")
    expect(room.page.get_by_role("button", name="Approve once")).to_be_visible()
    room.open(SETTINGS)
    expect(switch(room)).to_be_checked()
    switch(room).click()
    room.page.reload()
    expect(switch(room)).not_to_be_checked()


def test_lists_are_comfortable_where_somebody_wants_them_so(enter, product):
    room = enter(product, "admin")
    heights = {}
    for density in ("comfortable", "compact"):
        room.open(SETTINGS)
        room.page.get_by_label("Lists").select_option(density)
        room.open("/admin/agents/trigger/")
        heights[density] = room.page.locator("#result_list tbody td").first.bounding_box()["height"]

    assert heights["compact"] < 30
    assert heights["comfortable"] > 40
