"""Everyday jobs of operators, and the clicks that each takes; seconds are printed. docs/screens.md has the figures."""

import re
import time
from contextlib import contextmanager

import pytest

from tests.browser.furniture import FINDINGS
from tests.browser.room import CONTRACT, PRIVILEGED
from tests.browser.sight import expect

pytestmark = pytest.mark.browser


@pytest.fixture
def room(enter, furnished):
    return enter(furnished, "admin")


class Job:
    """Clicks that are counted."""

    def __init__(self, page):
        self.page = page
        self.clicks = 0

    def click(self, place):
        place.click()
        self.clicks += 1


@contextmanager
def job(room, name, *, most_clicks):
    one = Job(room.page)
    began = time.monotonic()
    yield one
    print(f"\njob: {name}: clicks {one.clicks}, seconds {time.monotonic() - began:.1f}")
    assert one.clicks <= most_clicks


def test_approve_from_a_notification(room):
    room.add_document("from-a-notification.md", PRIVILEGED + CONTRACT)
    session = room.open_session("from-a-notification.md")
    room.until(room.chip("waiting for approval"))
    room.open("/admin/agents/notification/")

    with job(room, "approve from a notification", most_clicks=2) as does:
        does.click(room.row(session[:8]).filter(has_text="waits for approval").first.get_by_role("link").first)
        does.click(room.page.get_by_role("button", name="Approve once"))
        expect(room.page.get_by_text("Approved. The call may be made once.")).to_be_visible()


def test_find_why_a_run_failed_last_night(room):
    with job(room, "find why last night's run failed", most_clicks=1) as does:
        room.open("/admin/")
        failed = room.card("Needs attention").get_by_role("listitem").filter(has_text="The model did not answer.")
        expect(failed).to_be_visible()
        does.click(failed.get_by_role("link").first)
        expect(room.page.get_by_text("503 from the model server").first).to_be_visible()


def test_pause_one_trigger_and_resume_it(room):
    room.open("/admin/")
    with job(room, "pause one trigger and resume it", most_clicks=6) as does:
        does.click(room.page.locator("#nav-sidebar").get_by_role("link", name=re.compile(r"\bTriggers\b")))
        does.click(room.page.locator("#result_list tbody th a").first)
        for name in ("Pause", "Resume"):
            does.click(room.page.get_by_role("link", name=name, exact=True))
            does.click(room.page.get_by_role("button", name=name, exact=True))
        expect(room.page.get_by_role("link", name="Pause", exact=True)).to_be_visible()


def test_triage_of_findings_one_by_one(room):
    room.open("/admin/agents/finding/?q=Night")
    expect(room.row("Night")).to_have_count(FINDINGS)
    with job(room, f"triage {FINDINGS} findings one by one", most_clicks=FINDINGS) as does:
        for left in range(FINDINGS, FINDINGS // 2, -1):
            expect(room.row("Night")).to_have_count(left)
            does.click(room.row("Night").first.get_by_role("button", name=re.compile("Acknowledge")))
        for left in range(FINDINGS // 2, 0, -1):
            expect(room.row("Night")).to_have_count(left)
            does.click(room.row("Night").first.get_by_role("button", name=re.compile("Resolve")))
        expect(room.row("Night")).to_have_count(0)


def test_compare_two_runs(room):
    for name in ("one.md", "two.md"):
        room.add_document(name)
        room.open_session(name)
        room.until(room.chip("completed"))
    room.open("/admin/agents/agentsession/")
    with job(room, "compare two runs", most_clicks=2) as does:
        does.click(room.row("two.md").first.get_by_role("link").first)
        does.click(room.page.get_by_role("link", name="Compare"))
        expect(room.page.get_by_role("heading", name=re.compile("Compare")).first).to_be_visible()
