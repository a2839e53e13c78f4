"""Decisions of people: pending calls, and precedents for a project's context."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser

TOLD = "Run completed"


def notices_of(room, session):
    room.go("Notifications")
    return room.row(session[:8]).filter(has_text=TOLD)


def test_approved_call_is_made_and_the_run_delivers(admin):
    session = admin.add_waiting_call("approved.md")
    expect(admin.page.locator(".lq-tree").first).to_contain_text(f"/receipts/{session}/")
    digest = admin.page.locator("dt", has_text="Digest").locator("+ dd .lq-code").inner_text()
    assert re.fullmatch(r"[0-9a-f]{64}", digest)
    form = admin.page.locator("form").filter(has=admin.page.get_by_role("button", name="Approve once"))
    expect(form.locator("input[name=digest]")).to_have_value(digest)
    admin.shoot("approval")

    form.get_by_role("button", name="Approve once").click()

    expect(admin.page.get_by_text("Approved. The call may be made once.")).to_be_visible()
    expect(admin.page.get_by_text(digest)).to_have_count(0 if "after=" in admin.page.url else 1)
    admin.open_session("approved.md")
    admin.until(admin.chip("completed"))
    expect(admin.page.get_by_role("listitem").filter(has_text="Notification").last).to_contain_text("success")
    expect(notices_of(admin, session)).to_have_count(1)


def test_denied_call_is_never_made(admin):
    session = admin.add_waiting_call("denied.md")
    form = admin.page.locator("form").filter(has=admin.page.get_by_role("button", name="Deny"))
    form.get_by_text("Add a reason").click()
    form.get_by_role("textbox").fill("Not to the whole board.")

    form.get_by_role("button", name="Deny").click()

    expect(admin.page.get_by_text("Denied. The run continues without the call.")).to_be_visible()
    admin.open_session("denied.md")
    admin.until(admin.page.get_by_role("link", name="Run again", exact=True))
    expect(admin.page.get_by_role("listitem").filter(has_text="Notification").filter(has_text="success")).to_have_count(
        0
    )
    expect(notices_of(admin, session)).to_have_count(0)


def test_keys_lead_to_a_decision_and_never_decide(admin):
    for name in ("first-key.md", "second-key.md"):
        admin.add_waiting_call(name)
    page = admin.page
    here = page.url
    approve = page.get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()

    field = page.locator("details[data-key=e]").get_by_role("textbox").first
    page.keyboard.press("e")
    expect(field).to_be_focused()
    page.keyboard.type("adjk?")
    expect(field).to_be_focused()
    field.evaluate("field => field.blur()")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("Approve once")
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("k")
    expect(page).not_to_have_url(here)
    expect(approve).to_be_enabled()
    page.keyboard.press("j")
    expect(page).to_have_url(here)
    expect(approve).to_be_enabled()
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Deny")).to_be_focused()
    page.keyboard.press("a")
    expect(approve).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="Press Enter to confirm")).to_be_visible()
    expect(page).to_have_url(here)
    expect(admin.chip("pending")).to_be_visible()

    page.keyboard.press("Enter")

    expect(page.get_by_text("Approved. The call may be made once.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?after=\d+$"))
    expect(page.get_by_text(re.compile(r"\d+ left for you"))).to_be_visible()


def test_call_is_decided_on_a_phone_in_two_taps(admin):
    session = admin.add_waiting_call("phone.md")
    admin.page.set_viewport_size({"width": 390, "height": 844})
    admin.open("/admin/agents/notification/")
    admin.row(session[:8]).filter(has_text="waits for approval").first.get_by_role("link").first.click()
    approve = admin.page.get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    assert admin.page.evaluate("document.documentElement.scrollWidth") == 390

    approve.click()

    expect(admin.page.get_by_text("Approved. The call may be made once.")).to_be_visible()


def test_list_on_a_phone_shows_the_call_by_field_and_two_taps_decide(admin):
    session = admin.add_waiting_call("listed-on-a-phone.md")
    admin.page.set_viewport_size({"width": 390, "height": 844})
    admin.open("/admin/agents/approval/")
    card = admin.row("listed-on-a-phone.md").first
    expect(card.locator("dt")).to_have_text(["body", "title"])
    expect(card).to_contain_text(f"Receipt: /receipts/{session}/")
    expect(card).not_to_contain_text('"title"')

    card.get_by_text("Decide").click()
    admin.page.get_by_role("button", name="Approve once").click()

    expect(admin.page.get_by_text("Approved. The call may be made once.")).to_be_visible()


def test_accepted_proposal_adds_one_line_to_the_context(admin):
    admin.open_session("supplier-contract-brightline.md")
    admin.until(admin.chip("completed"))
    before = context_lines(admin)
    admin.go("Precedents")
    admin.page.get_by_role("link", name="Governing law: deviates from the standard").click()

    admin.page.get_by_role("link", name="Propose for a project").click()
    admin.page.get_by_label("Project").select_option(label="Supplier contracts")
    admin.page.get_by_role("button", name="Propose for a project").click()
    expect(admin.page.get_by_text("1 precedent proposed for Supplier contracts.")).to_be_visible()
    assert context_lines(admin) == before

    admin.card("Proposals").get_by_role("link", name="Governing law").click()
    admin.act("Accept")

    expect(admin.page.get_by_text("1 proposal accepted.")).to_be_visible()
    after = context_lines(admin)
    assert after[:-1] == before
    assert "Governing law" in after[-1]
    admin.shoot("project")


def context_lines(room):
    """The project's context as its page shows it, line by line."""
    room.go("Projects")
    room.page.get_by_role("link", name="Supplier contracts").click()
    return room.page.get_by_label("Context").input_value().splitlines()
