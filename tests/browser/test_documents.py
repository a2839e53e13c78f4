"""Reading a document: the quote of a finding, the search in the text, parts of a long one, a phone."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser
PARAGRAPH = "The parties agree on many things in this paragraph. " * 30
LONG = (
    "\n\n".join(f"# Section {number}\n\n{PARAGRAPH}" for number in range(1, 121)) + "\n\nThe <b>needle</b> lies here.\n"
)


def is_in_view(place):
    return place.evaluate(
        "node => { const box = node.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; }"
    )


def test_finding_leads_to_its_marked_quote(admin):
    page = admin.page
    admin.add_document("quoted.md")
    admin.open("/admin/agents/finding/?q=Payment")
    admin.until(admin.row("quoted.md").first)
    admin.row("quoted.md").first.get_by_role("link").first.click()
    page.get_by_role("link", name=re.compile("quoted.md")).first.click()
    expect(page).to_have_url(re.compile(r"\?finding=\d+#finding-\d+$"))
    quote = page.locator("mark.chosen").first
    expect(quote).to_contain_text("within 10 days")
    assert is_in_view(quote)


def test_long_document_is_searched_and_read_in_parts(admin):
    page = admin.page
    admin.add_document("long.md", LONG.replace("{", "{{"))
    admin.open("/admin/agents/document/?q=long.md")
    page.get_by_role("link", name="long.md").click()
    expect(page.get_by_text(re.compile(r"part 1 of \d"))).to_be_visible()
    expect(page.locator(".lq-doc")).not_to_contain_text("needle")

    page.get_by_label("Search in this document").fill("NEEDLE")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 match for “NEEDLE”")).to_be_visible()
    page.locator(".lq-hits li a").click()
    hit = page.locator("mark.hit")
    expect(hit).to_have_text("needle")
    assert is_in_view(hit)
    expect(page.locator(".lq-doc")).to_contain_text("The <b>needle</b> lies here.")

    page.get_by_role("link", name="Previous part").first.click()
    expect(page.locator(".lq-doc")).not_to_contain_text("needle")
    page.get_by_role("link", name="Section 120", exact=True).click()
    expect(page.locator(".lq-doc")).to_contain_text("# Section 120")


def test_document_fits_a_phone(admin):
    page = admin.page
    page.set_viewport_size({"width": 390, "height": 844})
    admin.open("/admin/agents/document/")
    page.get_by_role("link", name=re.compile("northgate")).first.click()
    expect(page.get_by_label("Search in this document")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
