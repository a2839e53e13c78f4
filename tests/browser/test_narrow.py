"""Pages do not scroll sideways on a narrow screen and cut nothing off."""

import pytest

from tests.browser.room import CONTRACT, PRIVILEGED

pytestmark = pytest.mark.browser

LISTS = ["/admin/agents/approval/?queue=all", "/admin/agents/agentsession/", "/admin/agents/trigger/"]
TABLES = ".simplebar-content-wrapper:has(#result_list), .lq-scroll"
CUT_OFF = """selector => [...document.querySelectorAll(selector)]
    .filter(e => e.clientWidth && (e.scrollWidth > e.clientWidth + 1
        || e.matches('td, th') && e.scrollHeight > e.clientHeight + 2))
    .map(e => e.className)"""
ADDRESSES = [
    "/admin/",
    "/admin/charts/",
    "/admin/agents/agent/1/change/",
    "/admin/agents/agentsession/",
    "/admin/health/",
]


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


def test_lists_and_home_show_all_of_each_cell_on_a_phone(admin):
    assert not any(cut_off(admin, 390, f"#result_list [data-label], {TABLES}").values())


def test_lists_and_home_fit_a_screen_though_a_row_is_one_line(admin):
    """Long texts end in an ellipsis; no column is out of sight."""
    assert not any(cut_off(admin, 1280, TABLES).values())


def cut_off(admin, width, selector):
    admin.add_document(f"wide-{width}.md", PRIVILEGED + CONTRACT)
    admin.open_session(f"wide-{width}.md")
    admin.until(admin.chip("waiting for approval"))
    admin.page.set_viewport_size({"width": width, "height": 844})
    found = {}
    for address in ["/admin/", *LISTS]:
        admin.open(address)
        found[address] = admin.page.evaluate(CUT_OFF, selector)
    return found
