"""Secrets by handle, `{"$secret": "name"}`: the one place that reads their values, and the hosts that they may go to.

`secrets_resolve` alone puts values in the place of handles. It has to be told the destination, checks
that the secrets are bound to it, records the use, and only then returns the values. A secret is bound to the hosts
that the environment names (LQOPS_SECRET_<NAME>_HOSTS) and to those that an admin names; without any it goes nowhere.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from agents.conf import secret_hosts_set, secret_names
from agents.exceptions import Invalid, NotAllowed, NotFound
from agents.models import SecretBinding, Sensor
from agents.net.urls import UrlRefused, name_of, origin_of
from agents.people.access import bound_owners, record_act, require_may_loosen
from agents.policy.destinations import BadHost, Destination, host_checked, is_bound
from agents.policy.loosening import loosened
from agents.skills.skill import Skill, handles_in, replace_handles

PERMISSION: Final = "agents.change_secretbinding"
MOST_HOSTS: Final = 100
_ENCRYPTED: Final = frozenset({"https", "wss"})
_MAIL_ADDRESS: Final = re.compile(r"[^/:@,;<>\"\s]+@(?P<domain>[^/:@,;<>\"\s]+)")  # one, and nothing else


class SecretNotBound(NotAllowed):
    """A secret was about to go to a host that it is not bound to. Nothing was sent."""


# --- Destinations ---


def destination_of(url: str) -> Destination:
    """Return where a URL leads, as the URL gate reads it; UrlRefused if the gate would refuse it."""
    scheme, host, port = origin_of(url)
    return Destination(host, port, encrypted=scheme in _ENCRYPTED)


def destination_of_host(host: str, port: int) -> Destination:
    """Return where a connection with TLS leads."""
    return Destination(name_of(host, port), port)


def destinations_of_call(skill: Skill, arguments: Mapping[str, Any]) -> list[Destination]:
    """Return every host that a call of a skill can reach: those of its addresses, and those that it declares.

    Raises SecretNotBound for an address that cannot be read.
    """
    given = [arguments[name] for name in skill.addresses if arguments.get(name) is not None]
    found = [Destination(host) for host in skill.hosts]
    for address in given:
        try:
            found.append(_destination_of_address(address))
        except UrlRefused as error:
            raise SecretNotBound(f"{skill.name} gets no secret for an address that cannot be read: {error}") from None
    return found


def _destination_of_address(address: Any) -> Destination:
    """Return where an address argument leads: a URL, or the mail server's domain of an e-mail address."""
    text = address if isinstance(address, str) else ""
    if mail := _MAIL_ADDRESS.fullmatch(text):
        return Destination(name_of(mail["domain"], 25))
    return destination_of(text)


# --- What is bound to what ---


def hosts_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the hosts that secrets are bound to: those of the environment, and those that admins have named."""
    wanted = list(names)
    named = dict(SecretBinding.objects.filter(name__in=wanted).values_list("name", "hosts"))
    return {name: list(dict.fromkeys([*secret_hosts_set(name), *named.get(name, ())])) for name in wanted}


def unbound_problem(names: Collection[str], destinations: Sequence[Destination]) -> str:
    """Return why the secrets may not go to all of these destinations, and who can change that; "" if they may."""
    if not names:
        return ""
    if not destinations:
        return (
            f"{_named(names)} would go to a skill that names no host: its author declares where it sends, with "
            "addresses= or hosts="
        )
    bound = hosts_of(names)
    for name in names:
        for destination in destinations:
            if not is_bound(bound[name], destination):
                return _problem(name, destination, bound[name])
    return ""


def _problem(name: str, destination: Destination, hosts: Sequence[str]) -> str:
    known = f"it is bound to {', '.join(hosts)}" if hosts else "it is bound to no host yet"
    plain = "" if destination.encrypted else " without encryption"
    usual = 443 if destination.encrypted else 80
    entry = replace(destination, port=None if destination.port == usual else destination.port)
    port = f":{entry.port}" if entry.port else ""
    return (
        f"the secret {name!r} may not go to {destination.host}{port}{plain}: {known}. Somebody with the permission "
        f"agents.loosen (role admin) adds the host under Secrets in the admin, or with `manage.py secrets bind {name} "
        f"{entry}`; LQOPS_SECRET_{name.upper()}_HOSTS names hosts too"
    )


def _named(names: Collection[str]) -> str:
    return f"the secret{'s' if len(names) > 1 else ''} {', '.join(map(repr, sorted(names)))}"


def require_bound(names: Collection[str], destinations: Sequence[Destination]) -> None:
    if problem := unbound_problem(names, destinations):
        raise SecretNotBound(f"{problem[:1].upper()}{problem[1:]}.")


# --- The one function ---


@dataclass(frozen=True)
class SecretUser:
    """Who uses secrets, for the audit log: ids and labels.

    A sensor looks every few seconds. Given its row, a secret and host is recorded once per UTC day; else each use is.
    """

    details: Mapping[str, Any] = field(default_factory=dict)
    sensor: Sensor | None = None


def secrets_resolve(
    given: Mapping[str, Any],
    allowed: Iterable[str],
    *,
    destinations: Sequence[Destination],
    user: SecretUser,
    now: datetime,
) -> dict[str, Any]:
    """Return the arguments with the secrets themselves, for who sends them to these destinations and nowhere else.

    Raises BadHandle for an unknown or misplaced handle, and SecretNotBound. The use is on record before this returns.
    """
    places = frozenset(allowed)
    names = handles_in(given, places)
    require_bound(names, destinations)
    if names:
        _record_uses(names, destinations, user, now)
    return replace_handles(given, places, lambda name: settings.LQOPS_SECRETS[name])


@transaction.atomic
def _record_uses(names: Iterable[str], destinations: Iterable[Destination], user: SecretUser, now: datetime) -> None:
    uses = list(dict.fromkeys((name, destination.recorded) for name in names for destination in destinations))
    for name, host in uses if user.sensor is None else _first_today(user.sensor, uses, now):
        record_act("secret.used", by=None, now=now, subject=f"secret:{name}", secret=name, host=host, **user.details)


def _first_today(sensor: Sensor, uses: list[tuple[str, str]], now: datetime) -> list[tuple[str, str]]:
    """Return the uses that are not on record for this day, and note them. The row as it was leased may be older."""
    day = now.date().isoformat()
    if all(sensor.secret_uses.get(f"{name}@{host}") == day for name, host in uses):
        return []
    row = Sensor.objects.select_for_update(no_key=True).filter(pk=sensor.pk).first()
    noted = dict(row.secret_uses) if row else {}
    new = [(name, host) for name, host in uses if noted.get(f"{name}@{host}") != day]
    today = {use: at for use, at in noted.items() if at == day} | {f"{name}@{host}": day for name, host in new}
    if new:
        Sensor.objects.filter(pk=sensor.pk).update(secret_uses=today)
    sensor.secret_uses = today
    return new


# --- Acts of people ---


@dataclass(frozen=True)
class ListedSecret:
    """A secret of this installation, or one that is gone and still has hosts here."""

    name: str
    is_set: bool
    set_hosts: tuple[str, ...]  # by the environment
    binding: SecretBinding | None

    @property
    def named_hosts(self) -> tuple[str, ...]:
        return tuple(self.binding.hosts) if self.binding else ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.set_hosts, *self.named_hosts]))


def secrets_listed() -> list[ListedSecret]:
    """Return all secrets by name, those that are no longer set last. Their values are not read."""
    rows = {row.name: row for row in SecretBinding.objects.select_related("updated_by")}
    here = secret_names()
    return [
        ListedSecret(name, name in here, tuple(secret_hosts_set(name)), rows.get(name))
        for name in [*here, *sorted(rows.keys() - set(here))]
    ]


def secret_listed(name: str) -> ListedSecret | None:
    return next((listed for listed in secrets_listed() if listed.name == name), None)


@transaction.atomic
def secret_bind(*, name: str, hosts: Iterable[str], by: User | None, now: datetime) -> SecretBinding:
    """Set the hosts that a secret may be sent to, besides those of the environment. More hosts loosen."""
    if by is not None and not by.has_perm(PERMISSION):
        raise NotAllowed(f"You may not change where secrets go: that needs the permission {PERMISSION}.")
    wanted = _checked(hosts)
    if name not in secret_names() and not SecretBinding.objects.filter(name=name).exists():
        known = ", ".join(secret_names()) or "none"
        raise NotFound(f"There is no secret {name[:64]!r}; known names: {known}. Set LQOPS_SECRET_<NAME> and restart.")
    SecretBinding.objects.bulk_create([SecretBinding(name=name)], ignore_conflicts=True)
    row = SecretBinding.objects.select_for_update().get(name=name)
    before = [*secret_hosts_set(name), *row.hosts]
    require_may_loosen(by, loosened({"secret_hosts": before}, {"secret_hosts": wanted}), bound=bound_owners())
    added, removed = sorted(set(wanted) - set(row.hosts)), sorted(set(row.hosts) - set(wanted))
    if not (added or removed):
        return row
    row.hosts, row.updated_at, row.updated_by = wanted, now, by
    row.save()
    details: dict[str, Any] = {
        "secret": name,
        "hosts": len(wanted),
        "added": _labels(added),
        "removed": _labels(removed),
    }
    record_act("secret.bound", by=by, now=now, subject=f"secret:{name}", **details)
    return row


def _checked(hosts: Iterable[str]) -> list[str]:
    try:
        wanted = list(dict.fromkeys(host_checked(host) for host in hosts if host.strip()))
    except BadHost as error:
        raise Invalid(str(error)) from None
    if len(wanted) > MOST_HOSTS:
        raise Invalid(f"A secret is bound to at most {MOST_HOSTS} hosts, not {len(wanted)}.")
    return wanted


def _labels(hosts: Iterable[str]) -> list[str]:
    """Return hosts for the audit log, whose labels hold neither `*` nor brackets: `.example.org` is `*.example.org`."""
    return [host.replace("*", "").replace("[", "").replace("]", "")[-128:] for host in hosts]
