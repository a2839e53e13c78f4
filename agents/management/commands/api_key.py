"""`api_key`: create, list and revoke API keys."""

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from agents.management.base import RecordedCommand, named_user
from agents.models import ApiKey
from agents.people.keys import Scope, api_key_create, api_key_revoke

MOST_DAYS = 3_650
Printed = tuple[dict[str, Any], str, str]  # facts for programs, text, and a hint for people


class Command(RecordedCommand):
    help = (
        "Creates, lists and revokes API keys. A key is printed once; only its hash is stored. A key without the scope "
        "`decide` cannot approve anything, whatever its user may do: give agents no other. This command can create any "
        "key; with --user, only keys that this user may create."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, help="The action.")
        create = acts.add_parser("create", help="Creates a key for a user and prints it once.")
        create.add_argument("username", help="The user whose rows the key reads and for whom it acts.")
        create.add_argument("--name", required=True, help="The purpose of the key.")
        create.add_argument(
            "--scope",
            action="append",
            choices=[scope.value for scope in Scope],
            help="read, write or decide; repeatable. Default: read.",
        )
        create.add_argument(
            "--days", type=int, default=90, help=f"Days until the key expires. Default: 90; at most {MOST_DAYS}."
        )
        listing = acts.add_parser("list", help="Lists keys without their secrets.")
        listing.add_argument("username", nargs="?", help="Only the keys of this user.")
        revoke = acts.add_parser("revoke", help="Revokes a key immediately. This cannot be undone.")
        revoke.add_argument("key", help="The key's id or prefix, as printed by `list`.")
        for act in (create, listing, revoke):
            super().add_arguments(act)

    def run(self, options: dict[str, Any]) -> None:
        acts = {"create": self._create, "list": self._list, "revoke": self._revoke}
        facts, text, hint = acts[options["act"]](options, self.actor(options))
        self.print(facts, text, options, hint=hint)

    def _create(self, options: dict[str, Any], actor: dict[str, Any]) -> Printed:
        user = named_user(options["username"], active=False)
        days = options["days"]
        if not 1 <= days <= MOST_DAYS:
            raise CommandError(f"--days {days} is not between 1 and {MOST_DAYS}.")
        key, secret = api_key_create(
            user=user,
            name=options["name"],
            scopes=options["scope"] or [Scope.READ],
            expires_at=actor["now"] + timedelta(days=days),
            **actor,
        )
        return {**_facts(key), "secret": secret}, secret, f"Save it now: it is not shown again. {_line(key)}"

    def _list(self, options: dict[str, Any], actor: dict[str, Any]) -> Printed:
        keys = ApiKey.objects.select_related("user").order_by("-pk")
        if options["username"] is not None:
            keys = keys.filter(user=named_user(options["username"], active=False))
        lines = "\n".join(map(_line, keys)) or "There are no keys."
        return {"keys": [_facts(key) for key in keys]}, lines, ""

    def _revoke(self, options: dict[str, Any], actor: dict[str, Any]) -> Printed:
        key = api_key_revoke(key=_key(options["key"]), **actor)
        return _facts(key), f"Revoked: {_line(key)}", ""


def _key(text: str) -> ApiKey:
    try:
        found = ApiKey.objects.filter(public_id=UUID(text)).first()
    except ValueError:
        found = ApiKey.objects.filter(prefix=text).first()
    if found is None:
        raise CommandError(f"There is no key {text!r}. Give its id or prefix, as printed by `api_key list`.")
    return found


def _facts(key: ApiKey) -> dict[str, Any]:
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
    end = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else "never expires"
    if key.expires_at and not key.revoked_at:
        end = f"expires {key.expires_at:%Y-%m-%d}"
    return f"{key.public_id}  {key.prefix}  {key.user}  {key.name}  {','.join(key.scopes)}  {end}"
