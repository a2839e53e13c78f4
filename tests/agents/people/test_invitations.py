"""Inviting a person: one form, a role, and a link by which they choose their password, once."""

import json
import re
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.urls import reverse

from agents.accounts import invitation_link, person_invite
from agents.exceptions import Invalid, NotAllowed
from agents.models import Channel, Profile
from tests.agents.admin.rows import act_page, sign_in, text_of
from tests.factories import NOW, make_user

from .rows import told

pytestmark = pytest.mark.django_db

INVITE = "/admin/auth/user/invite/"
FORM = {"username": "olga", "name": "Olga Orlova", "email": "olga@example.org", "role": "operator", "opted_in": "on"}
PASSWORD = "correct horse battery 7"


def invite(**more):
    given = {"username": "olga", "email": "olga@example.org", "role": "approver", "by": None, "now": NOW}
    return person_invite(**{**given, **more})


def choose(client, link, password=PASSWORD):
    page = client.get(link, follow=True)
    return client.post(page.redirect_chain[-1][0], {"new_password1": password, "new_password2": password})


def test_one_form_makes_an_account_and_shows_the_link_once(client):
    admin = sign_in(client, "admin")
    response = client.post(INVITE, FORM)
    user = User.objects.get(username="olga")
    assert (user.get_full_name(), user.is_staff, user.is_superuser) == ("Olga Orlova", True, False)
    assert [group.name for group in user.groups.all()] == ["operator"]
    assert (Profile.objects.get(user=user).opted_in, Channel.objects.get(owner=user).enabled) == (True, False)
    assert "no-store" in response["Cache-Control"]
    [link] = re.findall(r"/invitation/[\w-]+/[\w-]+/", text_of(response))
    assert told("people.invited") == [("people.invited", f"user:{admin.pk}", {"user_id": user.pk, "role": "operator"})]
    client.logout()
    assert choose(client, link).url == reverse("account_login")
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    assert told("people.password_set") == [("people.password_set", f"user:{user.pk}", {"user_id": user.pk})]


def test_link_works_once_and_replaces_no_password(client):
    user = invite()
    link = invitation_link(user=user, by=None, now=NOW).removeprefix("http://localhost:8000")
    link = "/" + link.split("/", 3)[-1] if link.startswith("http") else link
    choose(client, link)
    again = client.get(link, follow=True)
    assert "no longer valid" in text_of(again)
    user.refresh_from_db()
    with pytest.raises(Invalid, match="has a password"):
        invitation_link(user=user, by=None, now=NOW)


@pytest.mark.parametrize("address", ["/invitation/MQ/abc-def/", "/invitation/zzz/set/"])
def test_made_up_link_is_refused(client, address):
    assert "no longer valid" in text_of(client.get(address, follow=True))


def test_weak_password_is_refused(client):
    user = invite()
    link = "/" + invitation_link(user=user, by=None, now=NOW).split("/", 3)[-1]
    assert "too" in text_of(choose(client, link, "12345678"))
    user.refresh_from_db()
    assert not user.has_usable_password()


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_only_admins_invite(client, role):
    by = sign_in(client, role)
    assert client.get(INVITE).status_code == 403
    assert client.post(INVITE, FORM).status_code == 403
    with pytest.raises(NotAllowed):
        invite(by=by)
    with pytest.raises(NotAllowed):
        invitation_link(user=make_user(), by=by, now=NOW)
    assert not User.objects.filter(username="olga").exists()


def test_unusable_values_are_named(client):
    sign_in(client, "admin")
    make_user(username="olga")
    assert "already exists" in text_of(client.post(INVITE, FORM))
    assert client.post(INVITE, {**FORM, "email": "nonsense"}).context["form"].errors.keys() == {"email"}
    with pytest.raises(Invalid, match="is no role"):
        invite(username="igor", role="owner")
    with pytest.raises(ValidationError):
        invite(username="no spaces please")


def test_link_is_sent_by_email_if_asked_for(client, settings, mailoutbox):
    settings.EMAIL_HOST = "mail.example.org"
    sign_in(client, "admin")
    response = client.post(INVITE, {**FORM, "send": "on"})
    assert "accepted the mail to olga@example.org" in text_of(response)
    [mail] = mailoutbox
    assert "/invitation/" in mail.body


def test_new_link_is_offered_until_there_is_a_password(client):
    sign_in(client, "admin")
    user = invite()
    assert "/invitation/" in text_of(client.post(act_page(user, "invite_again"), {"confirmed": "1"}))


def test_command_prints_the_link(client):
    out = StringIO()
    call_command("invite", "olga", "--email", "olga@example.org", "--role", "viewer", "--json", stdout=out)
    link = json.loads(out.getvalue())["link"]
    choose(client, "/" + link.split("/", 3)[-1])
    assert User.objects.get(username="olga").check_password(PASSWORD)
    with pytest.raises(CommandError, match="already exists"):
        call_command("invite", "olga", "--email", "olga@example.org", "--role", "viewer", stdout=out)


def test_command_prints_the_link_alone_for_programs(client):
    out, hint = StringIO(), StringIO()
    call_command("invite", "olga", "--email", "olga@example.org", "--role", "viewer", stdout=out, stderr=hint)
    choose(client, "/" + out.getvalue().removesuffix("\n").split("/", 3)[-1])
    assert User.objects.get(username="olga").check_password(PASSWORD)
    assert hint.getvalue() == "olga chooses a password there.\n"


def test_only_a_superuser_invites_a_superuser_and_nobody_who_has_signed_in(client):
    admin = sign_in(client, "admin")
    above = invite(username="root", email="root@example.org")
    User.objects.filter(pk=above.pk).update(is_superuser=True)
    above.refresh_from_db()
    with pytest.raises(NotAllowed, match="Only a superuser"):
        invitation_link(user=above, by=admin, now=NOW)
    assert "/invitation/" in invitation_link(user=above, by=make_user(is_superuser=True), now=NOW)

    by_single_sign_on = invite(username="sso", email="sso@example.org")
    by_single_sign_on.last_login = NOW
    with pytest.raises(Invalid, match="has signed in before"):
        invitation_link(user=by_single_sign_on, by=admin, now=NOW)
