"""No text in the database runs, becomes an element or sends a request on any page."""

import shutil
import time

import pytest

from tests.agents.admin.hostile import MARK, PAYLOADS, WORDS
from tests.browser.every_page import addresses_of, told_by
from tests.browser.product import running
from tests.browser.sight import expect

pytestmark = pytest.mark.browser

FILL = """
from django.contrib.auth.models import User
from tests.agents.admin.hostile_rows import make_hostile_world
make_hostile_world(User.objects.get(username="admin"))
"""
RAN = f"window.{MARK} = () => {{ console.error('a payload ran at ' + location) }}"
# Elements that only a payload can have made: the mark is in them other than as text, or in what their words are for.
LIVE = f"""words => [...document.querySelectorAll('*')].filter(
    element => [...element.attributes].some(one => one.name.includes('{MARK}')
            || one.value.includes('{MARK}') && !words.includes(one.name) && !(one.name === 'href'
                && new URL(element.href, location).origin === location.origin && !/^\\s*j/i.test(one.value)))
        || element.matches('script, style, template, noscript') && element.textContent.includes('{MARK}')
).map(element => element.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def hostile(migrated, tmp_path_factory):
    var = shutil.copytree(migrated, tmp_path_factory.mktemp("product") / "var")
    with running(var) as started:
        told_by(started, FILL)
        yield started


@pytest.fixture
def room(enter, hostile):
    room = enter(hostile, "admin")
    room.page.add_init_script(RAN)
    room.page.on("dialog", lambda dialog: room.watch.faults.append(f"dialog: {dialog.message}"))
    return room


def live(room):
    return room.page.evaluate(LIVE, [*WORDS])


def test_check_notices_live_payloads(room):
    room.open("/admin/ask/")
    assert live(room) == []
    for payload in (f"<b {MARK}>", f"<a href=javascript:{MARK}(1)>", f"<img src=//{MARK}.example>", f"<i x-a={MARK}>"):
        with room.watch.expects(MARK) if "img" in payload else room.watch.expects():
            room.page.evaluate("html => document.body.insertAdjacentHTML('beforeend', html)", payload)
            assert live(room), payload
            room.page.wait_for_timeout(100)
        room.page.evaluate("document.body.lastElementChild.remove()")
    with room.watch.expects("a payload ran"):
        room.page.evaluate(f"{MARK}(1)")


def test_no_page_lets_a_payload_live(room, hostile):
    addresses = addresses_of(hostile)
    began, seen = time.monotonic(), 0
    for address in addresses:
        room.page.goto(f"{hostile.address}{address}", wait_until="domcontentloaded")
        assert live(room) == [], address
        seen += room.page.evaluate("mark => document.documentElement.textContent.includes(mark)", MARK)
    took = time.monotonic() - began
    print(f"\n{len(PAYLOADS)} payloads on {len(addresses)} pages, shown on {seen}, in {took:.0f} s")

    assert room.watch.take() == []
    assert seen > len(addresses) / 2


def test_search_results_are_text(room):
    room.page.keyboard.press("/")
    room.page.keyboard.type(MARK)

    expect(room.page.get_by_role("dialog", name="Search").get_by_role("option").first).to_contain_text(MARK)

    assert live(room) == []
