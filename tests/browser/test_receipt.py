"""The receipt on paper: all of it, and nothing else."""

import re
from io import BytesIO
from unicodedata import normalize

import pytest
from pypdf import PdfReader

from tests.browser.sight import expect

pytestmark = pytest.mark.browser


def test_printed_receipt_holds_all_of_it_and_no_controls(admin):
    admin.open_session("supplier-contract-brightline.md")
    admin.until(admin.chip("completed"))
    admin.page.get_by_role("link", name="Receipt", exact=True).first.click()
    shown = admin.page.locator("main").inner_text()
    assert "Verified:" in shown

    pages = PdfReader(BytesIO(admin.page.pdf(format="A4"))).pages
    printed = normalize("NFKC", "\n".join(one.extract_text() for one in pages))  # letters that are joined in print

    without_spaces = re.sub(r"\s", "", printed)
    assert [word for word in set(re.findall(r"[\w.$-]{3,}", shown)) if word not in without_spaces] == []
    for control in ("Print or save", "Search", "Home", "Sign out"):
        assert control not in printed, control


def test_print_button_opens_the_receipt_and_prints_it(admin):
    admin.open_session("supplier-contract-brightline.md")
    admin.until(admin.chip("completed"))
    # Without a printer nobody sees the dialog: the opened page notes that it was asked to print.
    admin.page.context.add_init_script("window.print = () => { document.title = 'printed' }")

    with admin.page.expect_popup() as opened:
        admin.page.get_by_role("link", name="Print or save as PDF").click()

    expect(opened.value).to_have_title("printed")
    expect(opened.value.get_by_role("heading", name="Receipt")).to_be_visible()
    opened.value.close()
