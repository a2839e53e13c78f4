"""The control room as one user sees it: clicks, forms and texts."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

from tests.browser.product import Product
from tests.browser.watch import Watch

PATIENCE_SECONDS = 60
LOOK_AGAIN_MS = 250
SCREENSHOTS = os.environ.get("LQOPS_SCREENSHOTS", "")
CONTRACT = """# Services agreement {name}

## 1. Payment term

The Customer shall pay undisputed invoices within 10 days of receipt.

## 2. Limitation of liability

The Supplier's total liability in each contract year shall be limited to 25 % of the annual fees.
"""
# Pages that are tabs of an entry of the sidebar.
ENTRIES = {"Health": "Home", "Precedents": "Findings", "Projects": "Agents"}
PRIVILEGED = "PRIVILEGED AND CONFIDENTIAL\nAttorney-client communication\n\n"


class Room:
    def __init__(self, page: Any, product: Product, watch: Watch) -> None:
        self.page = page
        self.product = product
        self.watch = watch

    def leave(self) -> None:
        """Chromium says that it closed a page, and does not, while another arrives in its place: it is told again."""
        if self.page.is_closed():
            return
        context = self.page.context
        target = context.new_cdp_session(self.page).send("Target.getTargetInfo")["targetInfo"]["targetId"]
        browser = context.browser.new_browser_cdp_session()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.page.is_closed():
            assert time.monotonic() < deadline, f"{self.page.url} cannot be closed"
            with suppress(Error):  # closed since
                browser.send("Target.closeTarget", {"targetId": target})
                self.page.wait_for_timeout(LOOK_AGAIN_MS)
        browser.detach()

    def open(self, path: str) -> None:
        self.page.goto(f"{self.product.address}{path}")

    def go(self, name: str) -> None:
        """Through the sidebar, and for some pages through the tabs of another."""
        entry = ENTRIES.get(name, name)
        self.page.locator("#nav-sidebar").get_by_role("link", name=re.compile(rf"\b{entry}\b")).click()
        if entry != name:
            self.page.get_by_role("navigation", name=entry).get_by_role("link", name=name).click()

    def sign_in(self, name: str) -> None:
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(self.product.passwords[name])
        self.page.get_by_role("button", name="Sign in", exact=True).click()

    def row(self, text: str) -> Any:
        return self.page.get_by_role("row").filter(has_text=text)

    def card(self, title: str) -> Any:
        heading = self.page.get_by_role("heading", name=title, exact=True)
        return self.page.locator("section.lq-card").filter(has=heading)

    def chip(self, text: str) -> Any:
        """A status chip of a session's page."""
        return self.page.locator("section.lq-card header .lq-chip").get_by_text(text, exact=True)

    def add_document(self, name: str, text: str = CONTRACT, *, collection: str = "Contracts (admin)") -> None:
        self.open("/admin/agents/document/add/")
        data = text.format(name=name).encode()
        self.page.get_by_label("Files").set_input_files([{"name": name, "mimeType": "text/markdown", "buffer": data}])
        self.page.get_by_label("Collection").select_option(label=collection)
        self.page.get_by_role("button", name="Add documents", exact=True).click()
        self.page.get_by_text(f"{name} added.").wait_for()

    def open_session(self, document: str) -> str:
        """The page of the latest session about the document; its public id."""
        self.go("Runs")
        self.row(document).first.get_by_role("link").first.click()
        return self.page.locator("#session-live .lq-code").first.inner_text()

    def open_waiting_call(self, session: str) -> None:
        """Open the pending approval of a session from the queue."""
        self.go("Approvals")
        row = self.row(session).filter(has_text="Run completed")
        row.get_by_role("link", name="notify").click()

    def add_waiting_call(self, document: str) -> str:
        """Add a privileged document and open the approval that its run waits for, from the queue; the run's id."""
        self.add_document(document, PRIVILEGED + CONTRACT)
        session = self.open_session(document)
        self.until(self.chip("waiting for approval"))
        self.open_waiting_call(session)
        return session

    def until(self, seen: Any) -> None:
        """Reload until something is on the page, or true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        holds = seen if callable(seen) else seen.is_visible
        while not holds():
            assert time.monotonic() < deadline, f"not seen: {seen}\n{self.page.locator('body').inner_text()}"
            self.page.wait_for_timeout(LOOK_AGAIN_MS)
            self.page.reload()

    def act(self, title: str, **given: str) -> None:
        """Click a row action, fill in its confirm page, and confirm."""
        self.page.get_by_role("link", name=title, exact=True).click()
        for label, value in given.items():
            self.page.get_by_label(label.capitalize()).fill(value)
        self.page.get_by_role("button", name=title, exact=True).click()

    def shoot(self, name: str) -> None:
        """Take a screenshot if LQOPS_SCREENSHOTS is set."""
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)
