"""No text in the database runs, becomes an element or sends a request, on every kind of page with its newest row."""

import json
import shutil

import pytest

from tests.agents.admin.hostile import MARK, PAYLOADS, WORDS
from tests.browser.every_page import PARTS, templates_of
from tests.browser.product import printed_by, running
from tests.browser.sight import expect

pytestmark = pytest.mark.browser

# The samples' runs end first: nothing is newer than the hostile rows.
FILL = """
from django.contrib.auth.models import User
from agents.models import AgentSession, Approval
from tests.agents.admin.hostile_rows import ALL, make_hostile_world
from tests.agents.admin.rows import make_approval, page
from tests.flows.processes import until
at_work = AgentSession.objects.filter(status__in=("queued", "running"))
until(lambda: AgentSession.objects.exists() and not at_work.exists())
approval = make_approval(intent="notify", arguments={"a": ALL})
session = make_hostile_world(User.objects.get(username="admin")).session
print(page(AgentSession, "change", session.pk), page(Approval, "change", approval.pk))
"""
SEARCH = PAYLOADS[3]
LOADED = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
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
        yield started


@pytest.fixture(scope="module")
def filled(hostile):
    """Fill it with payloads: the page of the run with rows of all kinds, and of a call with arguments to change."""
    return printed_by(hostile, FILL).split()


@pytest.fixture(scope="module")
def addresses(hostile, filled):
    return [*templates_of(hostile, SEARCH)]


@pytest.fixture
def room(enter, hostile, filled):
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


def test_run_with_rows_of_all_kinds_is_among_the_pages(room, filled, addresses):
    run_page, _ = filled
    assert run_page in addresses
    room.open(run_page)

    for title in ("Findings", "Needs attention", "Question", "Waterfall"):
        expect(room.card(title)).to_contain_text(MARK)
    expect(room.page.locator("details").filter(has_text="Transcript").first).to_contain_text(MARK)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_page_lets_a_payload_live(room, addresses, part):
    opened, seen = addresses[part::PARTS], 0
    for address in opened:
        room.open(address)  # until it is loaded: scripts build editors then
        room.page.evaluate(LOADED)
        assert live(room) == [], address
        seen += room.page.evaluate("mark => document.documentElement.textContent.includes(mark)", MARK)
    print(f"\n{len(PAYLOADS)} payloads on {len(opened)} of {len(addresses)} pages, shown on {seen}")

    assert room.watch.take() == []
    assert seen > len(opened) / 2


def write(room, label, text):
    room.page.get_by_label(label).first.press("Control+a")
    room.page.keyboard.insert_text(text)


def test_errors_of_a_definition_are_text(room):
    room.open("/admin/agents/agent/import/")
    write(room, "YAML", "".join(f"mode{n}: {json.dumps(one)}\n" for n, one in enumerate(PAYLOADS)))
    expect(room.page.locator(".lq-editor-errors li").first).to_be_visible()

    assert live(room) == []


def test_changes_of_arguments_are_text(room, filled):
    _, approval_page = filled
    room.open(approval_page)
    room.page.get_by_text("Approve with changed arguments").click()
    write(room, "Arguments", json.dumps({"a": "\n".join(reversed(PAYLOADS))}))
    room.page.get_by_role("button", name="Review changes").click()
    expect(room.page.locator(".lq-diff")).to_contain_text(MARK)

    assert live(room) == []


def test_search_results_are_text(room):
    room.page.keyboard.press("/")
    room.page.keyboard.type(MARK)

    expect(room.page.get_by_role("dialog", name="Search").get_by_role("option").first).to_contain_text(MARK)

    assert live(room) == []
