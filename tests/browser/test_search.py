"""The search on every page, by keyboard alone."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser


def test_search_opens_by_a_key_and_leads_to_a_page(admin):
    page = admin.page
    dialog = page.get_by_role("dialog", name="Search")
    field = dialog.get_by_role("combobox", name="Search")

    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("approval rules")
    expect(dialog.get_by_role("option", name="Approval rules").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/admin/agents/approvalrule/$"))

    page.locator("#searchbar").focus()
    page.keyboard.type("/")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    page.keyboard.type("northgate")
    expect(dialog.get_by_role("option", name="run supplier-contract-northgate.md")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("option").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/admin/agents/document/\d+/change/$"))
    expect(page.get_by_role("navigation", name="Documents")).to_have_count(0)

    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_search_on_a_phone(admin):
    admin.page.set_viewport_size({"width": 390, "height": 844})
    admin.page.get_by_role("link", name="Search").last.click()
    field = admin.page.get_by_role("dialog", name="Search").get_by_role("combobox")
    field.fill("no such thing at all")
    expect(admin.page.get_by_role("status").filter(has_text="result")).to_be_visible()
    assert admin.page.evaluate("document.documentElement.scrollWidth") == 390
