"""On a narrow screen a page does not scroll sideways: what is too wide scrolls in itself."""

import pytest

pytestmark = pytest.mark.browser

ADDRESSES = ["/admin/", "/admin/agents/agent/1/change/", "/admin/agents/agentsession/", "/admin/health/"]


def test_no_page_is_wider_than_a_phone(admin):
    admin.add_document("narrow.md")
    admin.open_session("narrow.md")
    admin.until(admin.chip("completed"))
    session = admin.page.url.removeprefix(admin.product.address).partition("?")[0]
    admin.page.set_viewport_size({"width": 390, "height": 844})
    widths = {}
    for address in [*ADDRESSES, session]:
        admin.open(address)
        widths[address] = admin.page.evaluate("document.documentElement.scrollWidth")
    assert widths == dict.fromkeys([*ADDRESSES, session], 390)
