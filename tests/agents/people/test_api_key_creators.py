"""Who may create a key for whom: a key lets its creator act as its user."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import CommandError, call_command

from agents.exceptions import NotAllowed
from agents.models import ApiKey, Approval
from agents.people.keys import Scope, api_key_create
from audit.models import AuditEvent
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.api.contract import CheckedClient
from tests.agents.api.world import make_world
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
EVERYTHING = tuple(Scope)
ADD = "agents.add_apikey"


def key_for(user, *, by, scopes=EVERYTHING):
    return api_key_create(user=user, name="k", scopes=scopes, expires_at=NOW + timedelta(days=1), by=by, now=NOW)


def member(role, **fields):
    user = make_user(is_staff=True, **fields)
    user.groups.add(Group.objects.get(name=role))
    return user


def test_people_create_keys_for_themselves():
    user = make_user()

    key, _ = key_for(user, by=user)

    assert key.scopes == ["read", "write", "decide", "admin"]


@pytest.mark.parametrize("target", [{}, {"is_superuser": True}], ids=["another", "a superuser"])
@pytest.mark.parametrize("scopes", [EVERYTHING, ("read",)])
def test_no_permission_allows_a_key_for_somebody_else(target, scopes):
    admin = member("admin")
    assert admin.has_perm(ADD)

    with pytest.raises(NotAllowed, match="Only a superuser may create a key for somebody else"):
        key_for(make_user(**target), by=admin, scopes=scopes)

    assert not ApiKey.objects.exists()


def test_superuser_creates_keys_for_others_except_with_decide():
    root, other = make_user(is_superuser=True), make_user()

    key, _ = key_for(other, by=root, scopes=("read", "write"))

    assert (key.user, key.scopes) == (other, ["read", "write"])
    with pytest.raises(NotAllowed, match="scope admin, decide"):
        key_for(other, by=root)


@pytest.mark.parametrize("target", [{}, {"is_superuser": True}], ids=["another", "a superuser"])
def test_admin_form_offers_and_accepts_only_oneself(client, target):
    admin, other = sign_in(client, "admin"), make_user(**target)

    shown = text_of(client.get(page(ApiKey, "add")))
    answer = client.post(page(ApiKey, "add"), {"user": other.pk, "name": "x", "scopes": ["read", "write", "decide"]})

    assert f'value="{admin.pk}"' in shown
    assert other.username not in shown
    assert "lqk_" not in text_of(answer)
    assert answer.context["form"].errors["user"]
    assert not ApiKey.objects.exists()


def test_superuser_form_explains_a_refused_decide_key(client):
    sign_in(client)
    other = make_user()

    answer = client.post(page(ApiKey, "add"), {"user": other.pk, "name": "x", "scopes": ["decide"]})

    assert "can only be created by its user" in text_of(answer)
    assert not ApiKey.objects.exists()


def test_command_applies_the_same_rules_to_its_user():
    make_user(username="ada")
    member("admin", username="admin")

    with pytest.raises(CommandError, match="Only a superuser may create a key for somebody else"):
        call_command("api_key", "create", "ada", "--name", "x", "--user", "admin")

    assert not ApiKey.objects.exists()


def test_command_on_the_host_creates_any_key(capsys):
    make_user(username="ada")

    call_command("api_key", "create", "ada", "--name", "x", "--scope", "decide")

    assert ApiKey.objects.get().scopes == ["decide"]


@pytest.mark.parametrize(
    ("address", "more", "kinds"),
    [
        ("approve", {}, {"approval.approved"}),
        ("deny", {}, {"approval.rejected"}),
        ("approve-edited", {"arguments": {"to": "Jo", "text": "Hello"}}, {"approval.edited"}),
        ("approve-for-session", {}, {"approval.standing_created", "approval.approved"}),
    ],
)
def test_audit_event_of_a_decision_names_its_key(address, more, kinds):
    world = make_world()
    world.owner.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    Approval.objects.update(intent="notify")  # a call that can be made with any arguments
    approval = Approval.objects.get(status="pending")
    key, secret = api_key_create(
        user=world.owner, name="k", scopes=EVERYTHING, expires_at=None, by=world.owner, now=NOW
    )
    api = CheckedClient(HTTP_AUTHORIZATION=f"Bearer {secret}")

    answer = api.post(
        f"/api/v1/approvals/{approval.public_id}/{address}", {"digest": approval.digest, **more}, format="json"
    )

    assert answer.status_code == 200, answer.content
    rows = AuditEvent.objects.filter(kind__in=kinds, subject=f"approval:{approval.public_id}")
    assert {row.kind for row in rows} == set(kinds)
    assert {row.actor for row in rows} == {f"user:{world.owner.pk}:key:{key.prefix}"}


def test_audit_event_of_a_browser_decision_names_no_key():
    world = make_world()
    world.owner.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    approval = Approval.objects.get(status="pending")
    api = CheckedClient()
    api.force_login(world.owner)

    api.post(f"/api/v1/approvals/{approval.public_id}/deny", {"digest": approval.digest}, format="json")

    assert AuditEvent.objects.get(kind="approval.rejected").actor == f"user:{world.owner.pk}"
