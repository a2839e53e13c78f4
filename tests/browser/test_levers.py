"""Halting one session, and everything, during a model call."""

import re

import pytest

from tests.browser.sight import expect
from tests.lqops.processes import run

pytestmark = pytest.mark.browser

RESULT = re.compile(r"^\s*(ok|findings|empty)\s*$")
PAGES = ["Home", "Runs", "Triggers", "Documents", "Health"]


@pytest.fixture
def held(model):
    """The model answers nobody until `held.free` is set."""
    model.free.clear()
    yield model
    model.free.set()


@pytest.fixture
def room(enter, product_with_model):
    return enter(product_with_model, "admin")


def in_flight(room, held, document):
    """A run whose question is with the model, by its page."""
    room.add_document(document)
    room.open_session(document)
    room.until(lambda: held.asked_about(document))
    room.until(room.card("Timeline").get_by_role("listitem").filter(has_text="Model call").get_by_text("started"))


def test_halt_is_confirmed_during_a_model_call(room, held):
    in_flight(room, held, "halted.md")

    room.act("Halt run", reason="wrong contract")

    expect(room.card("Timeline")).to_contain_text("Reason: wrong contract")
    expect(room.chip("halted").first).to_be_visible()  # although the model has not answered
    expect(room.chip("stopped by a person")).to_be_visible()
    expect(room.page.locator("blockquote")).to_have_count(0)
    room.shoot("halted")


def test_halt_from_the_list_stops_a_run(room, held):
    in_flight(room, held, "listed.md")
    room.go("Runs")

    room.row("listed.md").get_by_role("link", name="Halt").click()
    room.page.get_by_label("Reason").fill("seen in the list")
    room.page.get_by_role("button", name="Halt run", exact=True).click()

    expect(room.chip("stopped by a person")).to_be_visible()  # although the model has not answered


def test_halt_of_everything_is_on_every_page_until_released(room, held):
    in_flight(room, held, "everything.md")
    room.go("Home")
    banner = room.page.get_by_role("alert").filter(has_text="Everything is halted")
    expect(banner).to_have_count(0)

    room.page.get_by_role("link", name="Halt everything").click()
    expect(room.page.get_by_text("no further call starts")).to_be_visible()
    expect(banner).to_have_count(0)  # so far it was only asked for
    room.page.get_by_label("Reason").fill("incident 7")
    room.page.get_by_role("button", name="Halt everything").click()

    for name in PAGES:
        room.go(name)
        expect(banner).to_contain_text("Reason: incident 7")
    room.shoot("banner")
    held.free.set()
    room.open_session("everything.md")
    room.until(room.chip("stopped by a person"))
    room.add_document("meanwhile.md")
    room.go("Runs")
    expect(room.row("meanwhile.md")).to_have_count(0)

    banner.get_by_role("link", name="Release").click()
    room.page.get_by_role("button", name="Release").click()

    expect(room.page.get_by_text("Released. New runs can start")).to_be_visible()
    expect(banner).to_have_count(0)
    room.go("Runs")
    room.until(room.row("meanwhile.md").get_by_text(RESULT))
    expect(room.row("everything.md")).to_contain_text("stopped by a person")


def test_open_home_shows_a_halt_and_keeps_typed_text(room):
    page, env = room.page, room.product.env
    banner = page.get_by_role("alert").filter(has_text="Everything is halted")
    halt, release = (
        page.locator("#home-halt").get_by_role("link", name=name) for name in ("Halt everything", "Release")
    )
    expect(halt).to_be_visible()
    page.evaluate("window.stayed = true")
    page.get_by_label("Ask", exact=True).fill("half a quest")

    assert run("halt", "--all", "--reason", "seen elsewhere", "--user", "admin", env=env).returncode == 0

    expect(banner).to_contain_text("by admin. Reason: seen elsewhere.")
    expect(page.locator("#home-status")).to_contain_text("Halted")
    expect(release).to_be_visible()
    expect(halt).to_have_count(0)
    expect(page.get_by_label("Ask", exact=True)).to_be_focused()
    expect(page.get_by_label("Ask", exact=True)).to_have_value("half a quest")
    room.shoot("halted-elsewhere")

    page.get_by_role("link", name="All runs").focus()  # panels in use stay; the rest follows
    assert run("release", env=env).returncode == 0

    expect(banner).to_have_count(0)
    expect(halt).to_be_visible()
    expect(page.get_by_role("link", name="All runs")).to_be_focused()
    assert page.evaluate("window.stayed")


@pytest.mark.parametrize("name", ["Runs", "Health"])
def test_open_page_shows_a_halt_from_elsewhere(room, name):
    page, env = room.page, room.product.env
    banner = page.get_by_role("alert").filter(has_text="Everything is halted")
    room.go(name)
    expect(page.locator("#halt-banner")).to_have_attribute("data-every", "5")
    page.evaluate("window.stayed = true")

    assert run("halt", "--all", "--reason", "seen elsewhere", "--user", "admin", env=env).returncode == 0
    expect(banner).to_contain_text("by admin. Reason: seen elsewhere.")
    assert run("release", env=env).returncode == 0
    expect(banner).to_have_count(0)

    assert page.evaluate("window.stayed")
