"""How room.js refreshes the parts of a page, by a clock and answers that the test holds in its hands."""

from pathlib import Path

import pytest

from tests.browser.sight import expect

pytestmark = pytest.mark.browser

SITE = "http://page.test"
SCRIPT = Path("agents/static/lqops/room.js")
EVERY = 40  # seconds
OVER = 60  # seconds between two looks at a run that is over
STREAM = """
window.EventSource = class extends EventTarget {
    constructor() { super(); window.source = this; this.readyState = 1; }
    close() { this.readyState = 2; }
};
window.EventSource.CLOSED = 2;
"""
TYPED = '<div id="side"><textarea></textarea></div>'
SELECT = "<select>{}</select>"


class Page:
    """A page with one part that refreshes, and the requests for it that wait for an answer."""

    def __init__(self, page, inside, beside, attributes):
        self.page, self.inside, self.beside, self.attributes = page, inside, beside, attributes
        self.asked = []
        page.add_init_script(STREAM)
        page.clock.install(time=0)
        page.route(f"{SITE}/**", self._serve)
        page.goto(f"{SITE}/")
        page.clock.pause_at(EVERY / 2)
        self.part = page.locator("#part")

    def _serve(self, route):
        address = route.request.url.removeprefix(SITE)
        if address == "/room.js":
            route.fulfill(body=SCRIPT.read_text(), content_type="text/javascript")
        elif address == "/part":
            self.asked.append(route)
        else:
            route.fulfill(body=self.text("at first"), content_type="text/html")

    def text(self, says, *, is_over=False):
        every = "" if is_over else f' data-every="{EVERY}"'
        part = f'<div id="part" data-from="/part"{every} {self.attributes}>{says}{self.inside}</div>'
        return f'<!doctype html><body>{part}{self.beside}<script src="/room.js"></script></body>'

    def wait(self, seconds):
        """Let so many seconds pass; return how many requests wait for an answer then."""
        self.page.clock.run_for(int(seconds * 1000))
        self.page.evaluate("fetch('/last').then(answer => answer.text())")  # requests before it have come in
        return len(self.asked)

    def answer(self, says, **more):
        self.asked.pop(0).fulfill(body=self.text(says, **more), content_type="text/html")

    def event(self, name):
        self.page.evaluate(f"window.source.dispatchEvent(new Event('{name}'))")


@pytest.fixture
def open_page(chromium):
    contexts = []

    def open_one(inside="", beside="", attributes=""):
        contexts.append(chromium.new_context())
        return Page(contexts[-1].new_page(), inside, beside, attributes)

    yield open_one
    for context in contexts:
        context.close()


def test_part_refreshes_until_it_is_over(open_page):
    one = open_page()
    assert one.wait(EVERY / 2 - 1) == 0
    assert one.wait(EVERY / 2) == 1
    one.answer("running")
    expect(one.part).to_have_text("running")
    assert one.wait(EVERY) == 1
    one.answer("over", is_over=True)
    expect(one.part).to_have_text("over")
    assert one.wait(10 * OVER) == 0


def test_run_that_is_over_waits_longer_while_somebody_types_beside_it(open_page):
    one = open_page(beside=TYPED, attributes='data-with="side"')
    box = one.page.locator("textarea")
    box.fill("The one in Ber")
    assert one.wait(EVERY) == 1
    one.answer("over", is_over=True)
    expect(one.part).to_have_attribute("data-every", str(OVER))
    expect(one.part).to_have_text("at first")
    assert one.wait(OVER - 1) == 0
    assert one.wait(1) == 1
    one.answer("over", is_over=True)
    expect(box).to_have_value("The one in Ber")

    box.fill("")
    assert one.wait(OVER) == 1
    one.answer("over", is_over=True)
    expect(one.part).to_have_text("over")
    assert one.wait(10 * OVER) == 0


def test_answer_after_an_event_is_shown_though_an_earlier_one_came_first(open_page):
    one = open_page(attributes='data-status="/status"')
    assert one.wait(EVERY) == 1
    one.event("status")
    one.event("status")
    assert one.wait(1) == 2
    one.answer("waiting")
    expect(one.part).to_have_text("waiting")
    one.answer("approved")
    expect(one.part).to_have_text("approved")
    assert one.wait(EVERY) == 1


@pytest.mark.parametrize(
    ("options", "first", "other"),
    [
        ("<option>a</option><option selected>b</option>", "b", "a"),
        ("<option>a</option><option>b</option>", "a", "b"),
        ("<option disabled>-</option><option>a</option><option>b</option>", "a", "b"),
    ],
)
def test_changed_select_holds_its_part_back(open_page, options, first, other):
    one = open_page(inside=SELECT.format(options))
    select = one.page.locator("select")
    select.select_option(other)
    assert one.wait(5 * EVERY) == 0
    expect(select).to_have_value(other)

    select.select_option(first)
    assert one.wait(EVERY) == 1
    one.answer("running")
    expect(one.part).to_contain_text("running")


def test_select_that_is_changed_while_an_answer_is_awaited_keeps_its_choice(open_page):
    one = open_page(inside=SELECT.format("<option selected>a</option><option>b</option>"))
    assert one.wait(EVERY) == 1
    one.page.locator("select").select_option("b")
    one.answer("running")
    assert one.wait(EVERY) == 0
    expect(one.page.locator("select")).to_have_value("b")
    expect(one.part).to_contain_text("at first")
