"""Signing in with a second factor, in a real browser: an app, a passkey, and a role that needs one."""

import shutil
import time

import pytest

from tests.browser.product import running
from tests.browser.room import Room
from tests.browser.sight import expect
from tests.browser.watch import Watch
from tests.lqops.codes import totp

pytestmark = pytest.mark.browser
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def room(chromium, product):
    """A browser with a passkey store, at the host name under which browsers allow passkeys without TLS."""
    address = product.address.replace("127.0.0.1", "localhost")
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    watch = Watch(context, address)
    opened = Room(context.new_page(), type(product)(address, product.passwords, product.env), watch)
    keys = context.new_cdp_session(opened.page)
    keys.send("WebAuthn.enable")
    keys.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    yield opened
    context.close()
    assert watch.take() == []


def sign_out(room):
    room.open("/account/sessions/")
    room.shoot("account-sessions")
    room.page.get_by_role("button", name="Sign out here").click()
    room.page.wait_for_url("**/login/")


def test_app_is_set_up_and_asked_for(room, product):
    product.make_people({"tina": "viewer"})
    room.product.passwords["tina"] = product.passwords["tina"]
    room.open("/account/second-factor/")
    room.shoot("account-sign-in")
    room.sign_in("tina")
    room.shoot("account-second-factor")
    room.page.get_by_role("link", name="Set up app").click()
    room.shoot("account-set-up-app")
    secret = room.page.locator(".lq-secret").inner_text()
    room.page.get_by_label("Authenticator code").fill(totp(secret))
    room.page.get_by_role("button", name="Activate").click()
    expect(room.page.get_by_text("Authenticator app activated.")).to_be_visible()
    used = time.time() // 30
    sign_out(room)

    room.sign_in("tina")
    room.page.wait_for_url("**/authenticate/")
    room.shoot("account-code")
    while time.time() // 30 == used:
        room.page.wait_for_timeout(250)
    room.page.get_by_label("Code").fill(totp(secret))
    room.page.get_by_role("button", name="Sign in").click()
    room.page.wait_for_url("**/admin/")


def test_passkey_signs_in_alone_and_as_second_factor(room, product):
    product.make_people({"pia": "viewer"})
    room.product.passwords["pia"] = product.passwords["pia"]
    room.open("/account/second-factor/webauthn/add/")
    room.sign_in("pia")
    room.page.get_by_label("Passwordless").check()
    room.page.get_by_role("button", name="Add").click()
    expect(room.page.get_by_text("recovery codes").first).to_be_visible()
    sign_out(room)

    room.page.get_by_role("button", name="Sign in with a passkey").click()
    room.page.wait_for_url("**/admin/")
    sign_out(room)
    room.sign_in("pia")
    room.page.get_by_role("button", name="Use a passkey or security key").click()
    room.page.wait_for_url("**/admin/")


def test_role_that_needs_a_factor_is_led_to_its_setup(migrated, chromium, tmp_path):
    var = shutil.copytree(migrated, tmp_path / "var")
    with running(var, LQOPS_SECOND_FACTOR_FOR="approver") as product:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        room = Room(context.new_page(), product, Watch(context, product.address))
        room.open("/admin/health/")
        room.sign_in("admin")
        expect(room.page.get_by_text("Your role needs a second factor.")).to_be_visible()
        room.shoot("account-needs-factor")
        expect(room.page.locator("#nav-sidebar")).to_have_count(0)
        room.page.get_by_role("link", name="Set up app").click()
        room.page.get_by_label("Authenticator code").fill(totp(room.page.locator(".lq-secret").inner_text()))
        room.page.get_by_role("button", name="Activate").click()
        room.open("/admin/health/")
        expect(room.page.locator("#nav-sidebar")).to_be_visible()
        faults = room.watch.take()
        context.close()

    assert faults == []
