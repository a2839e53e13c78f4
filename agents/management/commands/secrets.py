"""`secrets`: list the secrets with the hosts that they may be sent to, and change these. Values are never shown."""

from argparse import SUPPRESS, ArgumentParser
from typing import Any, Final

from agents.management.base import RecordedCommand
from agents.sensors.validation import secrets_unbound
from agents.skills.handles import ListedSecret, secret_bind, secret_listed, secrets_listed

BIND: Final = "bind"
UNBIND: Final = "unbind"


class Command(RecordedCommand):
    help = (
        "Lists the secrets by name, with the hosts that each may be sent to. `secrets bind NAME HOST …` adds hosts, "
        "`secrets unbind NAME HOST …` removes them. Values are never shown."
    )
    json_help = "Print JSON instead of text."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        acts = parser.add_subparsers(dest="act", help="The action. Default: list the secrets.")
        for name, text in ((BIND, "Adds hosts that a secret may be sent to."), (UNBIND, "Removes hosts of a secret.")):
            act = acts.add_parser(name, help=text)
            act.add_argument("name", help="The name of the secret, such as shop for LQOPS_SECRET_SHOP.")
            act.add_argument("hosts", nargs="+", metavar="HOST", help="Such as shop.example.org or *.shop.example.org.")
            act.add_argument("--user", default=SUPPRESS, help="Username to record in the audit log.")
            act.add_argument("--json", action="store_true", default=SUPPRESS, help=self.json_help)

    def run(self, options: dict[str, Any]) -> None:
        if options["act"]:
            self._change(options)
            listed = [one for one in (secret_listed(options["name"]),) if one]
            sent: list[str] = []
        else:
            listed, sent = secrets_listed(), secrets_unbound()
        facts = {"secrets": [_facts(one) for one in listed], "not_sent": sent}
        lines = [_line(one) for one in listed] or ["There are no secrets: LQOPS_SECRET_<NAME> sets one."]
        lines += [f"NOT SENT, because the host is not named: {line}" for line in sent]
        self.print(facts, "\n".join(lines), options)

    def _change(self, options: dict[str, Any]) -> None:
        known = secret_listed(options["name"])
        hosts = list(known.named_hosts) if known else []
        given = [host.strip().lower().rstrip("/") for host in options["hosts"]]
        wanted = [*hosts, *given] if options["act"] == BIND else [host for host in hosts if host not in given]
        secret_bind(name=options["name"], hosts=wanted, **self.actor(options))


def _facts(listed: ListedSecret) -> dict[str, Any]:
    return {
        "name": listed.name,
        "is_set": listed.is_set,
        "hosts": list(listed.named_hosts),
        "hosts_of_environment": list(listed.set_hosts),
    }


def _line(listed: ListedSecret) -> str:
    named = [*listed.named_hosts, *(f"{host} (environment)" for host in listed.set_hosts)]
    return f"{listed.name}  {'' if listed.is_set else 'not set here  '}{', '.join(named) or 'no host: sent nowhere'}"
