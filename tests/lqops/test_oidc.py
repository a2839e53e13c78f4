"""Single sign-on against a provider on loopback: who gets in, as whom, and who does not."""

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client

from agents.conf import clock
from agents.models import Notification, Profile
from agents.people import sign_ins
from agents.people.identities import PROOF_FOR, link_allow, links_remove, needs_proof
from audit.models import AuditEvent
from lqops.env import Env
from lqops.oidc_config import Oidc, configured_oidc
from tests.factories import make_user
from tests.lqops.codes import PASSWORD, code_now, enter_code, enter_password, is_signed_in, make_person
from tests.lqops.oidc_server import CLIENT_ID, CLIENT_SECRET, running_provider

pytestmark = pytest.mark.django_db
START, BACK = "/account/oidc/sso/login/", "/account/oidc/sso/callback/"
ADA = {"sub": "ada-1", "email": "ada@example.org", "email_verified": True, "preferred_username": "ada"}


@pytest.fixture
def provider(settings):
    with running_provider() as found:
        found.claims = dict(ADA)
        settings.LQOPS_OIDC = Oidc(found.address, CLIENT_ID, CLIENT_SECRET, "Example ID", False, "groups", {})
        settings.SOCIALACCOUNT_PROVIDERS = settings.LQOPS_OIDC.providers()
        yield found


@pytest.fixture
def allow(settings, provider):
    """`allow(creates_users=True)`: change the settings of single sign-on."""

    def change(**more):
        settings.LQOPS_OIDC = replace(settings.LQOPS_OIDC, **more)

    return change


def sign_in(provider, client=None, **query):
    """Go to the provider and come back."""
    client = client or Client()
    sent = client.get(START, query)
    assert sent.status_code == 302, sent.content
    back = urlsplit(provider.authorize(sent["Location"]))
    return client.get(back.path, {name: values[0] for name, values in parse_qs(back.query).items()})


def make_linkable(username="ada", **fields):
    """Somebody whose account an admin has opened to single sign-on."""
    user = make_person(username, **fields)
    link_allow(user=user, by=None, now=clock())
    return user


def refused(answer):
    """The message of a refusal."""
    assert answer["Location"] == "/login/"
    assert not is_signed_in(answer.client)
    return answer.client.get("/login/").content.decode()


def test_sign_in_page_offers_it_only_with_a_provider(client, settings, provider):
    assert "Sign in with Example ID" in client.get("/login/").content.decode()
    settings.LQOPS_OIDC = None
    assert START not in client.get("/login/").content.decode()


def test_without_a_provider_there_is_no_page(client):
    assert client.get(START).status_code == 404
    assert client.get(BACK).status_code == 404


def test_answer_of_a_provider_that_was_removed_is_not_found(settings, provider):
    client = Client()
    back = urlsplit(provider.authorize(client.get(START)["Location"]))
    settings.LQOPS_OIDC = None

    assert client.get(back.path, {name: values[0] for name, values in parse_qs(back.query).items()}).status_code == 404


def test_verified_address_opens_the_account_and_it_is_recorded(provider):
    ada = make_linkable(email="Ada@example.org", role="viewer")

    answer = sign_in(provider)

    assert answer["Location"] == "/admin/"
    assert answer.client.session["_auth_user_id"] == str(ada.pk)
    done = AuditEvent.objects.get(kind="sign_in.done")
    assert (done.subject, done.details["how"]) == (f"user:{ada.pk}", "single_sign_on")


def test_person_is_known_by_subject_afterwards(provider):
    ada = make_linkable(email="ada@example.org")
    sign_in(provider)
    provider.claims = {"sub": "ada-1", "email": "new@example.org"}

    assert sign_in(provider).client.session["_auth_user_id"] == str(ada.pk)


def test_subject_of_another_issuer_is_somebody_else(settings, allow, provider):
    make_linkable(email="ada@example.org")
    sign_in(provider)
    with running_provider() as other:
        other.claims = {"sub": "ada-1"}
        allow(issuer=other.address)
        settings.SOCIALACCOUNT_PROVIDERS = settings.LQOPS_OIDC.providers()

        assert "You have no account here" in refused(sign_in(other))


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_unverified_address_opens_nothing(provider, allow, verified):
    make_person(email="ada@example.org")
    allow(creates_users=True)
    provider.claims["email_verified"] = verified

    assert "has not verified your e-mail address" in refused(sign_in(provider))
    assert User.objects.count() == 1


def test_address_of_two_accounts_opens_neither(provider):
    make_person("one", email="ada@example.org")
    make_person("two", email="ADA@example.org")

    assert "Several accounts" in refused(sign_in(provider))


def test_inactive_account_stays_closed(provider):
    make_person(email="ada@example.org", is_active=False)

    assert "not active" in refused(sign_in(provider))


def test_second_factor_is_asked_for_as_well(provider):
    make_linkable(email="ada@example.org", factor=True)

    answer = sign_in(provider)

    assert answer["Location"] == "/account/second-factor/authenticate/"
    assert not is_signed_in(answer.client)
    enter_code(answer.client, code_now())
    assert is_signed_in(answer.client)


def test_stranger_gets_no_account_by_default(provider):
    assert "You have no account here" in refused(sign_in(provider))
    assert not User.objects.exists()
    assert AuditEvent.objects.get(kind="sign_in.failed").details["what"] == "single_sign_on"


def test_new_account_has_no_role_and_no_password(provider, allow):
    allow(creates_users=True)
    provider.claims["groups"] = ["admins"]
    provider.claims["is_staff"] = provider.claims["is_superuser"] = True

    answer = sign_in(provider)

    assert answer["Location"] == "/account/sessions/"
    user = User.objects.get()
    assert (user.username, user.email) == ("ada", "ada@example.org")
    assert (user.is_staff, user.is_superuser, user.groups.count()) == (False, False, 0)
    assert not user.has_usable_password()
    assert answer.client.get("/admin/").status_code == 302
    assert AuditEvent.objects.filter(kind="people.user_added", details__user_id=user.pk).exists()


def test_new_account_takes_no_name_that_is_taken(provider, allow):
    make_user(username="ada")
    allow(creates_users=True)

    sign_in(provider)

    assert User.objects.exclude(username="ada").get().email == "ada@example.org"


def test_claim_gives_and_takes_mapped_roles_only(provider, allow):
    allow(creates_users=True, roles={"ops": "operator", "bosses": "approver"})
    provider.claims["groups"] = ["ops", "others", "admin"]
    client = sign_in(provider).client
    user = User.objects.get()
    assert client.get("/admin/").status_code == 200
    assert [group.name for group in user.groups.all()] == ["operator"]

    provider.claims["groups"] = "bosses"
    sign_in(provider)
    assert [group.name for group in user.groups.all()] == ["approver"]

    provider.claims["groups"] = None
    sign_in(provider)
    user.refresh_from_db()
    assert (user.groups.count(), user.is_staff) == (0, False)
    assert AuditEvent.objects.filter(kind="people.user_edited").count() == 3


def test_roles_that_are_not_mapped_stay(provider, allow):
    ada = make_linkable(email="ada@example.org", role="admin")
    allow(roles={"ops": "operator"})

    sign_in(provider)

    assert [group.name for group in ada.groups.all()] == ["admin"]
    ada.refresh_from_db()
    assert ada.is_staff


# --- Addresses that read alike, and accounts that an address alone does not open ---

DOTLESS = "mike@g\u0131thub.com"


@pytest.mark.parametrize("creates_users", [False, True])
@pytest.mark.parametrize(
    ("claimed", "held"),
    [
        (DOTLESS, "mike@github.com"),
        ("m\u0131ke@github.com", "mike@github.com"),
        ("mi\u212ae@github.com", "mike@github.com"),  # the Kelvin sign
        ("mike@\u0261ithub.com", "mike@github.com"),
        ("m\u0130ke@github.com", "mike@github.com"),
        ("\uff4dike@github.com", "mike@github.com"),  # full width
        ("mi\u017fe@github.com", "mise@github.com"),
        ("mike@stra\u00dfe.de", "mike@strasse.de"),
        ("mike@github.com.", "mike@github.com"),
        ("mike@github.com\u200b", "mike@github.com"),
    ],
)
def test_address_that_reads_like_another_opens_no_account(provider, allow, claimed, held, creates_users):
    allow(creates_users=creates_users)
    mike = make_linkable("mike", email=held)
    provider.claims = {"sub": "evil", "email": claimed, "email_verified": True, "preferred_username": "mike"}

    answer = sign_in(provider)

    assert answer.client.session.get("_auth_user_id") != str(mike.pk)
    assert not mike.socialaccount_set.exists()
    assert all(not user.is_staff for user in User.objects.exclude(pk=mike.pk))


@pytest.mark.parametrize(
    ("claimed", "held"),
    [
        ("ADA@Example.ORG", "ada@example.org"),
        ("ada@b\u00fccher.example", "Ada@xn--bcher-kva.example"),
        ("ada@B\u00dcCHER.example", "ada@b\u00fccher.example"),
        ("\u00c5da@example.org", "\u00e5da@example.org"),
    ],
)
def test_forms_of_one_address_find_the_account(provider, claimed, held):
    ada = make_linkable(email=held)
    provider.claims["email"] = claimed

    assert sign_in(provider).client.session["_auth_user_id"] == str(ada.pk)


def grant(user, what):
    if what == "opted in":
        Profile.objects.update_or_create(user=user, defaults={"opted_in": True})
    elif what == "another identity":
        user.socialaccount_set.create(provider="sso", uid="another")
    elif what == "permission":
        user.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    else:
        User.objects.filter(pk=user.pk).update(**{what: True})


@pytest.mark.parametrize("what", ["is_staff", "is_superuser", "permission", "opted in", "another identity"])
def test_account_that_can_act_is_linked_after_its_own_password_only(provider, what):
    ada = make_user(username="ada", email="ada@example.org", opted_in=False)
    ada.set_password(PASSWORD)
    ada.save()
    grant(ada, what)
    before = set(ada.socialaccount_set.all())

    answer = sign_in(provider)

    assert "Sign in to it here within 10 minutes" in refused(answer)
    assert set(ada.socialaccount_set.all()) == before
    assert AuditEvent.objects.get(kind="sign_in.proof_wanted").subject == f"user:{ada.pk}"

    enter_password(client=answer.client)
    assert is_signed_in(answer.client)
    linked = AuditEvent.objects.get(kind="people.sso_linked")
    assert (linked.subject, linked.details["how"]) == (f"user:{ada.pk}", "sign_in")
    assert sign_in(provider).client.session["_auth_user_id"] == str(ada.pk)
    assert AuditEvent.objects.filter(kind="people.sso_linked").count() == 1


def test_account_that_can_do_nothing_opens_at_once_and_both_sides_hear_of_it(provider):
    ada = make_user(username="ada", email="ada@example.org", opted_in=False)
    admin = make_person("root", is_superuser=True)

    assert sign_in(provider).client.session["_auth_user_id"] == str(ada.pk)

    assert AuditEvent.objects.get(kind="people.sso_linked").details["how"] == "address"
    told = Notification.objects.filter(kind="sign_in", title__contains="opens the account ada")
    assert {notice.owner for notice in told} == {ada, admin}


def test_owner_and_admins_hear_of_a_try_once(provider):
    ada = make_person(email="ada@example.org")
    admin = make_person("root", is_superuser=True)
    stranger = make_person("bob", role="operator")

    for _ in range(3):
        refused(sign_in(provider))

    told = Notification.objects.filter(kind="sign_in")
    assert sorted(notice.owner.username for notice in told) == [ada.username, admin.username]
    assert not told.filter(owner=stranger).exists()
    assert AuditEvent.objects.filter(kind="sign_in.proof_wanted").count() == 1


def test_second_factor_is_part_of_the_proof(provider):
    ada = make_person(email="ada@example.org", factor=True)
    client = sign_in(provider).client

    enter_password(client=client)
    assert not ada.socialaccount_set.exists()
    enter_code(client, code_now())

    assert ada.socialaccount_set.count() == 1


def test_proof_in_two_browsers_links_once(provider):
    ada = make_person(email="ada@example.org")
    for client in [sign_in(provider).client for _ in range(2)]:
        enter_password(client=client)
        assert is_signed_in(client)

    assert ada.socialaccount_set.count() == 1
    assert AuditEvent.objects.filter(kind="people.sso_linked").count() == 1


def test_linked_account_that_was_switched_off_stays_closed(provider):
    make_linkable(email="ada@example.org")
    sign_in(provider)
    User.objects.update(is_active=False)

    assert "not active" in refused(sign_in(provider))


def test_sign_in_to_another_account_links_nothing(provider):
    ada = make_person(email="ada@example.org")
    make_person("bob")
    client = sign_in(provider).client

    enter_password("bob", client=client)

    assert is_signed_in(client)
    assert not SocialAccount.objects.exists()
    client.get("/account/logout/")
    enter_password(client=client)
    assert not ada.socialaccount_set.exists()


@pytest.mark.parametrize("change", ["late", "address"])
def test_proof_counts_for_ten_minutes_and_for_the_address(provider, monkeypatch, change):
    ada = make_person(email="ada@example.org")
    client = sign_in(provider).client
    if change == "late":
        now = clock() + PROOF_FOR + timedelta(seconds=1)
        monkeypatch.setattr("lqops.oidc.clock", lambda: now)
    else:
        User.objects.update(email="other@example.org")

    enter_password(client=client)

    assert is_signed_in(client)
    assert not ada.socialaccount_set.exists()


def test_whoever_was_signed_in_before_is_signed_out_and_not_linked(provider):
    make_person(email="ada@example.org")
    bob = make_person("bob")
    client = Client()
    client.force_login(bob)

    assert "within 10 minutes" in refused(sign_in(provider, client))
    assert not bob.socialaccount_set.exists()


def test_consent_of_an_admin_counts_once_and_for_a_few_days(provider, settings):
    ada = make_linkable(email="ada@example.org")
    assert sign_in(provider).client.session["_auth_user_id"] == str(ada.pk)
    assert AuditEvent.objects.get(kind="people.sso_linked").details["how"] == "admin"

    provider.claims["sub"] = "ada-2"
    assert "within 10 minutes" in refused(sign_in(provider))

    Profile.objects.update(sso_link_until=clock())
    assert "within 10 minutes" in refused(sign_in(provider))


@pytest.mark.django_db(transaction=True)
def test_consent_of_an_admin_opens_to_one_of_two_identities_that_come_at_once(provider, monkeypatch):
    ada = make_linkable(email="ada@example.org")
    both_have_asked = threading.Barrier(2)

    def asked_together(user, now):
        found = needs_proof(user, now)
        with suppress(threading.BrokenBarrierError):  # the other one waits for this one's lock
            both_have_asked.wait(timeout=1)
        return found

    monkeypatch.setattr("lqops.oidc.needs_proof", asked_together)
    ways = [sent_back(provider, subject) for subject in ("ada-1", "ada-2")]

    def come_back(client, path, query):
        try:
            client.get(path, query)
        finally:
            connection.close()

    threads = [threading.Thread(target=come_back, args=way) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ada.socialaccount_set.count() == 1
    assert sorted(is_signed_in(client) for client, *_ in ways) == [False, True]


def sent_back(provider, subject):
    """A browser on its way back from the provider, where somebody has signed in."""
    client = Client()
    provider.claims = {**ADA, "sub": subject}
    back = urlsplit(provider.authorize(client.get(START)["Location"]))
    return client, back.path, {name: values[0] for name, values in parse_qs(back.query).items()}


def test_removed_link_opens_nothing(provider):
    ada = make_linkable(email="ada@example.org")
    sign_in(provider)

    assert links_remove(user=ada, by=None, now=clock()) == 1

    assert "within 10 minutes" in refused(sign_in(provider))


def test_new_account_takes_no_name_that_reads_like_another(provider, allow):
    make_user(username="mike")
    allow(creates_users=True)
    for number, name in enumerate(("m\u0131ke", "MIKE", "\u043cike")):
        provider.claims = {"sub": str(number), "email": f"{number}@x.example", "email_verified": True}
        provider.claims["preferred_username"] = name
        sign_in(provider)

    made = set(User.objects.exclude(username="mike").values_list("username", flat=True))
    assert len(made) == 3
    assert all(name.isascii() and name.casefold() != "mike" for name in made)


# --- Tokens and answers that are not the provider's ---


def forge(provider, **more):
    for name, value in more.items():
        setattr(provider, name, value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "forgery",
    [
        {"signing_key": rsa.generate_private_key(65537, 2048)},
        {"signing_key": "a-secret-of-the-client-that-is-long-enough", "algorithm": "HS256"},
        {"algorithm": "none"},
        {"issuer": "https://other.example"},
        {"sends_token": False},
        {"claims": {**ADA, "aud": "another-client"}},
        {"claims": {**ADA, "iss": "https://other.example"}},
        {"claims": {**ADA, "exp": 1}},
        {"claims": {name: value for name, value in ADA.items() if name != "sub"}},
    ],
)
def test_forged_token_signs_nobody_in(provider, forgery):
    make_person(email="ada@example.org")
    forge(provider, **forgery)

    assert "sign-in at the provider failed" in refused(sign_in(provider))


def test_answer_without_the_state_of_this_browser_is_refused(provider):
    make_person(email="ada@example.org")
    victim, attacker = Client(), Client()
    back = urlsplit(provider.authorize(attacker.get(START)["Location"]))
    query = {name: values[0] for name, values in parse_qs(back.query).items()}

    assert "failed" in refused(victim.get(back.path, query))
    assert "failed" in refused(victim.get(BACK, {"code": "code-0", "state": "x"}))


@pytest.mark.parametrize("error", ["access_denied", "server_error"])
def test_refusal_of_the_provider_leads_back(provider, error):
    client = Client()
    state = parse_qs(urlsplit(client.get(START)["Location"]).query)["state"][0]

    assert "failed" in refused(client.get(BACK, {"error": error, "state": state}))


def test_account_cannot_be_linked_by_somebody_signed_in(provider):
    make_person(email="ada@example.org")
    bob = make_person("bob")
    client = Client()
    client.force_login(bob)

    answer = sign_in(provider, client, process="connect")

    assert answer["Location"] == "/login/"
    assert not bob.socialaccount_set.exists()


def test_sign_in_leads_to_no_other_site(provider):
    make_linkable(email="ada@example.org")

    assert sign_in(provider, next="https://evil.example/")["Location"] == "/admin/"
    assert sign_in(provider, next="/admin/health/")["Location"] == "/admin/health/"


def test_flood_of_failures_does_not_fill_the_audit_log(provider, monkeypatch):
    monkeypatch.setattr(sign_ins, "ACCOUNT_TRIES", 3)
    for _ in range(6):
        Client().get(BACK, {"code": "x", "state": "x"})

    assert AuditEvent.objects.filter(kind="sign_in.failed").count() == 3


# --- Settings ---

GOOD = {
    "LQOPS_OIDC_ISSUER": "https://id.example/",
    "LQOPS_OIDC_CLIENT_ID": "a",
    "LQOPS_OIDC_CLIENT_SECRET": "secret-of-the-client",
}


def test_settings_are_read_from_the_environment(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("from-a-file\n")
    values = {**GOOD, "LQOPS_OIDC_CLIENT_SECRET": "", "LQOPS_OIDC_CLIENT_SECRET_FILE": str(secret)}

    found = configured_oidc(Env({**values, "LQOPS_OIDC_ROLES": '{"ops": "operator"}'}))

    assert found == Oidc(
        "https://id.example", "a", "from-a-file", "single sign-on", False, "groups", {"ops": "operator"}
    )
    assert configured_oidc(Env({})) is None


@pytest.mark.parametrize("issuer", ["http://localhost:9000", "http://127.0.0.1:9000", "http://[::1]:9000"])
def test_plain_http_is_for_this_machine(issuer):
    assert configured_oidc(Env({**GOOD, "LQOPS_OIDC_ISSUER": issuer})).issuer == issuer


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"LQOPS_OIDC_ISSUER": "http://id.example"}, "must begin with https"),
        ({"LQOPS_OIDC_CLIENT_ID": ""}, "needs LQOPS_OIDC_CLIENT_ID"),
        ({"LQOPS_OIDC_CLIENT_SECRET": ""}, "needs LQOPS_OIDC_CLIENT_SECRET"),
        ({"LQOPS_OIDC_ROLES": '{"ops": "superuser"}'}, "each value is one of viewer"),
    ],
)
def test_wrong_settings_stop_the_start(change, words):
    with pytest.raises(ImproperlyConfigured, match=words):
        configured_oidc(Env({**GOOD, **change}))


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("lqops.oidc_config.find_spec", lambda name: None)

    with pytest.raises(ImproperlyConfigured, match=r"\.\[oidc\]"):
        configured_oidc(Env(GOOD))
