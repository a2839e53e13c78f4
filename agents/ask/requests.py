"""Fast paths that want something changed: each names one thing and proposes the action, or lists the choices."""

from collections.abc import Iterable
from typing import Any, Final

from agents.ask.lookups import (
    MAX_SHOWN,
    approval_row,
    own_sessions,
    pending_approvals,
    reachable_approvals,
    session_rows,
    under_way,
)
from agents.ask.naming import (
    INSTRUCTIONS,
    SOURCES,
    Answer,
    AskContext,
    Match,
    Wanted,
    kind_of,
    listing,
    message,
    rows_by_id,
    rows_called,
    rows_mentioned,
    rows_of,
    short_id,
)
from agents.ask.proposals import wanted_on
from agents.ask.strategies import When, when_of
from agents.exceptions import NotFound
from agents.models import AgentSession, Approval
from agents.text.clean import one_line

TO_CONFIRM: Final = "Nothing was done yet: it waits for your confirmation."
_KIND_WORDS: Final = ("agent", "trigger", "playbook", "skill", "collection", "document")


def rows_for(words: str, kinds: Iterable[str], context: AskContext) -> list[Any]:
    """The rows that some words name; `agent Clerk` names an agent."""
    first, _, rest = words.partition(" ")
    if first in _KIND_WORDS and rest:
        return rows_called(rest, context.user, [kind for kind in kinds if kind == first])
    return rows_called(words, context.user, kinds)


def halt(match: Match, context: AskContext) -> Answer | None:
    """Propose to halt a run, or the runs of an agent; in a chat, the message that is being answered."""
    text = {"text": context.text}
    if match.rows:
        return _one(match.rows, "halt", context, **text)
    if not match.ids:
        if context.in_chat:
            return _halt_run(context.running, context) if context.running else None
        return _which_run(context)
    found = rows_by_id(own_sessions(context), match.ids[0])
    if not found:
        raise NotFound(f"You have no run {match.ids[0]}. Ask: runs active")
    return _halt_run(found[0], context) if len(found) == 1 else _which_run(context, found)


def _halt_run(session: AgentSession, context: AskContext) -> Answer:
    wanted = wanted_on("halt", "run", session, text=context.text)
    return message(f"Halt run {short_id(session)}? {TO_CONFIRM}", wanted, session=str(session.public_id))


def _which_run(context: AskContext, found: list[AgentSession] | None = None) -> Answer:
    rows = session_rows(list(under_way(context)[:MAX_SHOWN]) if found is None else found)
    head = "Nothing was halted. Say which one: `halt <id>`."
    return listing(head, rows, "sessions", empty="Nothing was halted: you have no active runs.")


def decide(match: Match, context: AskContext) -> Answer | None:
    """Show a call in full and propose the decision."""
    if not match.ids:
        return None if context.in_chat else _which_approval(match.action, context)
    found = rows_by_id(reachable_approvals(context), match.ids[0])
    if not found:
        raise NotFound(f"There is no approval {match.ids[0]}. Ask: approvals")
    if len(found) > 1:
        return _which_approval(match.action, context, found)
    [approval] = found
    _, data = approval_row(approval)
    text = f"{match.action.capitalize()} {approval.action}, which is {approval.status_text}? {TO_CONFIRM}"
    return message(text, wanted_on(match.action, "approval", approval), approval=data)


def _which_approval(action: str, context: AskContext, found: list[Approval] | None = None) -> Answer:
    rows = [approval_row(row) for row in found or pending_approvals(context)[:MAX_SHOWN]]
    head = f"Nothing was decided. Say which one: `{action} <id>`."
    return listing(head, rows, "approvals", empty="Nothing was decided: no approval is pending.")


def switch(match: Match, context: AskContext) -> Answer | None:
    """Propose to pause or resume a run, an agent or a trigger, or to start or stop a loop; a started trigger runs."""
    if match.ids:
        return _switch_run(match, context)
    if not match.rows:
        if context.in_chat:
            return halt(Match(), context) if match.action == "stop" else None
        head = f"Nothing was changed. Say which one: `{match.action} <name>`."
        return _choices(head, [*rows_of("agent", context.user), *rows_of("trigger", context.user)])
    return _one(match.rows, match.action, context)


def _switch_run(match: Match, context: AskContext) -> Answer | None:
    found = rows_by_id(own_sessions(context), match.ids[0])
    if match.action not in {"pause", "resume"}:
        return None
    if not found:
        raise NotFound(f"You have no run {match.ids[0]}. Ask: runs active")
    if len(found) > 1:
        head = f"Nothing was changed. Say which one: `{match.action} <id>`."
        return listing(head, session_rows(found), "sessions", empty="")
    wanted = wanted_on(match.action, "run", found[0], text=context.text)
    text = f"{match.action.capitalize()} run {short_id(found[0])}? {TO_CONFIRM}"
    return message(text, wanted, session=str(found[0].public_id))


# What a verb means for a trigger.
_FOR_TRIGGERS: Final = {"start": "run", "stop": "pause"}


def _one(rows: tuple[Any, ...], action: str, context: AskContext, **arguments: str) -> Answer:
    if len(rows) > 1:
        return _choices("Nothing was done: more than one thing could be meant. Name one, or give its id.", rows)
    [row] = rows
    kind = kind_of(row)
    named = _FOR_TRIGGERS.get(action, action) if kind == "trigger" else action
    return message(f"{named.capitalize()} {kind} {row.name}? {TO_CONFIRM}", wanted_on(named, kind, row, **arguments))


def run(match: Match, context: AskContext) -> Answer | None:
    """Propose a run of a trigger, or of a playbook or skill on a collection or document."""
    targets, sources = match.of("trigger", *INSTRUCTIONS), match.of(*SOURCES)
    if not targets and context.in_chat:
        return None
    if not targets:
        head = "Nothing was started. Say what to run: `run <trigger>` or `run <playbook> on <collection>`."
        return _choices(head, [row for kind in ("trigger", "playbook") for row in rows_of(kind, context.user)])
    if len(targets) > 1 or len(sources) > 1:
        return _choices(
            "Nothing was started: more than one thing could be meant. Name one, or give its id.", [*targets, *sources]
        )
    [target] = targets
    kind = kind_of(target)
    if kind == "trigger":
        return message(f"Run {target.name} now? {TO_CONFIRM}", wanted_on("run", kind, target))
    if not sources:
        return message(f"Nothing was started: say what {target.name} is to read, a collection or a document.")
    [source] = sources
    wanted = wanted_on("run", kind, target, on=f"{kind_of(source)}:{source.public_id}")
    return message(f"Run {target.name} on {source.name} now? {TO_CONFIRM}", wanted)


def run_goal(context: AskContext) -> Wanted:
    """A run towards the goal in the person's own words, with what they name."""
    named = rows_mentioned(context.text[:_NAMED_CHARS], context.user, SOURCES)
    on = {"on": f"{kind_of(named[0])}:{named[0].public_id}"} if len(named) == 1 else {}
    return Wanted("goal", "", {"goal": context.text, **on})


# --- Drafting a schedule ---


_NAME_CHARS: Final = 120
_NAMED_CHARS: Final = 2_000


def schedule(match: Match, context: AskContext) -> Answer:
    """Propose to draft a schedule, or say what is missing for one.

    What is not named is taken from what the person has, if there is only one.
    """
    text = context.text[:_NAMED_CHARS]
    when = when_of(text)
    instructions = _meant(text, INSTRUCTIONS, context)
    collections = _meant(text, ("collection",), context)
    if when is None or when.error or len(instructions) != 1 or len(collections) != 1:
        return _incomplete(when, instructions, collections, context)
    [by], [on] = instructions, collections
    title = one_line(f"{by.name} on {on.name}, {when.words}", _NAME_CHARS)
    refs = {"by": f"{kind_of(by)}:{by.public_id}", "on": f"collection:{on.public_id}"}
    wanted = Wanted("draft_schedule", "", {"title": title, "cron": when.cron, **refs})
    return message(f"Draft a schedule: {title} ({when.cron} in UTC)? {TO_CONFIRM}", wanted)


def _meant(text: str, kinds: tuple[str, ...], context: AskContext) -> list[Any]:
    named = rows_mentioned(text, context.user, kinds)
    if named:
        return named
    known = next((rows for kind in kinds if (rows := rows_of(kind, context.user))), [])
    return known if len(known) == 1 else []


def _incomplete(when: When | None, instructions: list[Any], collections: list[Any], context: AskContext) -> Answer:
    """Say what is missing for a schedule, and list what the person has of it."""
    missing = {}
    if when is None or when.error:
        missing["when"] = f"another time: {when.error}" if when else "a recurring time"
    if len(instructions) != 1:
        missing["playbook"] = "one playbook or skill"
    if len(collections) != 1:
        missing["collection"] = "one collection"
    head = (
        f"No schedule was drafted. It still needs {', '.join(missing.values())}. "
        "For example: schedule <playbook> on <collection> every 6 hours."
    )
    kinds = [kind for kind in ("playbook", "collection") if kind in missing]
    found = [row for kind in kinds for row in rows_of(kind, context.user)[:MAX_SHOWN]]
    return _choices(head, found, missing=list(missing))


def _choices(head: str, found: Iterable[Any], **data: Any) -> Answer:
    rows = [
        (f"{kind} {row.name}, {row.public_id}", {"kind": kind, "name": row.name, "id": str(row.public_id)})
        for row in list(found)[:MAX_SHOWN]
        for kind in [kind_of(row)]
    ]
    return listing(head, rows, "choices", empty=head, **data)
