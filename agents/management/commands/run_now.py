"""`run_now`: asks for a run by a playbook, a skill, a goal or a trigger, and can wait for its end."""

import json
from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db import models

from agents.conf import clock
from agents.enums import Status
from agents.exceptions import LqopsError
from agents.management.base import (
    AGENT_HELP,
    acting_user,
    add_acting_user,
    agent_named,
    await_end,
    ended_as,
    findings_facts,
    findings_text,
    incomplete,
    wait_time,
)
from agents.models import AgentSession, Collection, Document, Playbook, Project, PromptSkill, Trigger
from agents.people.access import COMMAND
from agents.policy.run_spec import OPTIONS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.triggers.firing import run_now
from audit.management.base import ActingCommand, not_empty
from audit.receipts import cost_text, outcome_sentence

Row = TypeVar("Row", bound=models.Model)
# Options of a run that have a flag on the command line.
_OPTIONS = tuple(option for option in OPTIONS if option.metadata["flag"])


class Command(ActingCommand):
    help = (
        "Runs a playbook or a skill once, works towards a goal, or does what a trigger goes by, under the same brakes "
        "as any other run. It needs workers: `manage.py up` or `manage.py qcluster`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        target = parser.add_mutually_exclusive_group()
        target.add_argument("--playbook", type=not_empty, help="The name of one of the owner's playbooks.")
        target.add_argument("--skill", type=not_empty, help="The name of a skill that is loaded.")
        target.add_argument(
            "--trigger", type=not_empty, help="The name or the public id of one of the owner's triggers."
        )
        parser.add_argument(
            "--goal", type=not_empty, help="What is to be reached, in words, alone or with a playbook or skill."
        )
        parser.add_argument("--agent", type=not_empty, help=f"One of the owner's agents, to work on it. {AGENT_HELP}")
        parser.add_argument("--owner", required=True, help="The username of the one for whom it runs.")
        parser.add_argument("--collection", type=not_empty, help="The name of a collection: all of it is read.")
        parser.add_argument("--document", type=not_empty, help="The public id of a document: it alone is read.")
        parser.add_argument("--query", default="", help="Words to search for: what fits best is read.")
        parser.add_argument("--project", type=not_empty, help="The name of the project that the run is bound to.")
        parser.add_argument("--max-cost", help="What the run may cost in US dollars; 0 means nothing at all.")
        for option in _OPTIONS:
            choices = option.metadata["choices"]
            kind: dict[str, Any] = {"choices": choices.values, "default": ""} if choices else {"action": "store_true"}
            parser.add_argument(option.metadata["flag"], dest=option.name, help=option.metadata["help"], **kind)
        parser.add_argument("--wait", type=wait_time, metavar="SECONDS", help="Waits so long for the end of the run.")
        parser.add_argument("--json", action="store_true", help="One JSON object instead of a line.")
        add_acting_user(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        owner = _only(User.objects.filter(username=options["owner"], is_active=True), f"user {options['owner']!r}")
        try:
            by = acting_user(options["user"])
            rows = _rows(owner, options)
            bound = {name: rows.pop(name) for name in ("trigger", "agent", "project") if name in rows}
            spec = RunSpec.of(**rows, **_values(options))
            session = run_now(spec, owner=owner, by=by, now=clock(), actor=COMMAND, **bound)
        except LqopsError as error:
            raise CommandError(str(error)) from None
        session.refresh_from_db()
        await_end(session, options["wait"] or 0)
        self._say(session, options)
        if options["wait"] is not None and session.status != Status.COMPLETED:
            raise CommandError(f"The run {incomplete(session)}")

    def _say(self, session: AgentSession, options: dict[str, Any]) -> None:
        found = {
            "session": str(session.public_id),
            "status": session.status,
            "terminal_reason": session.terminal_reason,
            "cost_usd": str(session.cost_total_usd),
            "actual_usd": str(session.cost_actual_usd),
            "max_cost_usd": str(session.max_cost_usd),
            "findings": findings_facts(session),
        }
        cost = cost_text(session.cost_total_usd, session.cost_actual_usd)
        line = f"Session {session.public_id}: {ended_as(session)}, {cost}."
        if session.result and session.status != Status.COMPLETED:
            line = f"{line} {outcome_sentence(session.result)}"
        told = findings_text(session) if session.status in TERMINAL else ""
        self.stdout.write(json.dumps(found) if options["json"] else "\n".join(filter(None, [line, told])))


def _rows(owner: User, options: dict[str, Any]) -> dict[str, Any]:
    """Return the rows that the options name."""
    owned: dict[str, type[models.Model]] = {
        "playbook": Playbook,
        "trigger": Trigger,
        "collection": Collection,
        "project": Project,
    }
    found: dict[str, Any] = {
        name: _one_of(owner, model, options[name]) for name, model in owned.items() if options[name]
    }
    if options["agent"]:
        found["agent"] = agent_named(options["agent"], owner=owner)
    if options["skill"]:
        found["skill"] = _only(PromptSkill.objects.filter(name=options["skill"]), f"skill {options['skill']!r}")
    if options["document"]:
        mine = Document.objects.filter(owner=owner, public_id=_uuid(options["document"]), deleted_at__isnull=True)
        found["document"] = _only(mine, f"document {options['document']}", owner)
    return found


def _values(options: dict[str, Any]) -> dict[str, Any]:
    cap = None if options["max_cost"] is None else _usd(options["max_cost"])
    said = {option.name: options[option.name] for option in _OPTIONS}
    return {**said, "query": options["query"], "goal": options["goal"], "max_cost_usd": cap}


def _one_of(owner: User, model: type[Row], named: str) -> Row:
    mine: models.QuerySet[Row] = models.QuerySet(model).filter(owner=owner)
    if any(field.name == "deleted_at" for field in model._meta.fields):
        mine = mine.filter(deleted_at__isnull=True)
    by_id = mine.filter(public_id=named) if _is_uuid(named) else mine.none()
    what = f"{model._meta.verbose_name} named {named!r}"
    return _only(by_id if by_id.exists() else mine.filter(name=named), what, owner)


def _only(rows: models.QuerySet[Row], what: str, owner: User | None = None) -> Row:
    found = list(rows[:2])
    if not found:
        raise CommandError(f"{owner} has no {what}." if owner else f"There is no {what}.")
    if len(found) > 1:
        raise CommandError(f"There is more than one {what}: give the public id instead.")
    return found[0]


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _uuid(text: str) -> UUID:
    if not _is_uuid(text):
        raise CommandError(f"{text!r} is not a public id; it looks like 4554cdd9-….")
    return UUID(text)


def _usd(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise CommandError(f"--max-cost {text!r} is not an amount of US dollars, such as 0.25.") from None
