"""A screen of a laptop shows 25 rows of every list, each on one line."""

import shutil

import pytest

from tests.browser.every_page import templates_of
from tests.browser.product import printed_by, running

pytestmark = pytest.mark.browser

ROWS = 25
ONE_LINE = 27  # pixels
ALL_ROWS = {
    "agents/approval": "?queue=all",
    "agents/channel": "?whose=everybody",
    "agents/finding": "?state=all",
    "agents/notification": "?whose=everybody",
    "agents/outboxmessage": "?whose=everybody",
    "agents/question": "?queue=all",
}
ONE_ROW = "/admin/agents/installation/"
# The bar below a list stays at the lower edge of the screen, over the rows.
MEASURES = """() => {
    const rows = [...document.querySelectorAll('#result_list tbody tr:has(th)')].map(e => e.getBoundingClientRect());
    const edge = document.querySelector('[class*="lg:scrollable-top"]').getBoundingClientRect().top;
    return {shown: rows.filter(row => row.bottom <= edge).length, highest: Math.max(...rows.map(row => row.height))};
}"""


@pytest.fixture(scope="module")
def full(migrated, tmp_path_factory):
    """An installation with more rows in each list than a screen shows."""
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var) as started:
        printed_by(
            started, f"from tests.browser.furniture import fill_lists, furnish; furnish(); fill_lists({ROWS + 5})"
        )
        yield started


def test_laptop_shows_25_rows_of_every_list_on_one_line_each(enter, full):
    admin = enter(full, "admin")
    admin.page.set_viewport_size({"width": 1280, "height": 900})
    lists = [address for address, template in templates_of(full).items() if template.startswith("list ")]
    wrong = {}
    for address in lists:
        if address == ONE_ROW:
            continue
        admin.open(address + ALL_ROWS.get(address.removeprefix("/admin/").strip("/"), ""))
        found = admin.page.evaluate(MEASURES)
        if found["shown"] < ROWS or found["highest"] > ONE_LINE:
            wrong[address] = found
    assert not wrong
