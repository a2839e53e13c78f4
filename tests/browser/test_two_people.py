"""Two people at the same page, and one with a keyboard alone."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser


def test_second_of_two_deciders_is_told_that_it_is_decided(enter, product, admin):
    product.make_people({"second-decider": "approver"})
    admin.add_waiting_call("two-deciders.md")
    other = enter(product, "second-decider")
    other.page.goto(admin.page.url)
    expect(other.page.get_by_role("button", name="Deny")).to_be_enabled()

    admin.page.get_by_role("button", name="Approve once").click()
    expect(admin.page.get_by_text("Approved. The call may be made once.")).to_be_visible()
    with other.watch.expects("409"):
        other.page.get_by_role("button", name="Deny").click()
        expect(other.page.get_by_text("it cannot be decided any more")).to_be_visible()

    expect(other.page.get_by_role("button", name="Deny")).to_have_count(0)
    expect(other.page.locator("dt", has_text="Decided").locator("+ dd")).to_contain_text("by admin")
    admin.open_session("two-deciders.md")
    admin.until(admin.chip("completed"))


def test_second_of_two_tabs_does_not_set_a_value_back(enter, product, admin):
    admin.open("/admin/agents/project/add/")
    admin.page.get_by_label("Name").fill("Two tabs")
    admin.page.get_by_role("button", name="Save", exact=True).click()
    expect(admin.page.get_by_text("saved.")).to_be_visible()
    other = enter(product, "admin")
    other.page.goto(admin.page.url)
    admin.page.get_by_label("Parties").fill("Brightline Ltd")
    admin.page.get_by_role("button", name="Save", exact=True).click()
    expect(admin.page.get_by_text("saved.")).to_be_visible()

    other.page.get_by_label("Name").fill("Two tabs, renamed")
    other.page.get_by_role("button", name="Save", exact=True).click()

    told = other.page.get_by_text("Changed since you opened this page: Parties")
    expect(told).to_be_visible()
    expect(other.page.get_by_label("Name")).to_have_value("Two tabs, renamed")
    admin.page.reload()
    expect(admin.page.get_by_label("Parties")).to_have_value("Brightline Ltd")
    expect(admin.page.get_by_label("Name")).to_have_value("Two tabs")


def test_call_is_approved_from_the_door_by_keys_alone(enter, product, admin):
    product.make_people({"keys-alone": "admin"})
    admin.add_waiting_call("keys-alone.md")
    page = enter(product).page
    expect(page.get_by_label("Username")).to_be_focused()

    page.keyboard.type("keys-alone")
    page.keyboard.press("Tab")
    page.keyboard.type(product.passwords["keys-alone"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/")
    page.keyboard.press("/")
    dialog = page.get_by_role("dialog", name="Search")
    expect(dialog.get_by_role("combobox", name="Search")).to_be_focused()
    page.keyboard.type("Approvals")
    expect(dialog.get_by_role("option", name="page Approvals")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/admin/agents/approval/"))
    call = page.get_by_role("link", name=re.compile("notify")).first
    expect(call).to_be_visible()
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('a') && /notify/.test(document.activeElement.textContent)"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Approve once")).to_be_enabled()
    page.keyboard.press("a")
    page.keyboard.press("Enter")

    expect(page.get_by_text("Approved. The call may be made once.")).to_be_visible()
