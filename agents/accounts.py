"""Accounts: opting in, invitations, the first admin, roles, and audit events for changes of users and groups."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.apps.registry import Apps
from django.contrib.auth.models import Group, User
from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from agents.conf import base_url
from agents.enums import BudgetPeriod, BudgetScope, ChannelKind, Mode, TerminalReason
from agents.exceptions import Invalid, NotAllowed
from agents.ledger.budgets import budgets_lock_all, cap_of, caps_set
from agents.models import AgentSession, Channel, Profile
from agents.people.access import record_act
from agents.people.ceilings import ceilings_of, ceilings_set, own_ceilings
from agents.people.channels import channel_update, email_channel
from agents.people.identities import link_allow, require_distinct_name
from agents.people.senders import Message, NotSent, send_email
from agents.policy.loosening import looser_settings
from agents.sessions.halts import sessions_halt
from audit.receipts import usd

FIRST_ADMIN = "admin"
OPTED_OUT = "The owner has opted out."


def profile_set(*, user: User, opted_in: bool, by: User | None, now: datetime, halt_all: bool = False) -> Profile:
    """Opt a user in to background runs, or out of them.

    Opting out halts the user's loops and heartbeats, which have no end of their own; other runs finish, unless
    `halt_all` is set. The profile is committed first, so nothing new starts; then each session is halted. Calling it
    again halts what an interrupted call has left.
    """
    _check_person(user, by)
    with transaction.atomic():
        profile, _ = Profile.objects.update_or_create(user=user, defaults={"opted_in": opted_in})
        kind = "people.opted_in" if opted_in else "people.opted_out"
        record_act(kind, by=by, now=now, user_id=user.pk)
    if not opted_in:
        sessions = AgentSession.objects.active().filter(owner=user)
        if not halt_all:
            sessions = sessions.filter(mode__in=(Mode.LOOP, Mode.HEARTBEAT))
        pks = list(sessions.order_by("pk").values_list("pk", flat=True))
        sessions_halt(pks, by=by, reason=OPTED_OUT, now=now, ends_as=TerminalReason.OPTED_OUT)
    return profile


@transaction.atomic
def email_copies_set(*, user: User, enabled: bool, by: User | None, now: datetime) -> None:
    """Send a user's notifications by e-mail as well, or not."""
    _check_person(user, by)
    Profile.objects.get_or_create(user=user)
    channel_update(channel=email_channel(user.pk), enabled=enabled, by=by, now=now)


@transaction.atomic
def first_admin_create(*, password: str, now: datetime) -> User | None:
    """Create a superuser who has opted in. None when there is a superuser already, or the name is taken."""
    users = User.objects
    if users.filter(is_superuser=True).exists() or users.filter(username=FIRST_ADMIN).exists():
        return None
    user = users.create_superuser(FIRST_ADMIN, password=password)
    Profile.objects.create(user=user, opted_in=True)
    record_act("people.first_admin_created", by=None, now=now, user_id=user.pk)
    return user


TOGETHER: Final = "together_per_day_usd"


@transaction.atomic
def limits_set(*, user: User, by: User | None, now: datetime, **limits: Any) -> dict[str, Any]:
    """Set a person's ceilings, and what all their runs together may cost a day; return what holds then.

    None or "" stands for the installation's ceiling, or for no such cap.
    """
    budgets_lock_all()  # before the profile and the first audit event
    ceilings_set(user=user, by=by, now=now, **{name: value for name, value in limits.items() if name != TOGETHER})
    if TOGETHER in limits:
        caps_set(subject=user, by=by, now=now, max_cost_per_day_usd=limits[TOGETHER])
    return limits_of(user)


def limits_of(user: User) -> dict[str, Any]:
    """Return the ceilings that hold for a person, and the cap of a day of all their runs together."""
    return {**ceilings_of(user.pk), TOGETHER: cap_of(BudgetScope.OWNER, user.pk, BudgetPeriod.DAY)}


def own_limits_of(user: User) -> dict[str, Any]:
    """Return what an admin has set for a person, without what the installation sets for everybody."""
    return {**own_ceilings(user.pk), TOGETHER: cap_of(BudgetScope.OWNER, user.pk, BudgetPeriod.DAY)}


def agents_above(user: User) -> list[str]:
    """Return the agents of a person that are above the ceilings that hold now: what exists stays as it is."""
    limits = ceilings_of(user.pk)
    rows = user.lqops_agents.filter(archived_at__isnull=True).order_by("name")
    names = ("mode", "max_cost_per_day_usd")
    found = []
    for row in rows:
        set_here = {name: getattr(row, name) for name in names if getattr(row, name) is not None}
        if above := looser_settings(limits, set_here):
            found.append(f"{row.name} ({', '.join(f'{name} {set_here[name]}' for name in above)})")
    return found


def limits_text(user: User, limits: Mapping[str, Any]) -> str:
    """Return a person's limits in words, and which of their agents are above."""
    day, together = limits["max_cost_per_day_usd"], limits[TOGETHER]
    parts = [
        f"approval mode {limits['mode']}",
        f"skills up to {limits['highest_level']}",
        f"{usd(limits['max_cost_usd'])} per run",
        f"{usd(day)} per day and agent",
        f"{'no cap of its own' if together is None else usd(together)} per day for all runs together",
    ]
    above = agents_above(user)
    rest = f" Above them, until somebody changes that: {'; '.join(above)}." if above else ""
    return f"Ceilings of {user}: {', '.join(parts)}.{rest}"


def _check_person(user: User, by: User | None) -> None:
    if by is not None and by.pk != user.pk and not by.has_perm("agents.change_profile"):
        raise NotAllowed(f"{by} may not change the profile of {user}: that needs agents.change_profile.")


# --- Invitations: an account without a password, and a link by which its owner sets one ---


@transaction.atomic
def person_invite(
    *,
    username: str,
    email: str,
    role: str,
    by: User | None,
    now: datetime,
    name: str = "",
    opted_in: bool = False,
    told_by_email: bool = True,
    single_sign_on: bool = False,
) -> User:
    """Create an account in a role. It has no password until its owner sets one by the link of the invitation.

    With `single_sign_on` the verified owner of the address may come in without one, for as long as the link is valid.
    """
    if by is not None and not by.has_perms(("auth.add_user", "auth.change_user")):
        raise NotAllowed("Inviting people needs the permissions to add and change users (role admin).")
    if opted_in and by is not None and not by.has_perm("agents.change_profile"):
        raise NotAllowed("Opting somebody in needs agents.change_profile.")
    if role not in ROLES:
        raise Invalid(f"role: {role!r} is no role; there are {', '.join(ROLES)}.")
    require_distinct_name(username)
    first, _, last = name.strip().partition(" ")
    user = User(username=username, email=email, first_name=first, last_name=last, is_staff=True)
    user.set_unusable_password()
    user.full_clean(exclude=["password"])
    user.save()
    user.groups.add(Group.objects.get(name=role))
    Profile.objects.create(user=user, opted_in=opted_in)
    Channel.objects.create(owner=user, kind=ChannelKind.EMAIL, name="E-mail", enabled=told_by_email, created_at=now)
    record_act("people.invited", subject=f"user:{user.pk}", by=by, now=now, user_id=user.pk, role=role)
    if single_sign_on:
        link_allow(user=user, by=by, now=now)
    return user


def invitation_link(*, user: User, by: User | None, now: datetime) -> str:
    """Return a link by which the owner of an account without a password sets one. It is valid for a few days."""
    if by is not None and not by.has_perms(("auth.add_user", "auth.change_user")):
        raise NotAllowed("Inviting people needs the permissions to add and change users (role admin).")
    if by is not None and user.is_superuser and not by.is_superuser:
        raise NotAllowed("Only a superuser invites a superuser.")
    if not can_be_invited(user):
        raise Invalid(f"{user} has a password already, has signed in before, or is not active.")
    record_act("people.invitation_made", subject=f"user:{user.pk}", by=by, now=now, user_id=user.pk)
    uid = urlsafe_base64_encode(force_bytes(user.pk))
    return f"{base_url()}/invitation/{uid}/{default_token_generator.make_token(user)}/"


def can_be_invited(user: User) -> bool:
    """Return whether the account waits for its owner; somebody who signs in otherwise gets no password beside that."""
    return user.is_active and user.last_login is None and not user.has_usable_password()


def invitation_send(*, user: User, link: str, now: datetime) -> str:
    """Send the link by e-mail, outside of any transaction. Return in plain words whether it left."""
    text = f"An account was made for you: {user.username}. Choose a password by this link. It is valid for 3 days."
    message = Message(id=str(uuid.uuid4()), type="invitation", title="You are invited", text=text, link=link, at=now)
    try:
        return send_email(message, to=user.email)
    except NotSent as error:
        return f"The link was not sent by e-mail: {error}"


# --- Roles: four groups that every migrate resets to this table. Other grants belong into groups of their own ---

VIEWED: Final = ("agents", "audit")
# Models that an operator may add, change and delete
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
    "approvalrule",
)
OPERATOR_ALSO: Final = (
    "agents.add_agentsession",
    "agents.change_agentsession",
    "agents.change_finding",
    "agents.change_skillsetting",
    "agents.halt_everything",
)
APPROVER_ALSO: Final = ("agents.resolve_approval",)
PEOPLE: Final = ("user", "group")
ROLE_TEXTS: Final = {
    "viewer": "sees everything, changes nothing",
    "operator": "starts and halts runs, manages triggers, documents and playbooks",
    "approver": "decides on approvals",
    "admin": "all of that, and people, keys, prices and caps",
}
ROLES: Final = tuple(ROLE_TEXTS)


def role_grants(role: str, permissions: Iterable[str]) -> set[str]:
    """Return the permissions (app.codename) of a role."""
    return {name for name in permissions if _has_permission(role, name)}


def _has_permission(role: str, name: str) -> bool:
    app, _, codename = name.partition(".")
    verb, _, model = codename.partition("_")
    if app in VIEWED and verb == "view":
        return True
    if role == "operator":
        return name in OPERATOR_ALSO or (app == "agents" and model in OPERATED)
    if role == "approver":
        return name in APPROVER_ALSO
    return role == "admin" and (app == "agents" or (app == "auth" and model in PEOPLE))


def roles_sync(*, apps: Apps, using: str) -> None:
    """Create the four groups, or reset their permissions. Calling it again changes nothing."""
    groups = apps.get_model("auth", "Group").objects.using(using)
    rows = apps.get_model("auth", "Permission").objects.using(using)
    pks = {
        f"{app}.{codename}": pk
        for pk, app, codename in rows.filter(content_type__app_label__in=(*VIEWED, "auth")).values_list(
            "pk", "content_type__app_label", "codename"
        )
    }
    known = {group.name: group for group in groups.filter(name__in=ROLES)}
    for role in ROLES:
        group = known.get(role) or groups.create(name=role)
        group.permissions.set([pks[name] for name in role_grants(role, pks)])


# --- Audit events for changes in the admin. Called in the transaction of Django's own write ---


def user_record_saved(*, user: User, added: bool, fields: Sequence[str], by: User | None, now: datetime) -> None:
    """Record that a user was added or changed: the fields, and the groups the user is in now."""
    details: dict[str, Any] = {"user_id": user.pk, "groups": sorted(user.groups.values_list("pk", flat=True))}
    if not added:
        details["fields"] = sorted(fields)
    kind = "people.user_added" if added else "people.user_edited"
    record_act(kind, subject=f"user:{user.pk}", by=by, now=now, **details)


def user_record_password(*, user: User, by: User | None, now: datetime) -> None:
    record_act("people.password_set", subject=f"user:{user.pk}", by=by, now=now, user_id=user.pk)


def group_record_saved(*, group: Group, by: User | None, now: datetime) -> None:
    number = group.permissions.count()
    record_act("people.group_saved", subject=f"group:{group.pk}", by=by, now=now, group_id=group.pk, permissions=number)


def group_delete(*, group: Group, by: User | None, now: datetime) -> None:
    record_act("people.group_deleted", subject=f"group:{group.pk}", by=by, now=now, group_id=group.pk)
    group.delete()
