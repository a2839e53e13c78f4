"""The page of a run in use: it refreshes part by part, can be copied from, and works by keyboard."""

import re
from urllib.parse import urlsplit

import pytest

from tests.browser.product import printed_by
from tests.browser.room import CONTRACT, PRIVILEGED
from tests.browser.sight import expect

pytestmark = pytest.mark.browser

ELSEWHERE = """
from datetime import timedelta
from django.contrib.auth.models import User
from agents.conf import clock
from agents.models import Approval, AgentSession, Question
from agents.sessions.approvals import approval_approve
now = clock()
session = AgentSession.objects.get(public_id={session!r})
"""
APPROVE = """
row = Approval.objects.get(session=session, status="pending")
approval_approve(row.pk, by=User.objects.get(username="admin"), digest=row.digest, now=now)
"""
ASK = (
    "Question.objects.create(session=session, text='Which office?', asked_at=now, expires_at=now + timedelta(hours=1))"
)


def waiting_run(room, document):
    """A run that waits for approval, with its page open; its public id."""
    room.add_document(document, PRIVILEGED + CONTRACT)
    session = room.open_session(document)
    room.until(room.chip("waiting for approval"))
    return session


def elsewhere(room, session, code):
    printed_by(room.product, ELSEWHERE.format(session=session) + code)


def test_open_details_and_focus_stay_while_the_page_tells_the_new_state(admin):
    session = waiting_run(admin, "open-details.md")
    page = admin.page
    page.evaluate("window.isSamePage = true")
    summary = page.get_by_text("Cost details")
    summary.click()
    expect(summary).to_be_focused()

    elsewhere(admin, session, APPROVE)

    expect(admin.chip("completed")).to_be_visible(timeout=20_000)
    expect(page.get_by_role("heading", name="Needs attention")).to_have_count(0)
    expect(page.get_by_text("by providers")).to_be_visible()
    expect(summary).to_be_focused()
    assert page.evaluate("window.isSamePage")


def test_typed_answer_stays_and_holds_back_nothing_else(admin):
    session = waiting_run(admin, "typed-answer.md")
    elsewhere(admin, session, ASK)
    admin.page.reload()
    answer = admin.card("Question").get_by_role("textbox")
    answer.fill("The one in Ber")

    elsewhere(admin, session, APPROVE)

    expect(admin.chip("completed")).to_be_visible(timeout=20_000)
    expect(answer).to_have_value("The one in Ber")
    expect(answer).to_be_focused()


def test_ids_are_copied_by_keyboard_and_the_page_says_so(admin):
    session = waiting_run(admin, "copied.md")
    page = admin.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=admin.product.address)
    button = page.get_by_role("button", name="Copy run id")

    button.press("Enter")

    expect(page.locator("#run-status").get_by_role("status").filter(has_text="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == session
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true})")
    page.evaluate("document.addEventListener('copy', () => { window.copied = String(document.activeElement.value) })")
    page.get_by_text("Raw data").click()
    page.get_by_role("button", name="Copy parameters").click()
    assert '"document"' in page.evaluate("window.copied")


def test_bars_of_all_rows_have_the_same_scale_and_show_their_times_by_keyboard(admin):
    waiting_run(admin, "to-scale.md")
    page = admin.page
    tracks = page.locator(".lq-fall-track:visible")
    boxes = tracks.evaluate_all("all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.width])")
    assert page.locator(".lq-fall-took .lq-chip").count() > 0
    assert len(boxes) > 3
    assert len({(round(left), round(width)) for left, width in boxes}) == 1

    page.keyboard.press("Tab")
    row = page.locator(".lq-fall-row[tabindex]").filter(has_text="Waiting for approval")  # it grows
    row.focus()
    expect(row.locator(".lq-fall-times")).to_have_css("height", re.compile("^[1-9][0-9]"))
    told = row.text_content()
    admin.shoot("waterfall")
    expect(row).not_to_have_text(told)
    expect(row).to_be_focused()


def test_keys_of_the_page_are_listed_and_lead_to_other_runs(admin):
    waiting_run(admin, "by-key.md")
    page = admin.page
    newer = urlsplit(page.url).path

    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    for words in ("Compare", "Pause run", "Older run"):
        expect(dialog).to_contain_text(words)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    older = page.get_by_role("link", name="Older run").get_attribute("href")
    page.keyboard.press("j")
    page.wait_for_url(f"**{older}")
    page.keyboard.press("k")
    page.wait_for_url(f"**{newer}")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Pause run", exact=True)).to_be_visible()


def test_page_follows_the_status_without_waiting_for_the_next_refresh(admin):
    session = waiting_run(admin, "followed.md")
    page = admin.page

    def without_polls(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('data-every="4"', 'data-every="3600"'))

    page.route("**/agentsession/*/change/*", without_polls)
    page.reload()

    elsewhere(admin, session, APPROVE)

    expect(admin.chip("waiting for approval")).to_have_count(0, timeout=20_000)
    expect(admin.chip("completed")).to_be_visible(timeout=20_000)
