"""Who must have a second factor, and what is refused without one."""

from datetime import timedelta
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command

from agents.conf import clock
from agents.exceptions import NotAllowed
from agents.models import Delegation
from agents.people.keys import api_key_create
from agents.people.second_factor import deciders_without_factor, has_factor, must_have_factor, unknown_names
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db


def person(role="", *, factor="", **fields):
    user = make_user(**fields)
    user.groups.set(Group.objects.filter(name=role))
    if factor:
        Authenticator.objects.create(user_id=user.pk, type=factor, data={})
    return user


@pytest.mark.parametrize(
    ("names", "required"),
    [
        ([], ""),
        (["approver"], "approver root"),
        (["agents.resolve_approval"], "approver admin root"),
        (["agents.loosen", "operator"], "operator admin root"),
        (["everybody"], "viewer operator approver admin root none"),
        (["nobody-has-it"], "root"),
    ],
)
def test_setting_says_who_must_have_one(settings, names, required):
    settings.LQOPS_SECOND_FACTOR_FOR = names
    people = {role: person(role) for role in ("viewer", "operator", "approver", "admin", "none")}
    people["root"] = person(is_superuser=True)

    assert " ".join(role for role, user in people.items() if must_have_factor(user)).split() == sorted(
        required.split(), key=list(people).index
    )


@pytest.mark.parametrize(("factor", "counts"), [("totp", True), ("webauthn", True), ("recovery_codes", False)])
def test_recovery_codes_are_no_factor(factor, counts):
    assert has_factor(person(factor=factor)) is counts


def make_key(by):
    return api_key_create(user=by, name="ci", scopes=["read"], expires_at=None, by=by, now=NOW)


def test_key_needs_the_factor_that_the_role_needs(settings):
    settings.LQOPS_SECOND_FACTOR_FOR = ["approver"]

    with pytest.raises(NotAllowed, match="second factor"):
        make_key(person("approver"))
    assert make_key(person("approver", factor="totp"))
    assert make_key(person("viewer"))


def test_command_creates_keys_for_whoever_lacks_the_factor(settings):
    settings.LQOPS_SECOND_FACTOR_FOR = ["everybody"]

    assert api_key_create(user=person(), name="ci", scopes=["read"], expires_at=None, by=None, now=NOW)


def test_key_works_although_its_user_lacks_the_factor(settings, client):
    user = person("approver")
    _, secret = make_key(user)
    settings.LQOPS_SECOND_FACTOR_FOR = ["everybody"]

    assert client.get("/api/v1/sessions", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


def test_people_who_decide_without_a_factor_are_named():
    person("approver", username="with", factor="totp")
    person("approver", username="without")
    person("admin", username="codes-alone", factor="recovery_codes")
    person("viewer", username="viewer")
    person("approver", username="gone", is_active=False)
    person(username="root", is_superuser=True)
    by_permission = person(username="by-permission")
    by_permission.user_permissions.add(Permission.objects.get(codename="halt_everything"))

    assert deciders_without_factor() == ["by-permission", "codes-alone", "root", "without"]


def test_names_that_do_not_exist_are_found(settings):
    settings.LQOPS_SECOND_FACTOR_FOR = ["everybody", "approver", "aprover", "agents.loosen", "agents.losen"]

    assert unknown_names() == ["agents.losen", "aprover"]


@pytest.mark.usefixtures("durable_commits")
def test_doctor_warns_of_people_who_decide_without_a_factor():
    person("approver", username="ada")
    out = StringIO()

    call_command("doctor", stdout=out)

    assert "People who may decide, loosen or halt everything have no second factor: ada." in out.getvalue()
    assert "LQOPS_SECOND_FACTOR_FOR" in out.getvalue()


def test_whoever_decides_for_somebody_needs_the_factor_that_they_need(settings):
    settings.LQOPS_SECOND_FACTOR_FOR = ["approver"]
    away, delegate = person("approver", factor="totp"), person("viewer")
    assert not must_have_factor(delegate)
    until = clock() + timedelta(days=1)
    row = Delegation.objects.create(owner=away, delegate=delegate, until=until, created_at=clock())
    assert must_have_factor(delegate)
    assert delegate.username in deciders_without_factor()
    with pytest.raises(NotAllowed, match="second factor"):
        make_key(delegate)
    Delegation.objects.filter(pk=row.pk).update(ended_at=clock())
    assert not must_have_factor(delegate)
