"""`models`: list the declared models and what is known of their servers; test one with small questions."""

from argparse import SUPPRESS, ArgumentParser
from decimal import Decimal
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.conf import clock
from agents.ledger.model_servers import known_of
from agents.management.base import JsonCommand, named_user
from agents.model_test import run_test
from agents.models import ModelOutage, SuspendedModel
from agents.text.clean import one_line
from audit.receipts import cost_text

ANSWER_CHARS: Final = 200
_PRICES: Final = ("input_usd", "output_usd", "cache_write_usd", "cache_read_usd")
_PRICE_NAMES: Final = ("in", "out", "written to a cache", "read from a cache")
_SIZES: Final = ("context_window", "max_tokens", "reasoning")
_DECLARED: Final = (*_PRICES, "prices_from", *_SIZES)


class Command(JsonCommand):
    help = (
        "Lists the declared models: where they are served, their roles and prices, and the form in which their servers "
        "take requests. `models test` asks a model three small questions, in a run of its own under the usual brakes, "
        "and remembers what its server takes."
    )
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        acts = parser.add_subparsers(dest="act", help="The action. Default: list.")
        for name, words in (("list", "Lists the models."), ("test", "Asks a model three small questions.")):
            act = acts.add_parser(name, help=words)
            act.add_argument("--json", action="store_true", default=SUPPRESS, help=self.json_help)
        act.add_argument("name", nargs="?", help="The model. Default: all models with a role.")
        act.add_argument("--owner", help="The user for whom it runs. Default: the first active superuser.")

    def run(self, options: dict[str, Any]) -> None:
        if options["act"] != "test":
            found = [_facts(name) for name in sorted(settings.LQOPS_MODELS)]
            self.print(found, "\n".join(map(_line, found)), options)
            return
        owner = _owner(options["owner"])
        tested = [run_test(name, owner, by=None, now=clock()) for name in _chosen(options["name"])]
        self.print(tested, "\n\n".join(map(_report, tested)), options)
        if failed := [one["model"] for one in tested if not one["ok"]]:
            raise CommandError(f"No answer from {', '.join(failed)}.")


def _owner(username: str | None) -> User:
    if username is not None:
        return named_user(username)
    owner = User.objects.filter(is_active=True, is_superuser=True).order_by("pk").first()
    if owner is None:
        raise CommandError("There is no active superuser: name a user with --owner.")
    return owner


def _chosen(name: str | None) -> list[str]:
    if name is None:
        return list(dict.fromkeys(one for names in settings.LQOPS_MODEL_ROLES.values() for one in names))
    if name not in settings.LQOPS_MODELS:
        raise CommandError(f"There is no model {name!r}; declared: {', '.join(sorted(settings.LQOPS_MODELS))}.")
    return [name]


def _facts(model: str) -> dict[str, Any]:
    declared = settings.LQOPS_MODELS[model]
    return {
        "model": model,
        "provider": declared["provider"],
        "url": declared.get("url", "").partition("?")[0] or None,
        "name": declared.get("name", model),
        "roles": [role for role, names in settings.LQOPS_MODEL_ROLES.items() if model in names],
        **{key: declared.get(key) for key in _DECLARED},
        "away": ModelOutage.objects.filter(model=model).exists(),
        "suspended": SuspendedModel.objects.filter(model=model).exists(),
        "server": known_of(model),
    }


def _line(found: dict[str, Any]) -> str:
    where = f" {found['name']} at {found['url']}" if found["url"] else ""
    roles = ", ".join(found["roles"]) or "no role"
    state = "".join(f"  {word.upper()}" for word in ("away", "suspended") if found[word])
    return f"{found['model']}: {found['provider']}{where}  {roles}  {_price(found)}{state}{_declared_lines(found)}"


def _price(found: dict[str, Any]) -> str:
    parts = [f"${found[key]} {name}" for key, name in zip(_PRICES, _PRICE_NAMES, strict=True) if found[key] is not None]
    source = f" (by {found['prices_from']})" if found["prices_from"] else ""
    return f"{', '.join(parts)} per million tokens{source}"


def _declared_lines(found: dict[str, Any]) -> str:
    sizes = ", ".join(f"{key} {found[key]}" for key in _SIZES if found[key] is not None)
    return (f"\n  {sizes}" if sizes else "") + _server_lines(found["server"])


def _server_lines(server: dict[str, Any] | None) -> str:
    if server is None:
        return ""
    form = ", ".join(f"{part} {one['value']} ({one['source']})" for part, one in server["form"].items())
    if server["found_at"] is None:
        return f"\n  {form}\n  not asked yet: `manage.py models test` finds out what its server takes"
    streams = "streams" if server["streams"] else "sends replies in one piece"
    usage = "reports usage" if server["reports_usage"] else "reports no usage: calls cost their worst case"
    return f"\n  {form}\n  {streams}, {usage}; found {server['found_at']:%Y-%m-%d %H:%M} UTC"


def _report(tested: dict[str, Any]) -> str:
    state = "answers" if tested["ok"] else f"FAILED: {tested['error'] or 'no question was asked'}"
    lines = [f"{tested['model']}: {state}", *map(_answer_line, tested["answers"])]
    cost = cost_text(Decimal(tested["cost_usd"]), Decimal(tested["actual_usd"]))
    return "\n".join([*lines, f"  {cost}, run {tested['session']}"]) + _server_lines(tested["server"])


def _answer_line(answer: dict[str, Any]) -> str:
    thought = f", {answer['reasoning_tokens']} of them thinking" if answer["reasoning_tokens"] else ""
    tokens = f"{answer['input_tokens']} tokens in, {answer['output_tokens']} out{thought}"
    text = f"“{one_line(answer['text'], ANSWER_CHARS)}”" if answer["ok"] else answer["error"]
    note = "  (does not follow the schema)" if answer["follows_schema"] is False else ""
    tries = "" if answer["requests"] == 1 else f", {answer['requests']} requests"
    return f"  {answer['question']}: {text}{note}  {answer['took_ms']} ms, {tokens}{tries}"
