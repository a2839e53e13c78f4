"""People and roles: opt-in, audited accounts and groups, no privilege escalation."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.utils.html import escape

from agents.models import Profile
from agents.text.shown import name_shown
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, make_everything, page, sign_in, text_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def details():
    return AuditEvent.objects.latest("pk").details


def test_people_are_listed_with_roles_and_opt_in(client):
    sign_in(client, "admin")
    make_user(username="opted-out", opted_in=False).groups.add(Group.objects.get(name="viewer"))
    User.objects.create(username="no-profile")

    found = text_of(client.get(page(User, "changelist")))

    for words in ("opted-out", "viewer", "no-profile", "none"):
        assert words in found, words


def test_user_is_opted_in_and_out(client):
    admin = sign_in(client, "admin")
    user = User.objects.create(username="new")
    before = last_event()
    assert act_page(user, "opt_in") in text_of(client.get(page(User, "change", user.pk)))

    client.post(act_page(user, "opt_in"), {"confirmed": "1"})
    assert Profile.objects.get(user=user).opted_in
    client.post(act_page(user, "opt_out"), {"confirmed": "1"})

    assert not Profile.objects.get(user=user).opted_in
    assert kinds_since(before) == ["people.opted_in", "people.opted_out"]
    assert AuditEvent.objects.latest("pk").actor == f"user:{admin.pk}"


def test_new_account_is_recorded(client):
    sign_in(client, "admin")
    before = last_event()
    given = {"username": "carla", "password1": "s3cret-enough", "password2": "s3cret-enough", "usable_password": "true"}

    client.post(page(User, "add"), given)

    user = User.objects.get(username="carla")
    assert kinds_since(before) == ["people.user_added"]
    assert details() == {"user_id": user.pk, "groups": []}
    assert not user.is_staff


def test_new_role_is_recorded(client):
    sign_in(client, "admin")
    user, role = make_user(), Group.objects.get(name="approver")

    given = {"username": user.username, "is_active": "on", "is_staff": "on", "groups": [role.pk]}
    client.post(page(User, "change", user.pk), given)

    user = User.objects.get(pk=user.pk)
    assert user.has_perm("agents.resolve_approval")
    assert AuditEvent.objects.latest("pk").kind == "people.user_edited"
    assert details()["groups"] == [role.pk]
    assert {"groups", "is_staff"} <= set(details()["fields"])


def test_password_change_is_recorded_without_the_password(client):
    sign_in(client, "admin")
    user = make_user()
    address = page(User, "change", user.pk).replace("change/", "password/")

    client.post(address, {"password1": "a-new-Secret-9", "password2": "other"})
    assert AuditEvent.objects.filter(kind="people.password_set").count() == 0
    client.post(address, {"password1": "a-new-Secret-9", "password2": "a-new-Secret-9", "usable_password": "true"})

    assert details() == {"user_id": user.pk}
    assert User.objects.get(pk=user.pk).check_password("a-new-Secret-9")


def test_admin_cannot_make_or_change_superusers(client):
    admin = sign_in(client, "admin")
    boss = make_user(is_superuser=True, is_staff=True)
    every = [Permission.objects.get(codename="change_session").pk]

    for user in (admin, make_user()):
        given = {
            "username": user.username,
            "is_active": "on",
            "is_staff": "on",
            "is_superuser": "on",
            "user_permissions": every,
        }
        client.post(page(User, "change", user.pk), given)
        now = User.objects.get(pk=user.pk)
        assert not now.is_superuser
        assert not now.user_permissions.exists()
    assert client.post(page(User, "change", boss.pk), {"username": "taken-over"}).status_code == 403
    password = page(User, "change", boss.pk).replace("change/", "password/")
    assert client.post(password, {"password1": "x", "password2": "x"}).status_code == 403


def test_superuser_gives_only_lqops_permissions(client):
    sign_in(client)
    user = make_user()
    ours, foreign = (Permission.objects.get(codename=name) for name in ("resolve_approval", "change_session"))
    given = {"username": user.username, "is_active": "on"}

    refused = client.post(page(User, "change", user.pk), {**given, "user_permissions": [foreign.pk]})
    client.post(page(User, "change", user.pk), {**given, "user_permissions": [ours.pk]})

    assert refused.status_code == 200
    assert list(user.user_permissions.all()) == [ours]


def test_users_cannot_be_deleted(client):
    sign_in(client)
    made = make_everything()

    assert client.post(page(User, "delete", made.owner.pk), {"post": "yes"}).status_code in {403, 404}
    chosen = {"action": "delete_selected", "_selected_action": [made.owner.pk], "post": "yes"}
    client.post(page(User, "changelist"), chosen)

    assert User.objects.filter(pk=made.owner.pk).exists()


def test_people_are_for_admins(client):
    for role in ("viewer", "operator", "approver"):
        sign_in(client, role)
        assert client.get(page(User, "changelist")).status_code == 403
        assert page(User, "changelist") not in text_of(client.get("/admin/"))


# --- Groups ---


def test_built_in_roles_are_read_only(client):
    sign_in(client)
    role = Group.objects.get(name="viewer")

    assert client.get(page(Group, "change", role.pk)).status_code == 200
    assert client.post(page(Group, "change", role.pk), {"name": "x"}).status_code == 403
    assert client.post(page(Group, "delete", role.pk), {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    ("role", "purpose", "facts"),
    [
        ("viewer", "Sees everything, changes nothing", {"See": "everything of lqops"}),
        ("approver", "Decides on approvals", {"Also": "approve or deny a call of an agent"}),
    ],
)
def test_role_says_in_words_what_it_is_for(client, role, purpose, facts):
    sign_in(client)
    group = Group.objects.get(name=role)
    make_user().groups.add(group)

    answer = client.get(page(Group, "change", group.pk))

    found = text_of(answer)
    assert purpose in found
    assert facts.items() <= dict(answer.context["facts"]).items()
    assert f'?groups__id__exact={group.pk}">1</a>' in found
    assert "Agents | " not in found


def test_operator_is_shown_by_verb_and_subject(client):
    sign_in(client)

    facts = dict(client.get(page(Group, "change", Group.objects.get(name="operator").pk)).context["facts"])

    assert list(facts) == ["See", "Add and change", "Add, change and delete", "Change", "Also"]
    assert facts["Add and change"] == "runs"
    assert "playbooks" in facts["Add, change and delete"]
    assert facts["Change"] == "callable skills, findings"
    assert facts["Also"] == "halt and release all work of the installation"


def test_own_role_is_chosen_and_shown_in_plain_words(client):
    sign_in(client)
    group = Group.objects.create(name="night shift")
    group.permissions.set(Permission.objects.filter(codename__in=["view_trigger", "change_trigger", "loosen"]))

    answer = client.get(page(Group, "change", group.pk))

    assert answer.context["facts"] == [
        ("See", "triggers"),
        ("Change", "triggers"),
        ("Also", "loosen what binds agents: modes, caps, levels, reviews"),
    ]
    assert ">triggers: change</option>" in text_of(answer)


def test_own_group_is_recorded(client):
    sign_in(client, "admin")
    ours, foreign = (Permission.objects.get(codename=name) for name in ("resolve_approval", "change_session"))
    before = last_event()

    client.post(page(Group, "add"), {"name": "night shift", "permissions": [foreign.pk]})
    assert not Group.objects.filter(name="night shift").exists()
    client.post(page(Group, "add"), {"name": "night shift", "permissions": [ours.pk]})
    group = Group.objects.get(name="night shift")
    client.post(page(Group, "change", group.pk), {"name": "night shift", "permissions": []})
    client.post(page(Group, "delete", group.pk), {"post": "yes"})

    assert kinds_since(before) == ["people.group_saved", "people.group_saved", "people.group_deleted"]
    assert not Group.objects.filter(name="night shift").exists()


def test_name_that_reads_like_another_is_marked_in_the_list(client):
    sign_in(client)
    make_user(username="admin-anna")
    make_user(username="\u0430dmin-anna")  # with a Cyrillic letter
    text = text_of(client.get(page(User, "changelist")))
    assert ">admin-anna<" in text
    assert escape(name_shown("\u0430dmin-anna")) in text
    assert "0430" in name_shown("\u0430dmin-anna")
