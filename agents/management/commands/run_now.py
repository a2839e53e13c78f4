"""`run_now`: start a run of a playbook, a skill, a goal or a trigger, and wait for its end on request."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from agents.enums import Status
from agents.management.base import (
    AGENT_HELP,
    RecordedCommand,
    await_end,
    ended_as,
    findings_facts,
    findings_text,
    named_user,
    require_result,
    result_text,
    row_named,
    wait_time,
)
from agents.models import Agent, AgentSession, Collection, Document, Playbook, Project, PromptSkill, Trigger
from agents.people.access import COMMAND
from agents.policy.run_spec import OPTIONS, RunSpec
from agents.policy.transitions import TERMINAL
from agents.sessions.reads import progress_of
from agents.triggers.firing import run_estimate, run_now
from agents.walk.analysis import ReadingPlan
from audit.management.base import not_empty
from audit.receipts import outcome_sentence, usd

_OPTIONS: Final = tuple(option for option in OPTIONS if option.metadata["flag"])  # with a flag on the command line
_KINDS: Final[dict[type, dict[str, Any]]] = {
    bool: {"action": "store_true"},
    int: {"type": int, "default": 0},
    str: {"default": ""},
}
_ROWS: Final[dict[str, Any]] = {
    "playbook": Playbook,
    "skill": PromptSkill,
    "trigger": Trigger,
    "agent": Agent,
    "collection": Collection,
    "document": Document,
    "project": Project,
}


class Command(RecordedCommand):
    help = (
        "Runs a playbook, a skill or a trigger once, or works towards a goal, under the same brakes as any other run. "
        "It needs workers: `manage.py up` or `manage.py work`."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        target = parser.add_mutually_exclusive_group()
        target.add_argument("--playbook", type=not_empty, help="Name or public id of one of the owner's playbooks.")
        target.add_argument("--skill", type=not_empty, help="Name of a loaded skill.")
        target.add_argument("--trigger", type=not_empty, help="Name or public id of one of the owner's triggers.")
        parser.add_argument(
            "--goal", type=not_empty, help="A goal in plain language, alone or with a playbook or skill."
        )
        parser.add_argument("--agent", type=not_empty, help=f"One of the owner's agents, to work on it. {AGENT_HELP}")
        parser.add_argument("--owner", required=True, help="The username of the user for whom it runs.")
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--collection", type=not_empty, help="Name or public id: reads all its documents.")
        source.add_argument("--document", type=not_empty, help="Name or public id: reads this document.")
        parser.add_argument("--query", default="", help="Words to search for: reads the best matches.")
        parser.add_argument("--project", type=not_empty, help="Name or public id of the project of the run.")
        parser.add_argument("--max-cost", type=_usd, help="Cap in USD; 0: nothing. Default: the installation's.")
        for option in _OPTIONS:
            choices = option.metadata["choices"]
            kind: dict[str, Any] = (
                {"choices": choices.values, "default": ""} if choices else _KINDS[option.metadata["type"]]
            )
            parser.add_argument(option.metadata["flag"], dest=option.name, help=option.metadata["help"], **kind)
        then = parser.add_mutually_exclusive_group()
        then.add_argument(
            "--wait",
            type=wait_time,
            metavar="SECONDS",
            help="Waits so long for the end of the run. Exit code: 0 if it did all its work, 1 if it failed or is not "
            "over, 3 if it did a part of it.",
        )
        then.add_argument(
            "--estimate",
            action="store_true",
            help="Prints in how many sections it would read its document or collection, and about what that costs. "
            "Starts nothing.",
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        owner = named_user(options["owner"])
        rows = {
            name: row_named(model, options[name], owner=None if model is PromptSkill else owner)
            for name, model in _ROWS.items()
            if options[name]
        }
        bound = {name: rows.pop(name) for name in ("trigger", "agent", "project") if name in rows}
        values = {option.name: options[option.name] for option in _OPTIONS}
        spec = RunSpec.of(
            **rows, **values, query=options["query"], goal=options["goal"], max_cost_usd=options["max_cost"]
        )
        if options["estimate"]:
            plan = run_estimate(spec, owner=owner, by=self.actor(options)["by"], **bound)
            self.print(_plan_facts(plan), _plan_text(plan), options)
            return
        session = run_now(spec, owner=owner, actor=COMMAND, **self.actor(options), **bound)
        session.refresh_from_db()
        await_end(session, options["wait"] or 0, between=self._progress(session, options))
        self.print(_facts(session), _text(session), options)
        if options["wait"] is not None:
            require_result(session, "The run")

    def _progress(self, session: AgentSession, options: dict[str, Any]) -> Callable[[], None]:
        """Print the section that is read, once for each."""
        shown = ""

        def show() -> None:
            nonlocal shown
            progress = progress_of(session)
            if progress is not None and str(progress) != shown and not options["json"]:
                shown = str(progress)
                self.stdout.write(f"{shown[:1].upper()}{shown[1:]}, about {usd(progress.estimate_usd)} for all.")
                self.stdout.flush()

        return show


def _plan_facts(plan: ReadingPlan) -> dict[str, Any]:
    costs = {"estimate_usd": str(plan.estimate_usd), "cap_usd": str(plan.cap_usd)}
    return {"sections": plan.sections, "section_chars": plan.room, **costs}


def _plan_text(plan: ReadingPlan) -> str:
    sections = f"{plan.sections} section{'' if plan.sections == 1 else 's'}"
    costs = f"about {usd(plan.estimate_usd)}; a cap of {usd(plan.cap_usd)} is enough"
    return f"{sections} of up to {plan.room:,} characters, {costs}. Nothing was started."


def _facts(session: AgentSession) -> dict[str, Any]:
    return {
        "session": str(session.public_id),
        "status": session.status,
        "terminal_reason": session.terminal_reason,
        "result": session.run_result,
        "result_reason": session.result_reason,
        "spent_usd": str(session.spent_usd),
        "charged_usd": str(session.cost_total_usd),
        "cost_usd": str(session.cost_total_usd),
        "actual_usd": str(session.cost_actual_usd),
        "max_cost_usd": str(session.max_cost_usd),
        "findings": findings_facts(session),
    }


def _text(session: AgentSession) -> str:
    line = f"Run {session.public_id}: {ended_as(session)}, {usd(session.spent_usd)}."
    if session.result and session.status != Status.COMPLETED:
        line = f"{line} {outcome_sentence(session.result)}"
    if session.status not in TERMINAL:
        return line
    return "\n".join(filter(None, [line, result_text(session), findings_text(session)]))


def _usd(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ArgumentTypeError(f"{text!r} is not an amount of US dollars, such as 0.25") from None
