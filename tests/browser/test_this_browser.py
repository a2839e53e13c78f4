"""Settings of one browser: notifications of decisions that wait, and the density of lists."""

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


@pytest.fixture
def room(enter, product):
    """In a browser of its own: what is set in it ends with the test."""
    room = enter(product)
    room.sign_in("admin")
    room.page.wait_for_url("**/admin/")
    yield room
    room.page.context.close()


def switch(room):
    return room.page.get_by_label("Notifications for approvals and questions that wait for you")


def allow(room):
    room.page.context.grant_permissions(["notifications"], origin=room.product.address)
    room.open(SETTINGS)
    switch(room).click()
    expect(room.page.get_by_role("status").filter(has_text="On, while a page")).to_be_visible()


def test_notifications_are_off_until_somebody_allows_them(room):
    room.open(SETTINGS)

    expect(switch(room)).not_to_be_checked()
    switch(room).click()

    expect(room.page.get_by_role("status").filter(has_text="The browser blocks notifications")).to_be_visible()
    expect(switch(room)).not_to_be_checked()


def test_browser_tells_of_an_approval_and_leads_to_it(room, admin):
    room.page.add_init_script(NOTED)
    allow(room)
    room.open("/admin/agents/playbook/")

    admin.add_document("told-by-the-browser.md", PRIVILEGED + CONTRACT)
    session = admin.open_session("told-by-the-browser.md")[:8]
    admin.open("/admin/agents/notification/")
    row = admin.row(session).filter(has_text="waits for approval").first
    admin.until(row)
    tag = f"lqops-{row.locator('input[name=_selected_action]').get_attribute('value')}"
    shown = "tag => window.shown.find(one => one.tag === tag)"
    room.page.wait_for_function(shown, arg=tag)

    assert "waits for approval" in room.page.evaluate(f"tag => ({shown})(tag).title", tag)
    room.page.evaluate(f"tag => ({shown})(tag).it.dispatchEvent(new Event('click'))", tag)
    expect(room.page.get_by_role("button", name="Approve once")).to_be_visible()
    expect(room.page.locator("#content")).to_contain_text("told-by-the-browser.md")
    room.open(SETTINGS)
    expect(switch(room)).to_be_checked()
    switch(room).click()
    room.page.reload()
    expect(switch(room)).not_to_be_checked()


def test_next_person_at_the_browser_has_allowed_no_notifications(room):
    room.product.make_people({"nina": "operator"})
    allow(room)

    room.page.context.clear_cookies()
    room.open("/admin/")
    room.sign_in("nina")
    room.page.wait_for_url("**/admin/")
    room.open(SETTINGS)

    expect(switch(room)).not_to_be_checked()


def test_density_is_set_in_the_menu_of_the_account_too(room):
    room.open("/admin/agents/trigger/")
    cell = room.page.locator("#result_list tbody td").first
    menu = room.page.get_by_label("Density")
    room.page.locator("#nav-sidebar").get_by_text("admin", exact=True).click()

    menu.select_option("comfortable")

    assert cell.bounding_box()["height"] > 40
    room.open(SETTINGS)
    expect(room.page.get_by_label("Lists")).to_have_value("comfortable")


def test_lists_are_comfortable_where_somebody_wants_them_so(room):
    heights = {}
    for density in ("comfortable", "compact"):
        room.open(SETTINGS)
        room.page.get_by_label("Lists").select_option(density)
        room.open("/admin/agents/trigger/")
        heights[density] = room.page.locator("#result_list tbody td").first.bounding_box()["height"]

    assert heights["compact"] < 30
    assert heights["comfortable"] > 40
