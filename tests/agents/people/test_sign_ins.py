"""Sign-in limits by account and by address: the same for everybody, and they end after 15 minutes."""

from datetime import timedelta
from io import StringIO
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from agents.models import SignInCount
from agents.people import sign_ins
from agents.people.sign_ins import KNOWN_FOR, WINDOW, sign_in_begin, sign_in_done
from audit.models import AuditEvent
from lqops import sign_in, sign_in_record
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
PAGE = "/login/"
RIGHT = "right-horse-battery"
REFUSED = "Too many failed sign-ins. Try again in 15 minutes."
STRANGER, HOME = "203.0.113.9", "198.51.100.7"
ACCOUNT_TRIES, ADDRESS_TRIES = 4, 15  # lower than the real limits
REAL_LIMITS = sign_ins.ACCOUNT_TRIES, sign_ins.ADDRESS_TRIES


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch):
    monkeypatch.setattr(sign_in, "clock", lambda: NOW)
    monkeypatch.setattr(sign_in_record, "clock", lambda: NOW)


@pytest.fixture(autouse=True)
def few_tries(monkeypatch):
    monkeypatch.setattr(sign_ins, "ACCOUNT_TRIES", ACCOUNT_TRIES)
    monkeypatch.setattr(sign_ins, "ADDRESS_TRIES", ADDRESS_TRIES)


@pytest.fixture
def ada():
    user = make_user(username="ada", is_staff=True, is_superuser=True)
    user.set_password(RIGHT)
    user.save()
    return user


def sign_in_at(password, *, username="ada", address=STRANGER):
    return Client().post(PAGE, {"login": username, "password": password}, REMOTE_ADDR=address)


def tries(count, *, username="ada", address=STRANGER, now=NOW):
    """Make some failing tries and return the wait after the last one."""
    return [sign_in_begin(username=username, address=address, now=now) for _ in range(count)][-1]


def refusals():
    return list(AuditEvent.objects.filter(kind="sign_in.refused").order_by("seq").values_list("subject", "details"))


def test_right_password_is_refused_after_too_many_tries(ada):
    answers = [sign_in_at(f"wrong-{number}") for number in range(ACCOUNT_TRIES)]
    assert all(REFUSED not in answer.content.decode() for answer in answers)

    answer = sign_in_at(RIGHT)

    assert answer.status_code == 200
    assert REFUSED in answer.content.decode()
    assert "_auth_user_id" not in answer.client.session
    assert refusals() == [(f"user:{ada.pk}", {"scope": "account", "tries": ACCOUNT_TRIES})]


def test_sign_in_page_of_the_admin_leads_to_the_one_page(ada):
    answer = Client().get("/admin/login/?next=/admin/health/")

    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=%2Fadmin%2Fhealth%2F")


def test_password_is_not_checked_during_a_lockout(ada):
    tries(ACCOUNT_TRIES)
    with patch("allauth.account.adapter.authenticate") as authenticate:
        sign_in_at(RIGHT)

    authenticate.assert_not_called()


def test_right_password_signs_in_and_resets_the_count(ada):
    for _ in range(3):
        for _ in range(ACCOUNT_TRIES - 1):
            tries(1)
        assert sign_in_at(RIGHT).status_code == 302
    assert not refusals()


def test_lockout_does_not_reveal_which_accounts_exist(ada):
    pages = {
        username: [sign_in_at("wrong", username=username).content for _ in range(ACCOUNT_TRIES + 1)][-1]
        for username in ("ada", "nobody")
    }

    assert all(REFUSED in text.decode() for text in pages.values())
    assert pages["ada"].replace(b"ada", b"nobody").count(b"nobody") == pages["nobody"].count(b"nobody")


def test_lockout_ends_in_time_and_tries_do_not_extend_it():
    assert tries(ACCOUNT_TRIES) is None
    assert tries(1, now=NOW + timedelta(minutes=5)) == timedelta(minutes=10)
    assert tries(10, now=NOW + timedelta(minutes=14)) == timedelta(minutes=1)
    assert tries(1, now=NOW + WINDOW) is None


def test_clock_set_back_extends_no_lockout():
    tries(ACCOUNT_TRIES + 1)

    assert tries(1, now=NOW - timedelta(days=1)) is None


def test_account_has_20_tries_and_address_100(monkeypatch):
    monkeypatch.setattr(sign_ins, "ACCOUNT_TRIES", REAL_LIMITS[0])

    assert REAL_LIMITS == (20, 100)
    assert [tries(20, address=""), tries(1, address="")] == [None, WINDOW]


def test_address_has_a_limit_of_its_own():
    for number in range(ADDRESS_TRIES):
        assert tries(1, username=f"user-{number}") is None

    assert tries(1, username="another") == WINDOW
    assert tries(1, username="another", address=HOME) is None
    assert refusals() == [("", {"scope": "address", "tries": ADDRESS_TRIES, "address": STRANGER})]


def test_locked_address_locks_no_account():
    for number in range(ADDRESS_TRIES):
        tries(1, username=f"user-{number}")
    tries(ACCOUNT_TRIES + 5, username="ada")

    assert tries(1, username="ada", address=HOME) is None


def test_addresses_of_one_ipv6_network_count_together():
    for number in range(ADDRESS_TRIES):
        tries(1, username=f"user-{number}", address=f"2001:db8::{number + 1:x}")

    assert tries(1, username="another", address="2001:db8::ffff") == WINDOW
    assert tries(1, username="another", address="2001:db8:0:1::1") is None


def test_mapped_ipv4_address_counts_as_ipv4():
    for number in range(ADDRESS_TRIES):
        tries(1, username=f"user-{number}")

    assert tries(1, username="another", address=f"::ffff:{STRANGER}") == WINDOW


def test_owner_is_not_locked_out_at_a_known_address():
    sign_in_done(username="ada", address=HOME, now=NOW)
    tries(ACCOUNT_TRIES + 5)

    assert tries(1, address=HOME) is None
    assert tries(1, address="192.0.2.1") == WINDOW


def test_known_address_has_a_limit_too():
    sign_in_done(username="ada", address=HOME, now=NOW)

    assert tries(ACCOUNT_TRIES, address=HOME) is None
    assert tries(1, address=HOME) == WINDOW


def test_sign_in_at_a_known_address_resets_no_other_count():
    sign_in_done(username="ada", address=HOME, now=NOW)
    tries(ACCOUNT_TRIES + 1)
    tries(1, address=HOME)
    sign_in_done(username="ada", address=HOME, now=NOW)

    assert tries(1) == WINDOW


def test_known_address_expires():
    sign_in_done(username="ada", address=HOME, now=NOW - KNOWN_FOR)
    tries(ACCOUNT_TRIES + 1)

    assert tries(1, address=HOME) == WINDOW


def test_only_the_account_counts_without_an_address():
    assert tries(ACCOUNT_TRIES, address="") is None
    assert tries(1, address="") == WINDOW
    sign_in_done(username="ada", address="", now=NOW)
    assert tries(1, address="") is None
    assert SignInCount.objects.count() == 1


def test_typed_user_names_are_not_stored():
    tries(1, username="hunter2-typed-into-the-wrong-field")

    assert not SignInCount.objects.filter(subject__contains="hunter2").exists()


def test_expired_counts_are_deleted():
    for number in range(5):
        tries(1, username=f"user-{number}")
    sign_in_done(username="ada", address=HOME, now=NOW)
    tries(1, username="later", address=HOME, now=NOW + WINDOW)

    assert SignInCount.objects.filter(known_until__isnull=True).count() == 2
    assert SignInCount.objects.filter(known_until__isnull=False).count() == 1


def test_flood_records_one_audit_event_per_lockout():
    tries(ACCOUNT_TRIES + 8)

    assert len(refusals()) == 1


def test_empty_form_is_not_counted(ada):
    assert sign_in_at("").status_code == 200

    assert not SignInCount.objects.exists()


# --- Unlocking ---


def unlock(*arguments):
    out = StringIO()
    call_command("unlock", *arguments, stdout=out)
    return out.getvalue()


def test_unlock_refuses_an_unknown_user():
    with pytest.raises(CommandError, match="There is no user 'nobody'"):
        unlock("nobody")
    assert not AuditEvent.objects.filter(kind="sign_in.cleared").exists()


def test_unlock_clears_one_account():
    make_user(username="ada")
    tries(ACCOUNT_TRIES + 1)
    tries(ACCOUNT_TRIES + 1, username="bob")

    assert unlock("ada") == "1 counters of failed sign-ins were reset.\n"
    assert tries(1) is None
    assert tries(1, username="bob") == WINDOW
    assert AuditEvent.objects.filter(kind="sign_in.cleared").count() == 1


def test_unlock_clears_all_accounts_and_addresses():
    tries(ACCOUNT_TRIES + 1)
    tries(ADDRESS_TRIES + 1, username="bob", address=HOME)

    assert unlock("--json") == '{"cleared": 4}\n'
    assert tries(1) is None
    assert tries(1, username="bob", address=HOME) is None


@pytest.mark.parametrize("name", ["", " "])
def test_unlock_refuses_an_empty_name(name):
    with pytest.raises(CommandError, match="empty value"):
        unlock(name)
