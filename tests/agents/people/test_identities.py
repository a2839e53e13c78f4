"""E-mail addresses and names of accounts, compared by Python alone, and who decides about links of single sign-on."""

import sys
import unicodedata

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.urls import reverse

from agents.accounts import person_invite
from agents.exceptions import Invalid, NotAllowed
from agents.models import Profile
from agents.people.identities import (
    accounts_with_email,
    canonical_email,
    link_allow,
    links_remove,
    needs_proof,
    require_distinct_name,
    resembles_account,
    same_email,
)
from audit.models import AuditEvent
from tests.agents.admin.rows import sign_in
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db


def test_no_character_but_its_own_capital_stands_for_a_plain_letter():
    likely = [letter for letter in map(chr, range(128, sys.maxunicode + 1)) if _may_turn_plain(letter)]
    assert len(likely) > 1_000
    for letter in likely:
        local, _, domain = canonical_email(f"a{letter}b@x{letter}y.example").partition("@")
        assert not local or (not local.isascii() and domain.startswith("xn--")), hex(ord(letter))


def _may_turn_plain(letter):
    forms = unicodedata.normalize("NFKD", letter), letter.lower(), letter.upper(), letter.casefold()
    return any(c.isascii() for form in forms for c in form)


@pytest.mark.parametrize("address", ["", "ada", "@example.org", "ada@", "ada@exa mple.ü", "a\u0308da@example.org"])
def test_what_is_no_clear_address_equals_nothing(address):
    assert canonical_email(address) == ""
    assert not same_email(address, address)


def test_only_accounts_with_the_very_address_are_found():
    ada, _, _ = (make_user(email=email) for email in ("Ada@Example.org", "ada@example.org.evil", ""))
    assert accounts_with_email("ada@example.ORG") == [ada]
    assert accounts_with_email("") == accounts_with_email("ada@examp\u0131e.org") == []


def test_look_alikes_of_names_and_addresses_are_seen():
    make_user(username="mike", email="mike@github.com")
    assert resembles_account(username="M\u0131ke")
    assert resembles_account(email="m\u00efke@g\u0131thub.com")
    assert not resembles_account(email="mike@example.org", username="michael")


@pytest.mark.parametrize("name", ["Olga", "o\u0142ga", "OLGA", "\uff4flga"])
def test_name_of_an_invited_person_reads_like_nobody_elses(name):
    make_user(username="olga" if name != "o\u0142ga" else "o\u0141ga")
    with pytest.raises(Invalid, match="reads like"):
        person_invite(username=name, email="a@example.org", role="viewer", by=None, now=NOW)


def test_forms_of_the_admin_refuse_such_names_too(client):
    sign_in(client, "admin")
    olga = make_user(username="olga", email="olga@example.org")
    answer = client.post(
        reverse("admin:auth_user_add"), {"username": "\u00d3lga", "password1": "x-17-yz-9a", "password2": "x-17-yz-9a"}
    )
    assert "reads like" in answer.content.decode()
    assert not User.objects.filter(username="\u00d3lga").exists()
    require_distinct_name("Olga", but=olga.pk)


def test_invited_person_may_come_by_single_sign_on_if_that_was_said():
    given = {"role": "operator", "by": None, "now": NOW}
    plain = person_invite(username="one", email="one@example.org", **given)
    open_ = person_invite(username="two", email="two@example.org", single_sign_on=True, **given)
    assert (needs_proof(plain, NOW), needs_proof(open_, NOW)) == (True, False)
    with pytest.raises((Invalid, ValidationError)):
        person_invite(username="three", email="", single_sign_on=True, **given)


def test_who_may_decide_about_links():
    admin = make_user()
    root, ada = make_user(is_superuser=True, email="root@example.org"), make_user(email="ada@example.org")
    for act in (link_allow, links_remove):
        with pytest.raises(NotAllowed, match=r"auth\.change_user"):
            act(user=ada, by=admin, now=NOW)
    admin.user_permissions.add(*_change_user())
    admin = User.objects.get(pk=admin.pk)
    for act in (link_allow, links_remove):
        with pytest.raises(NotAllowed, match="Only a superuser"):
            act(user=root, by=admin, now=NOW)
    link_allow(user=ada, by=admin, now=NOW)
    assert AuditEvent.objects.get(kind="people.sso_allowed").actor == f"user:{admin.pk}"
    links_remove(user=ada, by=admin, now=NOW)
    assert Profile.objects.get(user=ada).sso_link_until is None
    with pytest.raises(Invalid, match="no e-mail address"):
        link_allow(user=make_user(email=""), by=None, now=NOW)


def _change_user():
    return Permission.objects.filter(codename="change_user")
