"""Every page loads only from its own host, and the watch detects violations."""

import pytest

from tests.browser.sight import expect, sync_api

pytestmark = pytest.mark.browser


def test_every_page_of_the_sidebar_opens(admin):
    paths = [
        link.get_attribute("href") for link in admin.page.locator("#nav-sidebar, .lq-pages").get_by_role("link").all()
    ]

    for path in paths:
        admin.open(path)
        expect(admin.page.locator("#nav-sidebar")).to_be_visible()
        tabs = [link.get_attribute("href") for link in admin.page.locator(".lq-pages a").all()]
        paths.extend(tab for tab in tabs if tab not in paths)
    assert len(paths) > 30

    assert admin.watch.faults == []
    assert admin.watch.requests > len(paths)


def test_policy_blocks_other_hosts_and_the_watch_notes_it(admin):
    with admin.watch.expects("Content Security Policy"):
        admin.page.evaluate("() => fetch('http://127.0.0.2:9/').catch(() => null)")


def test_watch_notes_requests_to_other_hosts(admin):
    with admin.watch.expects("request: http://127.0.0.2:9/"), pytest.raises(sync_api.Error, match="ERR_"):
        admin.page.goto("http://127.0.0.2:9/")


def test_watch_notes_script_errors(admin):
    with admin.watch.expects("script: broken on purpose"), admin.page.expect_event("pageerror"):
        admin.page.evaluate("() => { setTimeout(() => { throw new Error('broken on purpose') }) }")
