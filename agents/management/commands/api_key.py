"""`api_key`: makes, lists and revokes the keys with which integrations use the API."""

import json
from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.conf import clock
from agents.exceptions import LqopsError
from agents.management.base import acting_user, add_acting_user
from agents.models import ApiKey
from agents.people.keys import Scope, api_key_create, api_key_revoke
from audit.management.base import ActingCommand

MOST_DAYS = 3_650


class Command(ActingCommand):
    help = (
        "Makes, lists and revokes API keys. A key is shown once, when it is made; only its hash is kept. A key without "
        "the scope `decide` can never approve anything, whatever its user may: give agents no other. Whoever runs this "
        "may make any key; with --user, no other than that user may."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, help="What to do.")
        create = acts.add_parser("create", help="Makes a key for a user and shows it, once.")
        create.add_argument("username", help="Whose rows the key sees, and in whose name it acts.")
        create.add_argument("--name", required=True, help="What the key is for.")
        create.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in Scope],
            help="read, write or decide; may be given several times. Without it: read.",
        )
        create.add_argument(
            "--days", type=int, default=90, help=f"The key ends after this many days (90; at most {MOST_DAYS})."
        )
        listing = acts.add_parser("list", help="Lists keys, never the secrets.")
        listing.add_argument("username", nargs="?", help="Only the keys of this user.")
        revoke = acts.add_parser("revoke", help="Ends a key for good, at once.")
        revoke.add_argument("key", help="The key's id or its prefix, as `list` shows them.")
        for act in (create, listing, revoke):
            act.add_argument("--json", action="store_true", help="One JSON object instead of lines.")
            add_acting_user(act)

    def handle(self, *args: Any, **options: Any) -> None:
        now, by = clock(), acting_user(options["user"])
        try:
            found, line = getattr(self, f"_{options['act']}")(options, by, now)
        except LqopsError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(found) if options["json"] else line)

    def _create(self, options: dict[str, Any], by: User | None, now: datetime) -> tuple[dict[str, Any], str]:
        user, days = _user(options["username"]), options["days"]
        if not 1 <= days <= MOST_DAYS:
            raise CommandError(f"--days {days} is not from 1 to {MOST_DAYS}.")
        key, secret = api_key_create(
            user=user,
            name=options["name"],
            scopes=options["scope"] or [Scope.READ],
            expires_at=now + timedelta(days=days),
            by=by,
            now=now,
        )
        line = f"{secret}\nKeep it now: it is not shown again. {_line(key)}"
        return {**_described(key), "secret": secret}, line

    def _list(self, options: dict[str, Any], by: User | None, now: datetime) -> tuple[dict[str, Any], str]:
        keys = ApiKey.objects.select_related("user").order_by("-pk")
        if options["username"] is not None:
            keys = keys.filter(user=_user(options["username"]))
        lines = "\n".join(map(_line, keys)) or "There are no keys."
        return {"keys": [_described(key) for key in keys]}, lines

    def _revoke(self, options: dict[str, Any], by: User | None, now: datetime) -> tuple[dict[str, Any], str]:
        key = api_key_revoke(key=_key(options["key"]), by=by, now=now)
        return _described(key), f"Revoked: {_line(key)}"


def _user(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no user {username!r}.")
    return user


def _key(text: str) -> ApiKey:
    try:
        found = ApiKey.objects.filter(public_id=UUID(text)).first()
    except ValueError:
        found = ApiKey.objects.filter(prefix=text).first()
    if found is None:
        raise CommandError(f"There is no key {text!r}: give its id or its prefix, as `api_key list` shows them.")
    return found


def _described(key: ApiKey) -> dict[str, Any]:
    return {
        "id": str(key.public_id),
        "user": key.user.username,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes,
        **{name: _moment(getattr(key, name)) for name in ("expires_at", "last_used_at", "revoked_at", "created_at")},
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _line(key: ApiKey) -> str:
    end = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else "never ends"
    if key.expires_at and not key.revoked_at:
        end = f"ends {key.expires_at:%Y-%m-%d}"
    return f"{key.public_id}  {key.prefix}  {key.user}  {key.name}  {','.join(key.scopes)}  {end}"
