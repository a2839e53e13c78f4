"""API keys: created and shown once, stored as a hash, checked at every use; and their command."""

import hashlib
import json
from datetime import timedelta
from io import StringIO
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command

from agents.exceptions import Invalid, NotAllowed
from agents.models import ApiKey
from agents.people import keys
from agents.people.keys import api_key_create, api_key_revoke, api_key_verify
from audit.models import AuditEvent
from tests.factories import NOW, make_user
from tests.table import every_row

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def make_key(user=None, *, scopes=("read",), expires_at=NOW + DAY, by=None, name="ci"):
    return api_key_create(user=user or make_user(), name=name, scopes=scopes, expires_at=expires_at, by=by, now=NOW)


def kinds():
    return list(AuditEvent.objects.filter(chain="system").order_by("seq").values_list("kind", "actor"))


def test_only_the_hash_of_a_key_is_stored():
    key, secret = make_key()
    assert secret.startswith(f"lqk_{key.prefix}_")
    assert key.hash == hashlib.sha256(secret.encode()).hexdigest()
    stored = json.dumps(list(ApiKey.objects.values()), default=str)
    assert secret not in stored
    assert secret.removeprefix(f"lqk_{key.prefix}_") not in stored


def test_two_keys_differ_in_prefix_and_secret():
    (one, first), (two, second) = make_key(), make_key()
    assert one.prefix != two.prefix
    assert first != second


def test_valid_key_is_accepted_and_its_use_noted_once_a_minute():
    key, secret = make_key()
    assert api_key_verify(secret, now=NOW) == key
    key.refresh_from_db()
    assert key.last_used_at == NOW
    assert api_key_verify(secret, now=NOW + timedelta(seconds=59)) == key
    key.refresh_from_db()
    assert key.last_used_at == NOW
    assert api_key_verify(secret, now=NOW + timedelta(seconds=60)) == key
    key.refresh_from_db()
    assert key.last_used_at == NOW + timedelta(seconds=60)


def test_key_expires_at_its_time():
    _, secret = make_key(expires_at=NOW + DAY)
    assert api_key_verify(secret, now=NOW + DAY - timedelta(microseconds=1)) is not None
    assert api_key_verify(secret, now=NOW + DAY) is None


def test_key_without_expiry_does_not_expire():
    _, secret = make_key(expires_at=None)
    assert api_key_verify(secret, now=NOW + 10_000 * DAY) is not None


def test_revoked_key_is_refused_and_revoked_once():
    key, secret = make_key()
    api_key_revoke(key=key, by=None, now=NOW)
    again = api_key_revoke(key=key, by=None, now=NOW + DAY)
    assert again.revoked_at == NOW
    assert api_key_verify(secret, now=NOW) is None
    assert kinds() == [("api_key.created", "system"), ("api_key.revoked", "system")]


def test_key_of_an_inactive_user_is_refused():
    key, secret = make_key()
    key.user.is_active = False
    key.user.save()
    assert api_key_verify(secret, now=NOW) is None


def forged(key, secret):
    other_secret = make_key()[1]
    last = "A" if secret[-1] != "A" else "B"
    return [
        "", "lqk", "lqk_", "lqk__", f"lqk_{key.prefix}", f"lqk_{key.prefix}_", secret[:-1], secret[:-1] + last,
        secret + "x", secret.upper(), f" {secret}", secret.replace("lqk_", "LQK_"), key.hash,
        f"lqk_{key.prefix}_{other_secret.split('_', 2)[2]}", f"lqk_{key.prefix}_{key.hash}", "lqk_\x00_x",
        f"lqk_{key.prefix}_é", f"lqk_{key.prefix}_{'x' * 10_000}", "lqk_%_%", "lqk_' OR 1=1_x",
    ]  # fmt: skip


def test_forged_key_is_refused():
    key, secret = make_key()
    for attempt in forged(key, secret):
        assert api_key_verify(attempt, now=NOW) is None, attempt
    assert api_key_verify(secret, now=NOW) == key


def test_unknown_prefix_is_compared_in_constant_time():
    with patch.object(keys.hmac, "compare_digest", wraps=keys.hmac.compare_digest) as compare:
        assert api_key_verify("lqk_000000000000_nothing", now=NOW) is None
    assert compare.call_count == 1


@every_row(
    ("changes", "says"),
    [
        ({"scopes": []}, "nothing"),
        ({"scopes": ["read", "root"]}, "root"),
        ({"name": "  "}, "1 to 120"),
        ({"name": "x" * 121}, "not 121"),
        ({"expires_at": NOW}, "in the past"),
    ],
)
def test_invalid_key_options_are_refused(changes, says):
    with pytest.raises(Invalid, match=says):
        make_key(**changes)
    assert not ApiKey.objects.exists()


def test_inactive_user_gets_no_key():
    with pytest.raises(Invalid, match="not active"):
        make_key(make_user(is_active=False))


def test_scopes_are_stored_sorted_without_duplicates():
    key, _ = make_key(scopes=["write", "read", "write"])
    assert key.scopes == ["read", "write"]


def test_revoking_a_key_of_somebody_else_needs_permission():
    owner, stranger = make_user(), make_user()
    key, _ = make_key(owner, by=owner)
    with pytest.raises(NotAllowed):
        api_key_revoke(key=key, by=stranger, now=NOW)
    stranger.user_permissions.add(Permission.objects.get(codename="change_apikey"))
    stranger = type(stranger).objects.get(pk=stranger.pk)
    assert api_key_revoke(key=key, by=stranger, now=NOW).revoked_at == NOW
    assert [actor for _, actor in kinds()] == [f"user:{owner.pk}", f"user:{stranger.pk}"]


# --- the command ---


def run(*arguments, stderr=None):
    out = StringIO()
    call_command("api_key", *arguments, stdout=out, stderr=stderr)
    return out.getvalue()


def test_command_creates_a_valid_key():
    user = make_user(username="ada")
    found = json.loads(run("create", "ada", "--name", "ci", "--scope", "read", "--scope", "write", "--json"))
    key = ApiKey.objects.get()
    assert api_key_verify(found["secret"], now=key.created_at) == key
    assert (key.user, key.scopes, key.expires_at - key.created_at) == (user, ["read", "write"], timedelta(days=90))


def test_command_shows_the_secret_once():
    make_user(username="ada")
    hint = StringIO()
    secret = run("create", "ada", "--name", "ci", "--days", "7", stderr=hint).removesuffix("\n")
    key = ApiKey.objects.get()
    assert api_key_verify(secret, now=key.created_at) == key
    assert hint.getvalue().startswith("Save it now: it is not shown again.")
    assert key.prefix in hint.getvalue()
    assert secret not in hint.getvalue()
    assert key.scopes == ["read"]
    assert secret not in run("list")
    assert secret not in run("list", "ada", "--json")
    assert key.prefix in run("list", "ada")


def test_command_lists_the_keys_of_one_user():
    make_key(make_user(username="ada"))
    make_key(make_user(username="bob"), expires_at=None)
    assert [key["user"] for key in json.loads(run("list", "--json"))["keys"]] == ["bob", "ada"]
    assert [key["user"] for key in json.loads(run("list", "ada", "--json"))["keys"]] == ["ada"]
    assert "never expires" in run("list", "bob")


def test_command_reports_when_there_are_no_keys():
    assert run("list") == "There are no keys.\n"


@pytest.mark.parametrize("named_by", ["prefix", "public_id"])
def test_command_revokes_by_id_and_by_prefix(named_by):
    admin = make_user(username="root", is_superuser=True)
    key, secret = make_key()
    assert "Revoked" in run("revoke", str(getattr(key, named_by)), "--user", "root")
    assert api_key_verify(secret, now=NOW) is None
    assert kinds()[-1] == ("api_key.revoked", f"user:{admin.pk}")
    assert "revoked" in run("list")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "nobody", "--name", "x"], "no user 'nobody'"),
        (["create", "ada", "--name", "x", "--days", "0"], "--days 0"),
        (["create", "ada", "--name", "x", "--days", "99999999"], "--days 99999999"),
        (["create", "ada", "--name", " "], "1 to 120"),
        (["create", "ada", "--name", "x", "--scope", "root"], "choose from 'read', 'write', 'decide'"),
        (["revoke", "abc"], "no key 'abc'"),
        (["list", "nobody"], "no user 'nobody'"),
    ],
)
def test_command_explains_invalid_arguments(arguments, says):
    make_user(username="ada")
    with pytest.raises(CommandError, match=says):
        call_command("api_key", *arguments)
    assert not ApiKey.objects.exists()
