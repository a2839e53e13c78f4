"""Whose account an identity of single sign-on may open: e-mail addresses, links, and consent to a link.

Addresses are compared here and nowhere else, in Python: a database compares by its locale, and to that of PostgreSQL
a dotless i is an i. Nobody gets into an account that can do anything by its address alone:
its password, or an admin's consent, links an identity to it.
"""

import unicodedata
from datetime import datetime, timedelta
from typing import Any, Final

import idna
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agents.enums import NoticeKind
from agents.exceptions import Invalid, NotAllowed
from agents.models import Notification, Profile
from agents.people.access import COMMAND, record_act
from agents.people.notifications import notification_create
from audit.models import AuditEvent

CHANGE_USER: Final = "auth.change_user"
PROOF_FOR: Final = timedelta(minutes=10)  # after the sign-in at the provider
TOLD_AGAIN_AFTER: Final = timedelta(hours=1)
# How the owner of an identity proved that the account is theirs.
BY_ADDRESS, BY_SIGN_IN, BY_ADMIN = "address", "sign_in", "admin"
_MARK: Final = "Mn"
_DOTLESS_I: Final = "\u0131"


# --- Addresses and names ---


def canonical_email(address: str) -> str:
    """Return the one form of an address by which it is compared; empty if it has no clear meaning.

    The local part in lower case, the domain as DNS has it. Compatibility forms (the Kelvin sign, a long s, full-width
    letters) turn into plain letters in some programs, so an address that has any equals no other.
    """
    if unicodedata.normalize("NFKC", address) != address or not address.isprintable():
        return ""
    local, _, domain = address.lower().rpartition("@")
    try:
        host = domain if domain.isascii() else idna.encode(domain, strict=True).decode("ascii")
    except UnicodeError:
        return ""
    return f"{local}@{host}" if local and host else ""


def same_email(one: str, other: str) -> bool:
    return bool(canonical_email(one)) and canonical_email(one) == canonical_email(other)


def accounts_with_email(address: str) -> list[User]:
    """Return the accounts that have an address. All addresses are read: no database decides which are the same."""
    rows = User.objects.exclude(email="").order_by("pk").values_list("pk", "email")
    return list(User.objects.filter(pk__in=[pk for pk, email in rows if same_email(email, address)]).order_by("pk"))


def resembles_account(*, email: str = "", username: str = "") -> bool:
    """Tell whether an address or a name reads like that of an account: no second account is made by single sign-on."""
    wanted = {_skeleton(text) for text in (email, username) if text}
    rows = User.objects.values_list("email", "username")
    return any(_skeleton(text) in wanted for row in rows for text in row if text)


def require_distinct_name(username: str, *, but: int | None = None) -> None:
    """Refuse the name of a new or renamed account that reads like the name of another, such as `Ada` and `ada`."""
    for pk, name in User.objects.values_list("pk", "username"):
        if pk != but and name != username and _skeleton(name) == _skeleton(username):
            raise Invalid(f"username: {username!r} reads like {name!r}, who has an account. Choose another name.")


def _skeleton(text: str) -> str:
    """Return a text without case, accents and compatibility forms."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in plain if unicodedata.category(c) != _MARK).replace(_DOTLESS_I, "i")


# --- Links ---


def account_lock(user: User) -> User:
    """Return the account as it is now, locked until the transaction ends. On SQLite the transaction is the lock."""
    return User.objects.select_for_update(no_key=True).get(pk=user.pk)


def needs_proof(user: User, now: datetime) -> bool:
    """Tell whether an address alone does not open an account.

    That holds for staff, for accounts with a permission, opted in to runs or with another identity: an address can be
    reassigned. The consent of an admin replaces the proof, once.
    """
    profile = Profile.objects.filter(user_id=user.pk).first()
    if profile is not None and profile.sso_link_until is not None and profile.sso_link_until > now:
        return False
    can_act = user.is_staff or user.is_superuser or bool(user.get_all_permissions())
    return can_act or bool(profile and profile.opted_in) or bool(identities_of(user))


def identities_of(user: User) -> Any:
    """Return the identities that open an account; none where single sign-on is not set up."""
    person: Any = user
    return person.socialaccount_set.order_by("pk") if sso_is_set_up() else ()


def sso_is_set_up() -> bool:
    return apps.is_installed("allauth.socialaccount")


@transaction.atomic
def link_allow(*, user: User, by: User | None, now: datetime) -> Profile:
    """Let the next verified identity with the account's address open it without a password; once, for a few days."""
    require_may_link(user, by)
    if not canonical_email(user.email):
        raise Invalid(f"{user} has no e-mail address by which an identity could find the account. Give it one first.")
    until = now + timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)
    profile, _ = Profile.objects.update_or_create(user=user, defaults={"sso_link_until": until})
    _record("people.sso_allowed", user, by, now, until=until.isoformat())
    _notify(user, now, "An admin allowed single sign-on for {user}", "The next person who signs in at the provider "
            f"with the verified address {user.email} opens this account, until {until:%-d %B %H:%M} UTC.")  # fmt: skip
    return profile


def link_record(*, user: User, identity: str, way: str, now: datetime) -> None:
    """Record that an identity opens an account from now on, and notify its owner and the admins. Uses up a consent.

    In the transaction that links them.
    """
    used = Profile.objects.filter(user_id=user.pk, sso_link_until__gt=now).update(sso_link_until=None)
    how = BY_ADMIN if used and way == BY_ADDRESS else way
    _record("people.sso_linked", user, user, now, identity=identity[:16], how=how)
    _notify(user, now, "Single sign-on opens the account {user} from now on", "Somebody signed in at the provider with "
            f"the verified address {user.email}; {_HOW[how]}. If that was not the owner of the account, remove the "
            "link and sign them out everywhere, on their page under People.")  # fmt: skip


_HOW: Final = {
    BY_ADDRESS: "the account can do nothing yet, so the address was enough",
    BY_SIGN_IN: "then with the account's own password or passkey",
    BY_ADMIN: "an admin had allowed it",
}


@transaction.atomic
def link_wanted(*, user: User, address: str, now: datetime) -> None:
    """Record that an identity was kept from an account, and notify its owner and the admins; once an hour."""
    kind, subject = "sign_in.proof_wanted", f"user:{user.pk}"
    if AuditEvent.objects.of_kind(kind).filter(subject=subject, at__gt=now - TOLD_AGAIN_AFTER).exists():
        return
    record_act(kind, by=None, now=now, subject=subject, user_id=user.pk, address=address)
    _notify(user, now, "Single sign-on asks for the account {user}", "Somebody signed in at the provider with the "
            f"verified address {user.email}. The account stays closed to them until they give its own password, or an "
            "admin uses Allow single sign-on on its page under People.")  # fmt: skip


@transaction.atomic
def links_remove(*, user: User, by: User | None, now: datetime) -> int:
    """Remove all identities that open an account, and the consent to a further one. Sessions stay."""
    require_may_link(user, by)
    found = list(identities_of(user))
    for identity in found:
        identity.delete()
    Profile.objects.filter(user_id=user.pk).update(sso_link_until=None)
    _record("people.sso_removed", user, by, now, identities=len(found))
    return len(found)


def require_may_link(user: User, by: User | None) -> None:
    if by is not None and not (by.is_active and by.has_perm(CHANGE_USER)):
        raise NotAllowed(f"Single sign-on of others is for people who may change users ({CHANGE_USER}, role admin).")
    if by is not None and user.is_superuser and not by.is_superuser:
        raise NotAllowed("Only a superuser decides how a superuser signs in.")


def _record(kind: str, user: User, by: User | None, now: datetime, **details: Any) -> None:
    record_act(kind, by=by, now=now, subject=f"user:{user.pk}", unnamed=COMMAND, user_id=user.pk, **details)


def _notify(user: User, now: datetime, title: str, body: str) -> None:
    """Notify the owner of an account and those who manage people, except who has the same notification unread."""
    page, told = f"/admin/auth/user/{user.pk}/change/", title.format(user=user.get_username())
    admins = User.objects.with_perm(CHANGE_USER, backend="django.contrib.auth.backends.ModelBackend")
    people = User.objects.filter(Q(pk=user.pk) | Q(pk__in=admins.values("pk")), is_active=True).order_by("pk")
    unread = Notification.objects.filter(kind=NoticeKind.SIGN_IN, title=told, body=body, read_at__isnull=True)
    for person in people.exclude(pk__in=unread.values("owner_id")):
        notification_create(owner_id=person.pk, kind=NoticeKind.SIGN_IN, title=told, body=body, page=page, now=now)
