"""Second factors at the sign-in: no page, no API and no set-up without them, whatever is tried."""

import re
from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.db import OperationalError
from django.test import Client, RequestFactory, override_settings
from django.urls import get_resolver

from agents.conf import clock
from agents.people import sign_ins
from agents.people.sign_ins import CODE_TRIES
from audit.models import AuditEvent
from lqops import sign_in, sign_in_record
from lqops.sign_in import OPEN, AccountAdapter, FactorAdapter
from tests.lqops.codes import (
    CODE,
    CONFIRM,
    PASSWORD,
    SECRET,
    SETUP,
    TOTP_SETUP,
    code_now,
    enter_code,
    enter_password,
    is_signed_in,
    make_person,
    wrong_code,
)

pytestmark = pytest.mark.django_db
DEMANDED = ["approver"]


@pytest.fixture
def demanded(settings):
    settings.LQOPS_SECOND_FACTOR_FOR = DEMANDED


@pytest.fixture
def later(time_machine):
    """`later(seconds)`: the clock goes on. It stands still meanwhile, so that a code stays valid."""
    time_machine.move_to(clock().replace(second=2, microsecond=0), tick=False)
    return lambda **more: time_machine.shift(timedelta(**more))


def kinds(prefix=("sign_in.", "factor.", "people.")):
    events = AuditEvent.objects.order_by("seq").values_list("kind", flat=True)
    return [kind for kind in events if kind.startswith(prefix)]


def signed_in_with_code(**more):
    client = enter_password(**more).client
    enter_code(client, code_now())
    assert is_signed_in(client)
    return client


# --- The code at the sign-in ---


@pytest.mark.parametrize(
    ("host", "are_offered"), [("localhost:8000", True), ("127.0.0.1:8000", False), ("[::1]:8000", False)]
)
def test_passkeys_are_offered_where_browsers_take_them(host, are_offered):
    client = Client(headers={"host": host})
    assert ("Sign in with a passkey" in client.get("/login/").content.decode()) is are_offered
    client.force_login(make_person())

    setup = client.get(SETUP).content.decode()

    assert ("Add key" in setup) is are_offered
    assert ("Browsers offer none at an IP address." in setup) is not are_offered


@pytest.mark.parametrize(("host", "are_asked_for"), [("localhost:8000", True), ("127.0.0.1:8000", False)])
def test_keys_are_asked_for_where_browsers_take_them(host, are_asked_for, later):
    client = Client(headers={"host": host})
    make_person(factor=True)
    enter_password(client=client)

    page = client.get(CODE).content.decode()

    assert "authenticator app" in page
    assert ("Use a passkey or security key" in page) is are_asked_for
    assert ("not at an IP address" in page) is not are_asked_for


def test_password_alone_does_not_sign_in_whoever_has_a_factor(later):
    make_person(factor=True)

    answer = enter_password()

    assert (answer.status_code, answer["Location"]) == (302, CODE)
    assert not is_signed_in(answer.client)
    assert answer.client.get("/admin/")["Location"].startswith("/admin/login/")
    assert answer.client.get("/api/v1/sessions").status_code == 401


def test_code_signs_in_and_both_steps_are_recorded(later):
    ada = make_person(factor=True)

    client = signed_in_with_code()

    assert client.get("/admin/").status_code == 200
    done = AuditEvent.objects.get(kind="sign_in.done")
    assert (done.subject, done.details["how"]) == (f"user:{ada.pk}", "password+totp")
    assert done.details["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("record", "way"),
    [
        ({"method": "password"}, "password"),
        ({"method": "mfa", "type": "webauthn"}, "webauthn"),
        ({"method": "mfa", "type": "webauthn", "passwordless": True}, "passkey"),
        ({"method": "socialaccount", "provider": "sso"}, "single_sign_on"),
    ],
)
def test_each_way_to_sign_in_has_a_name(record, way):
    assert sign_in_record._way(record) == way


@pytest.mark.parametrize("code", ["", "000000 ", "12345", "abcdef", "' or 1=1", "٠١٢٣٤٥"])
def test_wrong_code_does_not_sign_in(later, code):
    make_person(factor=True)
    client = enter_password().client

    answer = enter_code(client, wrong_code() if code == "000000 " else code)

    assert answer.status_code == 200
    assert not is_signed_in(client)


def test_wrong_code_is_recorded(later):
    ada = make_person(factor=True)
    enter_code(enter_password().client, wrong_code())

    failed = AuditEvent.objects.get(kind="sign_in.failed")
    assert (failed.subject, failed.details["what"]) == (f"user:{ada.pk}", "wrong_code")


def test_code_is_good_for_one_use_in_all_processes(later):
    make_person(factor=True)
    code = code_now()
    signed_in_with_code()
    second = enter_password().client

    answer = enter_code(second, code)

    assert "used already" in answer.content.decode()
    assert not is_signed_in(second)
    later(seconds=30)
    enter_code(second, code_now())
    assert is_signed_in(second)


def test_code_of_the_past_is_refused(later):
    make_person(factor=True)
    code = code_now()
    client = enter_password().client
    later(seconds=30)

    enter_code(client, code)

    assert not is_signed_in(client)


def test_code_after_signing_out_needs_the_password_again(later):
    make_person(factor=True)
    client = signed_in_with_code()
    client.post("/account/logout/")
    later(seconds=30)

    answer = enter_code(client, code_now())

    assert answer["Location"] == "/login/"
    assert not is_signed_in(client)


def test_code_without_a_password_signs_nobody_in(later):
    make_person(factor=True)
    client = Client()

    assert enter_code(client, code_now())["Location"] == "/login/"
    assert not is_signed_in(client)


def test_pending_sign_in_ends_after_a_while(later):
    make_person(factor=True)
    client = enter_password().client
    later(minutes=20)

    enter_code(client, code_now())

    assert not is_signed_in(client)


def test_right_code_is_refused_after_too_many_wrong_ones(later):
    ada = make_person(factor=True)
    for _ in range(CODE_TRIES // 2):  # from several browsers, at several processes
        client = enter_password().client
        enter_code(client, wrong_code())
        enter_code(client, wrong_code())

    answer = enter_code(client, code_now())

    assert "Too many failed codes. Try again in 15 minutes." in answer.content.decode()
    assert not is_signed_in(client)
    refused = AuditEvent.objects.get(kind="sign_in.refused")
    assert (refused.subject, refused.details) == (f"user:{ada.pk}", {"scope": "code", "tries": CODE_TRIES})
    later(minutes=15)
    client = enter_password().client
    enter_code(client, code_now())
    assert is_signed_in(client)


def test_password_does_not_reset_the_count_of_codes(later, monkeypatch):
    monkeypatch.setattr(sign_ins, "CODE_TRIES", 2)
    make_person(factor=True)
    for _ in range(3):
        client = enter_password().client
        enter_code(client, wrong_code())

    enter_code(client, code_now())

    assert not is_signed_in(client)


def test_recovery_code_signs_in_once_and_is_recorded(later):
    ada = make_person(factor=True)
    code = RecoveryCodes(Authenticator.objects.get(user=ada, type="recovery_codes")).get_unused_codes()[3]
    first, second = enter_password().client, enter_password().client

    enter_code(first, code)
    enter_code(second, code)

    assert (is_signed_in(first), is_signed_in(second)) == (True, False)
    used = AuditEvent.objects.get(kind="factor.recovery_code_used")
    assert used.details == {"user_id": ada.pk, "left": 9}


def test_inactive_person_with_a_pending_sign_in_stays_out(later):
    ada = make_person(factor=True)
    client = enter_password().client
    ada.is_active = False
    ada.save()

    enter_code(client, code_now())

    assert client.get("/admin/").status_code == 302


def test_session_key_changes_at_the_sign_in(later):
    make_person(factor=True)
    client = enter_password().client
    planted = client.session.session_key

    enter_code(client, code_now())

    assert client.session.session_key != planted


# --- Where a sign-in leads ---


@pytest.mark.parametrize(
    "place", ["https://evil.example/", "//evil.example/x", "javascript:alert(1)", "/\\evil.example"]
)
@pytest.mark.parametrize("factor", [False, True])
def test_sign_in_leads_to_no_other_site(later, factor, place):
    make_person(factor=factor)
    answer = enter_password(next=place)
    if factor:
        answer = enter_code(answer.client, code_now())

    assert is_signed_in(answer.client)
    assert answer["Location"] == "/admin/"


def test_sign_in_leads_to_the_page_asked_for(later):
    make_person(factor=True)
    client = enter_password(next="/admin/health/").client

    assert enter_code(client, code_now())["Location"] == "/admin/health/"


# --- A factor that is demanded ---

CLOSED = ["/admin/", "/admin/health/", "/admin/agents/approval/", "/admin/ask/", "/admin/password_change/",
          "/admin/agents/apikey/add/", "/admin/auth/user/", "/receipts/x/", "/account/sessions/", "/"]  # fmt: skip


@pytest.mark.parametrize("path", CLOSED)
def test_who_needs_a_factor_reaches_only_its_setup(demanded, path):
    make_person(role="approver")
    client = enter_password().client

    answer = client.get(path)

    assert answer.status_code == 302
    assert answer["Location"].partition("?")[0] == SETUP


@pytest.mark.parametrize("method", ["get", "post", "delete", "options"])
@pytest.mark.parametrize("path", ["/api/v1/sessions", "/api/v1/approvals", "/api/v1/halt", "/api/v1/events/stream"])
def test_who_needs_a_factor_cannot_use_the_api_with_a_cookie(demanded, path, method):
    make_person(role="approver")
    client = enter_password().client

    answer = getattr(client, method)(path)

    assert answer.status_code == 403
    assert answer.json()["code"] == "second_factor_required"


def test_every_address_is_closed_unless_it_is_listed(demanded):
    make_person(role="approver")
    client = enter_password().client
    names = {name for name in get_resolver().reverse_dict if isinstance(name, str)}
    opened = {name for name in names if client.get(_address(name)).status_code == 200 and not name.startswith("mfa_")}

    assert opened <= OPEN | {"account_reauthenticate"}


def _address(name):
    ways = get_resolver().reverse_dict.getlist(name)
    pattern, parameters = ways[0][0][0]
    return "/" + pattern % dict.fromkeys(parameters, "1")


def test_post_is_not_carried_out_without_the_factor(demanded):
    ada = make_person(role="admin", username="ada")
    other = make_person("bob")
    with override_settings(LQOPS_SECOND_FACTOR_FOR=["admin"]):
        client = enter_password().client
        client.post(f"/admin/auth/user/{other.pk}/act/sign_out/", {"confirmed": "1"})

    assert "people.signed_out" not in kinds()
    assert ada.groups.exists()


@pytest.mark.parametrize("names", [["approver"], ["agents.resolve_approval"], ["everybody"]])
def test_factor_is_demanded_by_role_or_permission(settings, names):
    settings.LQOPS_SECOND_FACTOR_FOR = names
    make_person(role="approver")

    assert enter_password().client.get("/admin/").status_code == 302


def test_superuser_needs_one_as_soon_as_anybody_does(demanded):
    make_person(is_superuser=True)

    assert enter_password().client.get("/admin/").status_code == 302


def test_others_need_none(demanded):
    make_person(role="viewer")

    assert enter_password().client.get("/admin/").status_code == 200


def test_role_given_later_closes_the_open_session(demanded):
    ada = make_person()
    client = enter_password().client
    assert client.get("/admin/").status_code == 200

    ada.groups.add(*make_person("bob", role="approver").groups.all())

    assert client.get("/admin/").status_code == 302


def test_session_from_before_the_factor_has_to_confirm_it(demanded, later):
    make_person(role="viewer")
    old = enter_password().client
    ada = make_person("bob", role="approver", factor=True)
    bob = enter_password("bob").client
    enter_code(bob, code_now())
    session = old.session  # a session of bob's that never saw a factor
    session["_auth_user_id"], session["_auth_user_hash"] = str(ada.pk), ada.get_session_auth_hash()
    session.save()

    assert bob.get("/admin/").status_code == 200
    assert old.get("/admin/")["Location"].startswith("/account/second-factor/reauthenticate/")
    later(seconds=30)
    old.post("/account/second-factor/reauthenticate/", {"code": code_now()})
    assert old.get("/admin/").status_code == 200


@pytest.mark.parametrize("path", ["/admin/", "/api/v1/sessions"])
def test_database_that_is_away_is_no_way_around(demanded, monkeypatch, path):
    make_person(role="approver")
    client = enter_password().client

    def fail(user):
        raise OperationalError("the server is gone")

    monkeypatch.setattr(sign_in, "must_have_factor", fail)

    assert client.get(path).status_code == 503


def test_setting_it_up_opens_the_admin_and_is_recorded(demanded, later):
    ada = make_person(role="approver")
    client = enter_password().client
    secret = _secret_shown(client)

    answer = client.post(TOTP_SETUP, {"code": code_now(secret)})

    assert answer["Location"] == "/account/second-factor/recovery-codes/"
    assert client.get("/admin/").status_code == 200
    added = AuditEvent.objects.filter(kind="factor.added").order_by("seq")
    assert [(event.actor, event.details["type"]) for event in added] == [
        (f"user:{ada.pk}", "totp"),
        (f"user:{ada.pk}", "recovery_codes"),
    ]


def _secret_shown(client):
    return re.search(r'class="lq-secret">(\w+)<', client.get(TOTP_SETUP).content.decode())[1]


def test_wrong_code_sets_nothing_up(demanded, later):
    make_person(role="approver")
    client = enter_password().client
    secret = _secret_shown(client)

    client.post(TOTP_SETUP, {"code": wrong_code(secret)})

    assert not Authenticator.objects.exists()
    assert client.get("/admin/").status_code == 302


def test_removing_the_only_factor_closes_the_session_again(demanded, later):
    make_person(role="approver", factor=True)
    client = signed_in_with_code()

    client.post("/account/second-factor/totp/deactivate/")

    assert client.get("/admin/")["Location"].startswith(SETUP)
    assert kinds("factor.") == ["factor.removed", "factor.removed"]


# --- Changing factors needs a recent sign-in or confirmation ---

KEYS, CODES = "/account/second-factor/webauthn/add/", "/account/second-factor/recovery-codes/"
REMOVAL = "/account/second-factor/totp/deactivate/"


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("path", [TOTP_SETUP, KEYS])
def test_old_session_confirms_the_password_before_a_setup(later, path, method):
    make_person()
    client = enter_password().client
    later(minutes=6)

    answer = getattr(client, method)(path)

    assert answer["Location"].startswith(CONFIRM)
    assert not Authenticator.objects.exists()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("get", path) for path in (KEYS, CODES, f"{CODES}download/", f"{CODES}generate/", REMOVAL)),
        *(("post", path) for path in (KEYS, f"{CODES}generate/", REMOVAL)),
    ],
)
def test_old_session_confirms_the_factor_before_a_change(later, path, method):
    make_person(factor=True)
    client = signed_in_with_code()
    later(minutes=6)
    before = list(Authenticator.objects.order_by("pk").values_list("pk", "data"))

    answer = getattr(client, method)(path)

    assert answer["Location"].startswith("/account/second-factor/reauthenticate/")
    assert list(Authenticator.objects.order_by("pk").values_list("pk", "data")) == before


def test_password_is_no_confirmation_for_whoever_has_a_factor(later):
    make_person(factor=True)
    client = signed_in_with_code()
    later(minutes=6)

    client.post(CONFIRM, {"password": PASSWORD})

    assert client.get(REMOVAL)["Location"].startswith("/account/second-factor/reauthenticate/")


def test_confirmed_password_opens_the_setup(later):
    make_person()
    client = enter_password().client
    later(minutes=6)

    client.post(CONFIRM, {"password": PASSWORD})

    assert client.get(TOTP_SETUP).status_code == 200


def test_guesses_of_the_password_in_a_session_are_counted(later):
    make_person()
    client = enter_password().client
    later(minutes=6)
    for number in range(CODE_TRIES):
        client.post(CONFIRM, {"password": f"wrong-{number}"})

    answer = client.post(CONFIRM, {"password": PASSWORD})

    assert "Too many failed passwords" in answer.content.decode()
    assert client.get(TOTP_SETUP).status_code == 302
    assert kinds("sign_in.failed") == ["sign_in.failed"] * CODE_TRIES


def test_factor_of_somebody_else_cannot_be_removed(later):
    make_person("bob", factor=True)
    key = Authenticator.objects.create(user_id=make_person("eve").pk, type="webauthn", data={"name": "k"})
    client = enter_password("bob").client
    enter_code(client, code_now())

    assert client.post(f"/account/second-factor/webauthn/keys/{key.pk}/remove/").status_code == 404
    assert Authenticator.objects.filter(pk=key.pk).exists()


# --- Secrets at rest ---


def test_secrets_of_factors_are_encrypted():
    ada = make_person(factor=True)

    stored = str(list(Authenticator.objects.filter(user=ada).values_list("data", flat=True)))

    assert SECRET not in stored


def test_factor_encrypted_with_another_key_matches_no_code(later):
    make_person(factor=True)
    with override_settings(SECRET_KEY="another-key-of-more-than-fifty-characters-" * 2):
        client = enter_password().client
        enter_code(client, code_now())
        assert not is_signed_in(client)
        assert FactorAdapter().decrypt("gibberish") != FactorAdapter().decrypt("gibberish")


# --- Nothing but signing in ---


@pytest.mark.parametrize(
    "path", ["signup/", "email/", "password/reset/", "password/change/", "login/code/", "3rdparty/"]
)
@pytest.mark.parametrize("root", ["/account/", "/", "/accounts/"])
def test_there_is_no_page_to_sign_up_or_to_change_an_address(client, root, path):
    assert client.get(root + path).status_code == 404


def test_nobody_signs_up():
    assert not AccountAdapter().is_open_for_signup(RequestFactory().get("/"))


def test_sign_in_needs_the_token_against_forgery():
    make_person()
    client = Client(enforce_csrf_checks=True)

    assert enter_password(client=client).status_code == 403
    assert not is_signed_in(client)
