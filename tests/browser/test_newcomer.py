"""The first ten minutes: from the printed password to findings in an own document."""

import re

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser

PHASES = ["intake", "analysis", "drafting", "ethics review", "delivery"]


def test_home_shows_runs_approvals_and_cost(enter, product):
    room = enter(product)
    room.sign_in("admin")

    expect(room.page.get_by_role("link", name="Halt everything")).to_be_visible()
    room.until(room.card("Needs attention").get_by_role("link", name="Decide").first)
    expect(room.row("policy-memo.md by Supplier contract review").first).to_contain_text("wait")
    expect(room.card("Spend")).to_contain_text("of $20.00")
    expect(room.card("Next runs")).to_contain_text("Weekly scan of reports")
    room.shoot("home")


def test_sample_agents_are_there_and_have_reviewed_the_sample_contracts(admin):
    admin.go("Agents")
    for name in ("Contract reviewer", "Weekly scanner", "Incident clerk"):
        expect(admin.row(name)).to_be_visible()
    admin.go("Runs")
    for document, result in {
        "supplier-contract-brightline.md": "findings",
        "supplier-contract-northgate.md": "ok",
    }.items():
        admin.until(admin.row(document).last.get_by_text(result, exact=True))
    admin.until(admin.row("policy-memo.md").last.get_by_text("waiting for approval"))
    admin.shoot("sessions")


def test_session_page_shows_phases_calls_and_findings(admin):
    admin.open_session("supplier-contract-brightline.md")
    admin.until(admin.chip("completed"))

    phases = admin.page.locator(".lq-line .phase")
    expect(phases).to_have_text([re.compile(name, re.IGNORECASE) for name in PHASES])
    calls = admin.card("Timeline")
    expect(calls.get_by_role("link", name="Document search")).to_be_visible()
    expect(calls.get_by_role("listitem").filter(has_text="Model call")).to_contain_text("$")
    liability = admin.page.get_by_role("article").filter(has_text="Limitation of liability: deviates")
    expect(liability.locator("blockquote")).to_contain_text("limited to 50 % of the annual fees")
    expect(liability).to_contain_text("Quote verified")
    admin.shoot("session")

    liability.get_by_role("link", name="supplier-contract-brightline.md").click()
    marked = admin.page.locator("mark").filter(has_text="limited to 50 % of the annual fees")
    expect(marked).to_be_in_viewport()
    admin.shoot("document")


def test_receipt_is_verified(admin):
    session = admin.open_session("supplier-contract-northgate.md")
    admin.until(admin.chip("completed"))

    admin.page.get_by_role("link", name="Receipt", exact=True).click()

    expect(admin.page.get_by_role("heading", name="Receipt")).to_be_visible()
    expect(admin.page.locator("body")).to_contain_text(session)
    expect(admin.page.get_by_text("Verified: ")).to_be_visible()
    asked = admin.page.get_by_role("row").filter(has_text="Model call")
    expect(asked).to_contain_text("succeeded")
    admin.shoot("receipt")


def test_document_in_a_watched_collection_is_reviewed(admin):
    admin.add_document("newcomer.md")
    expect(admin.card("Documents")).to_contain_text("newcomer.md")

    admin.open_session("newcomer.md")

    expect(admin.chip("completed")).to_be_visible()  # the page updates automatically
    payment = admin.page.get_by_role("article").filter(has_text="Payment term: deviates")
    expect(payment.locator("blockquote")).to_contain_text("within 10 days of receipt")


def test_health_passes_and_brakes_can_be_tested(admin):
    admin.go("Health")
    expect(admin.page.get_by_text("All checks passed.")).to_be_visible()
    admin.shoot("health")

    admin.page.get_by_role("button", name="Test brakes").click()

    expect(admin.card("Brakes").get_by_text("✓").first).to_be_visible()
    expect(admin.card("Brakes").get_by_text("✗")).to_have_count(0)
