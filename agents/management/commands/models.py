"""`models`: list the models and what is known of their servers; test one with a question for each of its roles."""

from argparse import SUPPRESS, ArgumentParser
from decimal import Decimal
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from agents.checks.model_test import QUESTIONS, run_test
from agents.conf import clock
from agents.definitions.catalogue import models_in_force, roles_of
from agents.management.base import JsonCommand, named_user
from agents.sessions.model_facts import PRICES, models_known
from agents.text.clean import one_line
from audit.receipts import usd

ANSWER_CHARS: Final = 200
_PRICE_NAMES: Final = ("in", "out", "written to a cache", "read from a cache")
_SIZES: Final = ("context_window", "max_tokens", "reasoning")


class Command(JsonCommand):
    help = (
        "Lists the models: where they are served, their roles, prices and states, and the form in which their servers "
        "take requests. `models test` asks a model one real question for each of its roles, in a run of its own under "
        "the usual brakes, and shows what was read from the answers; it remembers what the server takes."
    )
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        acts = parser.add_subparsers(dest="act", help="The action. Default: list.")
        for name, words in (("list", "Lists the models."), ("test", "Asks a model a question for each role.")):
            act = acts.add_parser(name, help=words)
            act.add_argument("--json", action="store_true", default=SUPPRESS, help=self.json_help)
        act.add_argument("name", nargs="?", help="The model. Default: all models with a role.")
        act.add_argument("--role", choices=list(QUESTIONS), help="Only the question of this role. Default: its roles.")
        act.add_argument("--owner", help="The user for whom it runs. Default: the first active superuser.")

    def run(self, options: dict[str, Any]) -> None:
        if options["act"] != "test":
            found = [one.summary for one in models_known(clock())]
            self.print(found, "\n".join(map(_line, found)), options)
            return
        owner, role = _owner(options["owner"]), options["role"] or ""
        tested = [run_test(name, owner, by=None, now=clock(), role=role) for name in _chosen(options["name"])]
        self.print(tested, "\n\n".join(map(_report, tested)), options)
        if failed := [one["model"] for one in tested if not one["ok"]]:
            raise CommandError(f"The test failed for {', '.join(failed)}.")


def _owner(username: str | None) -> User:
    if username is not None:
        return named_user(username)
    owner = User.objects.filter(is_active=True, is_superuser=True).order_by("pk").first()
    if owner is None:
        raise CommandError("There is no active superuser: name a user with --owner.")
    return owner


def _chosen(name: str | None) -> list[str]:
    models = models_in_force()
    if name is None:
        return [one for one in models.declared if roles_of(one)]
    if name not in models.declared:
        raise CommandError(f"There is no model {name!r}; declared: {', '.join(sorted(models.declared))}.")
    return [name]


def _line(found: dict[str, Any]) -> str:
    where = f" {found['name']} at {found['host']}" if found["host"] else ""
    roles = ", ".join(found["roles"]) or "no role"
    at = f" {found['state_at']:%Y-%m-%d %H:%M} UTC" if found["state_at"] else ""
    state = f"{found['state']}{at}{f': {error}' if (error := found['error']) else ''}"
    origin = f"\n  {found['origin']}: {', '.join(found['set_here'])}" if found["set_here"] else ""
    problem = f"\n  not in force, the file applies: {found['problem']}" if found["problem"] else ""
    head = f"{found['model']}: {found['provider']}{where}  {roles}  {_price(found)}  {state}"
    return f"{head}{origin}{problem}{_declared_lines(found)}"


def _price(found: dict[str, Any]) -> str:
    named = zip(PRICES, _PRICE_NAMES, strict=True)
    parts = [f"${found['prices'][key]} {name}" for key, name in named if found["prices"][key] is not None]
    return f"{', '.join(parts)} per million tokens ({found['prices_from']})" if parts else "no price"


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
    unread = [answer["role"] for answer in tested["answers"] if not answer["readable"]]
    failed = tested["error"] or f"not readable as {', '.join(unread)}" if unread or tested["error"] else ""
    state = "fit for its roles" if tested["ok"] else f"FAILED: {failed or 'no question was asked'}"
    lines = [f"{tested['model']}: {state}", *map(_answer_line, tested["answers"])]
    spent = usd(Decimal(tested["spent_usd"]))
    return "\n".join([*lines, f"  {spent}, run {tested['session']}"]) + _server_lines(tested["server"])


def _answer_line(answer: dict[str, Any]) -> str:
    thought = f", {answer['reasoning_tokens']} of them thinking" if answer["reasoning_tokens"] else ""
    tokens = f"{answer['input_tokens']} tokens in, {answer['output_tokens']} out{thought}"
    tries = "" if answer["requests"] == 1 else f", {answer['requests']} requests"
    took = f"{answer['took_ms']} ms, {tokens}, ${answer['cost_usd']}{tries}"
    text = f"“{one_line(answer['text'], ANSWER_CHARS)}”" if answer["answered"] else answer["error"]
    reading = f"\n    {answer['reading']}" if answer["reading"] else ""
    return f"  {answer['role']}: {answer['question']}\n    {text}  {took}{reading}"
