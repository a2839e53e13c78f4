"""Pictures of the main pages for the documentation: `make screenshots` writes them to docs/images.

An installation of its own runs with its samples, on a free port. Home, a run and the lists are taken as they are, in
the dark, on a phone and while all work is halted; Home and the lists also in an installation without any work, and in
one after a busy night.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.conftest import chromium_path
from tests.browser.product import Product, printed_by, running
from tests.browser.room import Room
from tests.browser.watch import Watch
from tests.lqops.processes import environment, run

OUT = Path("docs/images")
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
EMPTY = """
from agents.models import AgentSession, Collection, Notification, Trigger
for model in (AgentSession, Notification, Trigger, Collection):
    model.objects.all().delete()
"""
LISTS = {
    "home": "/admin/",
    "runs": "/admin/agents/agentsession/",
    "approvals": "/admin/agents/approval/",
    "findings": "/admin/agents/finding/",
}


def signed_in(browser: Browser, product: Product, **options: Any) -> Room:
    context = browser.new_context(viewport=options.pop("viewport", WIDE), **options)
    room = Room(context.new_page(), product, Watch(context, product.address))
    room.open("/admin/")
    room.sign_in("admin")
    room.page.wait_for_url("**/admin/")
    return room


def take(room: Room, name: str, path: str = "") -> None:
    if path:
        room.open(path)
    room.page.wait_for_load_state("networkidle")
    room.page.screenshot(path=OUT / f"{name}.png", animations="disabled")
    print(OUT / f"{name}.png", flush=True)


def take_lists(room: Room, state: str = "") -> None:
    for name, path in LISTS.items():
        take(room, f"{name}-{state}" if state else name, path)


def take_all(browser: Browser, product: Product) -> None:
    room = signed_in(browser, product)
    room.open(LISTS["approvals"])
    expect(room.page.get_by_text("policy-memo.md").first).to_be_visible()  # the samples have been read
    take_lists(room)
    room.open_session("brightline")
    run_page = room.page.url.removeprefix(product.address)
    take(room, "session")
    room.page.get_by_role("link", name="Receipt", exact=True).first.click()
    take(room, "receipt")
    room.open(LISTS["approvals"])
    room.page.get_by_role("link", name=re.compile("notify")).first.click()
    take(room, "approval")
    dark = signed_in(browser, product, color_scheme="dark")
    take_lists(dark, "dark")
    take(dark, "session-dark", run_page)
    phone = signed_in(browser, product, viewport=PHONE)
    take_lists(phone, "phone")
    take(phone, "session-phone", run_page)
    room.open("/admin/")
    room.page.get_by_role("link", name="Halt everything").first.click()
    room.page.get_by_role("button", name=re.compile("Halt everything")).first.click()
    take_lists(room, "halted")
    take(room, "session-halted", run_page)
    room.open("/admin/")
    room.page.get_by_role("link", name="Release").first.click()
    room.page.get_by_role("button", name="Release").first.click()
    printed_by(product, "from tests.browser.furniture import make_busy; make_busy()")
    take_lists(room, "busy")


def take_empty(browser: Browser, product: Product) -> None:
    """Pages that have nothing to show yet."""
    printed_by(product, EMPTY)
    take_lists(signed_in(browser, product), "empty")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        for take_them in (take_empty, take_all):
            var = Path(folder) / take_them.__name__
            done = run("migrate", "--verbosity=0", env=environment(var))
            assert done.returncode == 0, done.stderr
            with running(var) as product:
                take_them(browser, product)
        browser.close()


if __name__ == "__main__":
    main()
