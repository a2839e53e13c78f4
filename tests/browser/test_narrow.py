"""Pages do not scroll sideways on a narrow screen and cut nothing off."""

import pytest

from tests.browser.every_page import templates_of
from tests.browser.product import printed_by
from tests.browser.room import CONTRACT, PRIVILEGED

pytestmark = pytest.mark.browser

LISTS = ["/admin/agents/approval/?queue=all", "/admin/agents/agentsession/", "/admin/agents/trigger/"]
TABLES = ".simplebar-content-wrapper:has(#result_list), .lq-scroll"
TIMES = "#result_list :is(td, th):has(.lq-when)"
LISTS_WITH_TIMES = 15
EMPTY = "—"
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


@pytest.mark.long
def test_no_list_cuts_a_time_on_a_laptop(enter, furnished):
    admin = enter(furnished, "admin")
    admin.page.set_viewport_size({"width": 1280, "height": 800})
    lists = [address for address, template in templates_of(furnished).items() if template.startswith("list ")]
    cut, shown = {}, set()
    for address in lists:
        admin.open(f"{address}?whose=everybody" if "notification" in address or "outbox" in address else address)
        cut[address] = admin.page.evaluate(CUT_OFF, f"{TIMES}, {TABLES}")
        shown |= {address} if admin.page.locator(TIMES).count() else set()
    assert not any(cut.values()), cut
    assert len(shown) >= LISTS_WITH_TIMES


def test_findings_have_no_empty_cells_on_a_phone(enter, furnished):
    admin = enter(furnished, "admin")
    admin.open("/admin/agents/finding/?state=all")
    assert EMPTY in admin.page.locator("#result_list td").all_inner_texts()
    admin.page.set_viewport_size({"width": 390, "height": 844})
    shown = admin.page.locator("#result_list td:visible").all_inner_texts()
    assert shown
    assert EMPTY not in shown


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


PAUSED = """
from agents.conf import clock
from agents.models import Agent, AgentSession, Trigger
from agents.sessions.pauses import agent_pause
from agents.triggers.triggers import trigger_pause
trigger, now = Trigger.objects.order_by("pk").first(), clock()
Trigger.objects.filter(pk=trigger.pk).update(name="Weekly scan of all the reports that came in from the departments")
trigger_pause(trigger=trigger, by=None, now=now)
agent_pause(agent=Agent.objects.order_by("pk").first(), by=None, reason="Too expensive this week: ask Maria.", now=now)
run = AgentSession.objects.order_by("pk").first()
print(run.pk, run.public_id)
"""


def test_what_can_be_done_is_in_sight_on_a_phone_and_on_a_laptop(enter, furnished):
    admin = enter(furnished, "admin")
    pk, run = printed_by(admin.product, PAUSED).split()[-2:]
    admin.page.set_viewport_size({"width": 1280, "height": 800})
    admin.open("/admin/agents/trigger/")
    assert right_edge(admin, "Run now") <= 1280
    admin.page.set_viewport_size({"width": 390, "height": 844})
    admin.open("/admin/paused/")
    assert right_edge(admin, "Resume") <= 390
    for address, table in ((f"/admin/agents/agentsession/{pk}/compare/", ".lq-body"), (f"/receipts/{run}/", ".scroll")):
        admin.open(address)
        assert admin.page.locator(f"{table} table").count(), address
        assert admin.page.evaluate(CUT_OFF, f"{table}:has(table)") == [], address


def right_edge(admin, name):
    """Where the rightmost of these links ends; nothing cuts one off before."""
    links = admin.page.get_by_role("link", name=name, exact=True)
    boxes = [links.nth(number).bounding_box() for number in range(links.count())]
    return max(box["x"] + box["width"] for box in boxes)
