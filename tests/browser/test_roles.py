"""What viewers, approvers and people without a role see."""

import pytest

from tests.browser.room import CONTRACT, PRIVILEGED
from tests.browser.sight import expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def _people(product):
    product.make_people({"vera": "viewer", "amir": "approver", "sten": ""})


def test_viewer_sees_sessions_and_no_actions(enter, product):
    room = enter(product, "vera")
    expect(room.card("Running")).to_be_visible()
    expect(room.page.get_by_role("link", name="Halt everything")).to_have_count(0)

    room.open_session("policy-memo.md")
    room.until(room.chip("waiting for approval"))

    expect(room.card("Timeline")).to_contain_text("Model call")
    for name in ("Halt run", "Run again", "Decide"):
        expect(room.page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    here = room.page.url.rstrip("/").removesuffix("/change")
    with room.watch.expects("403"):
        room.page.goto(f"{here}/act/halt/")
        expect(room.page.get_by_role("button", name="Halt")).to_have_count(0)


def test_approver_decides_and_cannot_halt(enter, product, admin):
    admin.add_document("for-the-approver.md", PRIVILEGED + CONTRACT)
    session = admin.open_session("for-the-approver.md")
    admin.until(admin.chip("waiting for approval"))
    room = enter(product, "amir")
    expect(room.page.get_by_role("link", name="Halt everything")).to_have_count(0)

    room.open_waiting_call(session)
    approve = room.page.get_by_role("button", name="Approve once")
    expect(approve).to_be_visible()
    call = room.page.url
    approve.click()

    expect(room.page.get_by_text("Approved. The call may be made once.")).to_be_visible()
    room.page.goto(call)
    expect(room.page.locator("dt", has_text="Decided").locator("+ dd")).to_contain_text("by amir")
    admin.until(admin.chip("completed"))
    room.open_session("for-the-approver.md")
    expect(room.page.get_by_role("link", name="Run again")).to_have_count(0)


def test_user_without_staff_status_reaches_no_page_of_the_admin(enter, product):
    room = enter(product)

    with room.watch.expects("403"):
        room.sign_in("sten")
        expect(room.page.get_by_role("heading", name="Not allowed")).to_be_visible()
    room.open("/account/sessions/")
    expect(room.page.get_by_role("heading", name="Sessions")).to_be_visible()
    room.open("/account/logout/")
    room.page.get_by_role("button", name="Sign out").click()
    expect(room.page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
