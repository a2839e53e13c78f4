"""Browser sessions: they end at a fixed time, and everywhere at once if wanted."""

from datetime import timedelta
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client

from agents.conf import clock
from agents.exceptions import NotAllowed
from agents.people.browser_sessions import browser_sessions_end
from agents.people.second_factor import factors_remove
from audit.models import AuditEvent
from tests.factories import NOW
from tests.lqops.codes import enter_password, make_person

pytestmark = pytest.mark.django_db
LIST = "/account/sessions/"


@pytest.fixture
def ada():
    return make_person()


def admits(client):
    return client.get("/admin/").status_code == 200


def ended():
    return [(event.actor, event.details) for event in AuditEvent.objects.filter(kind="people.signed_out")]


def test_session_ends_at_a_fixed_time_however_busy_it_is(ada, time_machine, settings):
    settings.SESSION_COOKIE_AGE = 3_600
    time_machine.move_to(NOW)
    client = enter_password().client
    for _ in range(5):
        time_machine.shift(timedelta(minutes=11))
        session = client.session
        session["touched"] = str(clock())
        session.save()
        assert admits(client)
    time_machine.shift(timedelta(minutes=6))

    assert not admits(client)


def test_sessions_last_twelve_hours_by_default(settings):
    assert settings.SESSION_COOKIE_AGE == 12 * 3_600


def test_list_shows_one_s_own_sessions(ada):
    other, client = enter_password().client, enter_password().client
    make_person("bob")
    enter_password("bob", client=Client(HTTP_USER_AGENT="bobs-browser"))

    text = client.get(LIST).content.decode()

    assert text.count("<td>127.0.0.1</td>") == 2
    assert "bobs-browser" not in text
    assert other.session.session_key not in text


def test_signing_out_everywhere_else_keeps_this_session(ada):
    other, client = enter_password().client, enter_password().client
    unlisted = Client()
    unlisted.force_login(ada)  # no row of the list knows it

    client.post(LIST)

    assert (admits(client), admits(other), admits(unlisted)) == (True, False, False)
    assert ended() == [(f"user:{ada.pk}", {"user_id": ada.pk, "sessions": 2})]


def test_signing_out_everywhere_touches_nobody_else(ada):
    make_person("bob")
    bob, client = enter_password("bob").client, enter_password().client

    client.post(LIST)

    assert admits(bob)


def test_stranger_is_sent_to_the_sign_in(ada, client):
    enter_password()

    assert client.post(LIST)["Location"].startswith("/login/")
    assert ended() == []


def test_admin_signs_somebody_out(ada):
    admin = make_person("root", is_superuser=True)
    client, by = enter_password().client, enter_password("root").client

    by.post(f"/admin/auth/user/{ada.pk}/act/sign_out/", {"confirmed": "1"})

    assert (admits(client), admits(by)) == (False, True)
    assert ended() == [(f"user:{admin.pk}", {"user_id": ada.pk, "sessions": 1})]


@pytest.mark.parametrize(("role", "is_superuser"), [("", False), ("operator", False), ("admin", True)])
def test_who_may_not_sign_others_out(role, is_superuser):
    target = make_person("target", is_superuser=is_superuser)
    enter_password("target")

    with pytest.raises(NotAllowed):
        browser_sessions_end(user=target, by=make_person(role=role), now=NOW)
    assert Session.objects.count() == 1


def test_page_of_a_person_shows_the_last_sign_ins(ada):
    enter_password(password="wrong")
    enter_password(client=Client(REMOTE_ADDR="198.51.100.7"))
    make_person("root", is_superuser=True)

    text = enter_password("root").client.get(f"/admin/auth/user/{ada.pk}/change/").content.decode()

    assert "198.51.100.7" in text
    assert "wrong password" in text
    assert "Second factor: none" in text


# --- Lost factors ---


def test_command_removes_the_factors_and_ends_the_sessions(ada):
    client = enter_password().client
    Authenticator.objects.create(user_id=ada.pk, type="totp", data={})
    out = StringIO()

    call_command("remove_second_factor", "ada", stdout=out)

    assert out.getvalue() == "1 second factors of ada were removed.\n"
    assert not Authenticator.objects.exists()
    assert not admits(client)
    event = AuditEvent.objects.get(kind="people.factors_removed")
    assert (event.actor, event.details) == ("command", {"user_id": ada.pk, "factors": ["totp"], "sessions": 1})


def test_command_refuses_an_unknown_user():
    with pytest.raises(CommandError, match="There is no user 'nobody'"):
        call_command("remove_second_factor", "nobody")


@pytest.mark.parametrize("role", ["", "operator", "approver", "admin"])
def test_only_a_superuser_removes_the_factors_of_somebody(ada, role):
    Authenticator.objects.create(user_id=ada.pk, type="totp", data={})
    by = make_person("by", role=role)

    with pytest.raises(NotAllowed):
        factors_remove(user=ada, by=by, now=NOW)
    assert enter_password("by").client.post(
        f"/admin/auth/user/{ada.pk}/act/remove_factors/", {"confirmed": "1"}
    ).status_code in {403, 302}
    assert Authenticator.objects.count() == 1


def test_superuser_removes_the_factors_of_somebody(ada):
    Authenticator.objects.create(user_id=ada.pk, type="totp", data={})
    root = make_person("root", is_superuser=True)

    enter_password("root").client.post(f"/admin/auth/user/{ada.pk}/act/remove_factors/", {"confirmed": "1"})

    assert not Authenticator.objects.exists()
    assert AuditEvent.objects.get(kind="people.factors_removed").actor == f"user:{root.pk}"
