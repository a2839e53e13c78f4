"""Users of the installation, as far as lqops itself makes or changes them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.apps.registry import Apps
from django.contrib.auth.models import Group, User
from django.db import transaction

from agents.enums import Mode, TerminalReason
from agents.exceptions import NotAllowed
from agents.models import AgentSession, Profile
from agents.people.access import actor_of
from agents.sessions.halts import sessions_halt
from audit import recorder
from audit.models import SYSTEM_CHAIN

FIRST_ADMIN = "admin"
OPTED_OUT = "The owner has opted out."


def profile_set(*, user: User, opted_in: bool, by: User | None, now: datetime, halt_all: bool = False) -> Profile:
    """Lets agents run in the background for a user, or no longer.

    Opting out ends the user's loops and heartbeats, which would never end by themselves; a phased run is left to
    finish, unless `halt_all` is asked for. The word is committed first, so nothing new starts; then each session is
    halted on its own. Said again, it halts what an interrupted opting out has left.
    """
    _check_person(user, by)
    with transaction.atomic():
        profile, _ = Profile.objects.update_or_create(user=user, defaults={"opted_in": opted_in})
        kind = "people.opted_in" if opted_in else "people.opted_out"
        _record(user, kind, by=by, now=now)
    if not opted_in:
        going = AgentSession.objects.active().filter(owner=user)
        ended = going if halt_all else going.filter(mode__in=(Mode.LOOP, Mode.HEARTBEAT))
        pks = list(ended.order_by("pk").values_list("pk", flat=True))
        sessions_halt(pks, by=by, reason=OPTED_OUT, now=now, ends_as=TerminalReason.OPTED_OUT)
    return profile


@transaction.atomic
def email_notices_set(*, user: User, enabled: bool, by: User | None, now: datetime) -> Profile:
    """Whether the user's notices are sent by e-mail as well."""
    _check_person(user, by)
    profile, _ = Profile.objects.update_or_create(user=user, defaults={"email_notices": enabled})
    _record(user, "people.email_notices_set", by=by, now=now, enabled=enabled)
    return profile


@transaction.atomic
def first_admin_create(*, password: str, now: datetime) -> User | None:
    """A superuser who has opted in, for an installation that has none. None when there is one, or the name is taken."""
    users = User.objects
    if users.filter(is_superuser=True).exists() or users.filter(username=FIRST_ADMIN).exists():
        return None
    user = users.create_superuser(FIRST_ADMIN, password=password)
    Profile.objects.create(user=user, opted_in=True)
    _record(user, "people.first_admin_created", by=None, now=now)
    return user


def _check_person(user: User, by: User | None) -> None:
    if by is not None and by.pk != user.pk and not by.has_perm("agents.change_profile"):
        raise NotAllowed(f"{by} may not decide for {user}: the permission agents.change_profile is missing.")


def _record(user: User, kind: str, *, by: User | None, now: datetime, **details: bool) -> None:
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), details={"user_id": user.pk, **details})


# --- Who may do what, as four groups that every installation has: viewer, operator, approver, admin ---
#
# The groups are made with the tables and brought back to this table by every migrate; what an installation grants
# beyond it goes into groups of its own.


VIEWED: Final = ("agents", "audit")
# What an operator looks after, by the names of the models: adding, changing and deleting.
OPERATED: Final = (
    "trigger",
    "project",
    "collection",
    "document",
    "attachment",
    "playbook",
    "playbookposition",
    "promptskill",
    "precedent",
    "contextproposal",
    "memory",
)
OPERATOR_ALSO: Final = (
    "agents.add_agentsession",
    "agents.change_agentsession",
    "agents.change_skillsetting",
    "agents.halt_everything",
)
APPROVER_ALSO: Final = ("agents.resolve_approval",)
PEOPLE: Final = ("user", "group")
ROLES: Final = ("viewer", "operator", "approver", "admin")


def role_grants(role: str, permissions: Iterable[str]) -> set[str]:
    """Which of the permissions, written app.codename, a role holds. Pure."""
    return {name for name in permissions if _holds(role, name)}


def _holds(role: str, name: str) -> bool:
    app, _, codename = name.partition(".")
    verb, _, model = codename.partition("_")
    if app in VIEWED and verb == "view":
        return True
    if role == "operator":
        return name in OPERATOR_ALSO or (app == "agents" and model in OPERATED)
    if role == "approver":
        return name in APPROVER_ALSO
    return role == "admin" and (app == "agents" or (app == "auth" and model in PEOPLE))


def roles_make(*, apps: Apps, using: str) -> None:
    """Makes the four groups, or gives them back what the table says. Said again, it changes nothing."""
    groups = apps.get_model("auth", "Group").objects.using(using)
    rows = apps.get_model("auth", "Permission").objects.using(using)
    pks = {
        f"{app}.{codename}": pk
        for pk, app, codename in rows.filter(content_type__app_label__in=(*VIEWED, "auth")).values_list(
            "pk", "content_type__app_label", "codename"
        )
    }
    links = groups.model.permissions.through.objects.using(using)
    known = {group.name: group for group in groups.filter(name__in=ROLES)}
    for role in ROLES:
        group = known.get(role) or groups.create(name=role)
        wanted = {pks[name] for name in role_grants(role, pks)}
        _hold_exactly(links, group.pk, wanted)


def _hold_exactly(links: Any, group_pk: int, wanted: set[int]) -> None:
    held = set(links.filter(group_id=group_pk).values_list("permission_id", flat=True))
    if held - wanted:
        links.filter(group_id=group_pk, permission_id__in=held - wanted).delete()
    if wanted - held:
        links.bulk_create([links.model(group_id=group_pk, permission_id=pk) for pk in sorted(wanted - held)])


# What admins do to accounts and groups, on record. The rows are Django's own, and Django's forms write them.
#
# Called in the transaction of that write: either both are there, or neither is.


def user_note_saved(*, user: User, added: bool, fields: Sequence[str], by: User | None, now: datetime) -> User:
    """Names what was changed and the groups that the user is in now."""
    groups = sorted(user.groups.values_list("pk", flat=True))
    if added:
        _record_change("people.user_added", f"user:{user.pk}", by=by, now=now, user_id=user.pk, groups=groups)
    else:
        details = {"user_id": user.pk, "groups": groups, "fields": sorted(fields)}
        _record_change("people.user_edited", f"user:{user.pk}", by=by, now=now, **details)
    return user


def user_note_password(*, user: User, by: User | None, now: datetime) -> User:
    _record_change("people.password_set", f"user:{user.pk}", by=by, now=now, user_id=user.pk)
    return user


def group_note_saved(*, group: Group, by: User | None, now: datetime) -> Group:
    number = group.permissions.count()
    _record_change("people.group_saved", f"group:{group.pk}", by=by, now=now, group_id=group.pk, permissions=number)
    return group


def group_delete(*, group: Group, by: User | None, now: datetime) -> None:
    _record_change("people.group_deleted", f"group:{group.pk}", by=by, now=now, group_id=group.pk)
    group.delete()


def _record_change(kind: str, subject: str, *, by: User | None, now: datetime, **details: Any) -> None:
    recorder.append(SYSTEM_CHAIN, kind, now=now, actor=actor_of(by), subject=subject, details=details)
