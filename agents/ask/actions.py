"""Fast paths that act: halt a run, decide on an approval, switch an agent, start a run, draft a schedule.

An action needs exactly one thing that is named; otherwise the answer lists what could be meant. Permissions are
checked, and audit events written, by the functions that do it.
"""

from typing import Any, Final

from agents.ask.language import When
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
    KINDS,
    SOURCES,
    Answer,
    AskContext,
    Kind,
    Match,
    Names,
    done,
    drafted,
    kind_of,
    lines,
    listing,
    message,
    rows_by_id,
    rows_of,
    short_id,
    started,
)
from agents.enums import ApprovalStatus
from agents.exceptions import NotAllowed, NotFound
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_message
from agents.models import Agent, AgentSession, Approval, Trigger
from agents.people.access import record_row_view, require_start_permission
from agents.policy.run_spec import RunSpec
from agents.roster.agents import agent_edit, agent_is_running, agent_start, agent_stop, require_startable
from agents.sessions.approvals import approval_approve, approval_reject, require_decidable
from agents.sessions.halts import HaltAnswer, session_halt
from agents.sessions.second_eyes import waits_text, with_decisions
from agents.text.clean import one_line
from agents.text.shown import shown
from agents.triggers.firing import require_run_allowed, run_now
from agents.triggers.triggers import trigger_create
from audit.redaction import redact

# --- Halting a run ---


_REASON_CHARS: Final = 200
_HALTED: Final = {
    HaltAnswer.REQUESTED: "Halt requested for run {}. No further call of it starts.",
    HaltAnswer.ALREADY: "Halt of run {} was requested before.",
    HaltAnswer.OVER: "Run {} is over; there is nothing to halt.",
}


def halt(match: Match, context: AskContext) -> Answer | None:
    """Halt the one run of the person that is named by its id; in a chat, the message that is being answered."""
    if match.action == "release":
        return None if context.in_chat else _release()
    if match.action == "this":
        return _halt(context.running, context) if context.running else None
    if not match.ids:
        return _which_run(context)
    found = rows_by_id(own_sessions(context), match.ids[0])
    if not found:
        raise NotFound(f"You have no run {match.ids[0]}. Ask: list active runs")
    return _halt(found[0], context) if len(found) == 1 else _which_run(context, found)


def _halt(session: AgentSession, context: AskContext) -> Answer:
    if context.dry_run:
        return done(f"Halts run {short_id(session)}.", session=str(session.public_id))
    reason = one_line(f"Asked for: {redact(context.text)}", _REASON_CHARS)
    answer = session_halt(session.pk, by=context.user, reason=reason, now=context.now)
    return done(_HALTED[answer].format(short_id(session)), session=str(session.public_id), answer=str(answer))


def _which_run(context: AskContext, found: list[AgentSession] | None = None) -> Answer:
    all_work = "The admin and the command `halt` stop all work."
    head = f"Nothing was halted. Say which one: `halt run <id>`. {all_work}"
    rows = session_rows(list(under_way(context)[:MAX_SHOWN]) if found is None else found)
    return listing(head, rows, "sessions", empty=f"Nothing was halted: you have no active runs. {all_work}")


def _release() -> Answer:
    """Words release nothing: whoever may release all work uses the control itself."""
    halt = current_halt()
    if halt is None:
        return message("Nothing was done: nothing is halted.", halted=False)
    return message(f"Nothing was released. {halt_message(halt)} {TO_RELEASE}", halted=True)


# --- Deciding on an approval ---


_DIGEST_CHARS: Final = 12
_CALL_CHARS: Final = 4_000  # of a call that is shown here, and so can be approved here


def decide(match: Match, context: AskContext) -> Answer:
    """Approve or deny one call, if its digest is repeated; without the digest, show the call."""
    if not match.ids:
        return _which_approval(match.action, context)
    approval_id, digest = match.ids[0], next(iter(match.ids[1:]), "")
    found = rows_by_id(reachable_approvals(context), approval_id)
    if not found:
        raise NotFound(f"There is no approval {approval_id}. Ask: list pending approvals")
    if len(found) > 1:
        return _which_approval(match.action, context, found)
    if len(digest) < _DIGEST_CHARS:
        return _show_call(found[0], match.action, context)
    return _decide(found[0], match.action, digest, context)


def _decide(approval: Approval, action: str, typed: str, context: AskContext) -> Answer:
    digest = approval.digest if approval.digest.startswith(typed) else typed
    approves = action == "approve"
    if approves and (length := len(shown(approval.arguments).text)) > _CALL_CHARS:
        raise NotAllowed(f"Nothing was decided: {_too_long(length)}")
    if context.dry_run:
        require_decidable(approval, by=context.user, digest=digest, now=context.now, says_no=not approves)
        text = f"{'Approves' if approves else 'Denies'} {approval.action}."
        return done(text, approval=str(approval.public_id))
    service = approval_approve if approves else approval_reject
    decided = service(approval.pk, by=context.user, digest=digest, now=context.now)
    waits = decided.status == ApprovalStatus.PENDING
    return done(
        f"{decided.action}: {waits_text(decided)}" if waits else f"{decided.action} is {decided.status_text}.",
        approval=str(decided.public_id),
        status=decided.status,
        action=decided.action,
    )


def _show_call(approval: Approval, action: str, context: AskContext) -> Answer:
    """The call, and the words that decide on it. Viewing somebody else's is audited, as everywhere."""
    if context.dry_run:
        return message(f"Decides nothing: shows {approval.action} and how to decide on it.", missing=["digest"])
    record_row_view(row=approval, by=context.user, now=context.now)
    with_decisions([approval], by=context.user, now=context.now)
    said, refusal = str(approval.said), approval.refusal  # type: ignore[attr-defined]
    seen, pending = shown(approval.arguments), approval.status == ApprovalStatus.PENDING
    is_whole = len(seen.text) <= _CALL_CHARS
    is_open = pending and is_whole and not (refusal and action == "approve")
    repeat = f"{action} {approval.public_id} {approval.digest[:_DIGEST_CHARS]}" if is_open else ""
    how = f" To {action} it, say: {repeat}" if repeat else ""
    if refusal and action == "approve":
        how = f" You cannot approve it. {refusal}"
    text = lines(
        f"Nothing was decided. {approval.action} is {approval.status_text}.{how}",
        [
            f"call: {approval.action}, version {approval.version}, level {approval.level}",
            f"arguments: {seen.text if is_whole else _too_long(len(seen.text))}",
            *(f"look closely: {warning}" for warning in seen.warnings),
            f"for: {approval.session.owner.get_username()}, run {short_id(approval.session)}, phase {approval.phase}",
            *([f"digest: {approval.digest}"] if is_whole else []),
            *([f"yeses: {said}"] if said else []),
        ],
    )
    _, data = approval_row(approval)
    if is_whole:
        data |= {"arguments": approval.arguments, "digest": approval.digest}
    data |= {"shown": is_whole, "warnings": list(seen.warnings), "repeat": repeat, "said": said, "refusal": refusal}
    return message(text, approval=data)


def _too_long(length: int) -> str:
    return f"{length:,} characters are too many to show here. Decide under Approvals in the admin, or deny it there."


def _which_approval(action: str, context: AskContext, found: list[Approval] | None = None) -> Answer:
    rows = [approval_row(row) for row in found or pending_approvals(context)[:MAX_SHOWN]]
    head = f"Nothing was decided. Say which one: `{action} <id>`."
    return listing(head, rows, "approvals", empty="Nothing was decided: no approval is pending.")


# --- Switching an agent ---


# By action: what a dry run says, and what is said when it was done.
_SWITCHES: Final = {
    "pause": (
        "Switches agent {} off.",
        "Agent {} is off: it takes no new work, and its loop has ended. Its other active runs continue.",
    ),
    "resume": ("Switches agent {} on.", "Agent {} is on."),
    "stop": ("Stops the loop of agent {}.", "Stop requested for the loop of agent {}."),
    "start": ("Starts the loop of agent {}.", "The loop of agent {} has started."),
}
_NOT_RUNNING: Final = (
    "Nothing was done: the loop of agent {0} is not running. `pause agent {0}` switches the agent off; `halt run <id>` "
    "halts one of its runs."
)


def switch_agent(match: Match, context: AskContext) -> Answer | None:
    """Switch an agent off or on, or stop or start its loop. None if the name is not one of an agent.

    A trigger can be started as well: if both have the name, neither is.
    """
    agents: list[Agent] = match.names.of("agent")
    if match.names.found and not agents:
        return None
    if len(agents) != 1 or (match.action == "start" and match.names.of("trigger")):
        head = f"No agent was changed. Say which one: `{match.action} agent <name>`."
        return _choices(head, agents or rows_of("agent", context.user))
    [agent] = agents
    if match.action in {"resume", "start"}:
        require_start_permission(context.user)
    preview, text = _SWITCHES[match.action]
    facts: dict[str, Any] = {"agent": str(agent.public_id)}
    if context.dry_run:
        if match.action == "start":
            require_startable(agent)
        return done(preview.format(agent.name), **facts)
    acting: dict[str, Any] = {"agent": agent, "by": context.user, "now": context.now}
    if match.action in {"pause", "resume"}:
        facts["enabled"] = agent_edit(**acting, enabled=match.action == "resume").enabled
    elif match.action == "start":
        agent_start(**acting)
    elif agent_is_running(agent):
        agent_stop(**acting)
    else:
        return message(_NOT_RUNNING.format(agent.name), **facts)
    return done(text.format(agent.name), **facts)


# --- Starting a run ---


_RUNNABLE: Final = ("trigger", "playbook", "collection")


def run(match: Match, context: AskContext) -> Answer:
    """Run a trigger, or a playbook or skill on a collection or document."""
    names = match.names
    targets, sources = names.of("trigger", *INSTRUCTIONS), names.of(*SOURCES)
    if names.is_ambiguous or len(targets) > 1 or len(sources) > 1:
        return which_is_meant(names)
    if not targets:
        head = (
            "Nothing was started. Say what to run: `run trigger <name>` or `run playbook <name> on collection <name>`."
        )
        return _choices(head, [row for kind in _RUNNABLE for row in rows_of(kind, context.user)[:MAX_SHOWN]])
    require_start_permission(context.user)
    is_trigger = kind_of(targets[0]) == "trigger"
    rows = targets if is_trigger else [*targets, *sources]
    if not sources and not is_trigger:
        text = f"Nothing was started: say what {targets[0].name} is to read, a collection or a document."
        return message(text, missing=["read"])
    title = " on ".join(row.name for row in rows)
    session = _run(context, rows)
    if session is None:
        return done(f"Runs {title} now.", Kind.SESSION)
    return started(session, f"{title} runs now, as run {session.public_id}.")


def run_goal(names: Names, context: AskContext) -> Answer:
    """Start a run towards the goal in the person's own words, with what they name."""
    require_start_permission(context.user)
    sources = names.of(*SOURCES)
    rows = [*names.of(*INSTRUCTIONS), *(sources if len(sources) == 1 else [])]
    session = _run(context, rows, goal=context.text)
    if session is None:
        return done("Starts a run that works towards this goal, step by step.", Kind.SESSION)
    text = f"Run {session.public_id} works towards this goal, step by step."
    if rows:
        text += f" Inputs: {' and '.join(row.name for row in rows)}."
    if len(sources) > 1:
        text += f" Skills can read {', '.join(row.name for row in sources)}: only one can be an input."
    return started(session, text)


def _run(context: AskContext, rows: list[Any], goal: str = "") -> AgentSession | None:
    """Start a run with these rows; in a dry run, check only that it may start."""
    inputs = {kind_of(row): row for row in rows}
    if context.dry_run:
        require_run_allowed(owner=context.user, agent=context.agent, trigger=inputs.get("trigger"))
        return None
    trigger = inputs.pop("trigger", None)
    spec = RunSpec.of(**inputs, goal=goal, max_cost_usd=context.max_cost_usd)
    user = context.user
    return run_now(spec, owner=user, by=user, now=context.now, trigger=trigger, agent=context.agent)


def which_is_meant(names: Names) -> Answer:
    head = "Nothing was done: more than one thing could be meant. Name one, or give its id."
    return _choices(head, names.of(*KINDS))


def _choices(head: str, found: list[Any], **data: Any) -> Answer:
    rows = [
        (f"{kind} {row.name}, {row.public_id}", {"kind": kind, "name": row.name, "id": str(row.public_id)})
        for row in found
        for kind in [kind_of(row)]
    ]
    return listing(head, rows, "choices", empty=head, **data)


# --- Drafting a schedule ---


_NAME_CHARS: Final = 120


def draft(when: When | None, names: Names, context: AskContext, rest: frozenset[str] = frozenset()) -> Answer:
    """Draft a schedule that is switched off, or say what is missing for one.

    What is not named is taken from what the person has, if there is only one, unless `rest`, the words that are not
    names, shows that something was named that does not exist.
    """
    instructions, collections = names.of(*INSTRUCTIONS), names.of("collection")
    if names.is_ambiguous or len(instructions) > 1 or len(collections) > 1:
        return which_is_meant(names)
    assumed: list[Any] = []
    if not instructions and not rest & {"run", "start", *INSTRUCTIONS}:
        instructions = _only(rows_of("playbook", context.user) or rows_of("skill", context.user))
        assumed += instructions
    if not collections and not rest & {"run", "start", "collection"}:
        collections = _only(rows_of("collection", context.user))
        assumed += collections
    if when is None or when.error or not instructions or not collections:
        return _incomplete(when, instructions, collections, context)
    rows = {kind_of(row): row for row in (*instructions, *collections)}
    require_start_permission(context.user)
    title = f"{' on '.join(row.name for row in rows.values())}, {when.words}"
    inputs = {"agent": context.agent, **rows}
    existing = _same_draft(when, inputs, context)
    if context.dry_run and existing is None:
        return done(f"Drafts a schedule, switched off: {title}.", Kind.DRAFT)
    trigger = existing or trigger_create(
        owner=context.user,
        kind="schedule",
        name=one_line(title, _NAME_CHARS),
        by=context.user,
        now=context.now,
        cron=when.cron,
        zone="UTC",
        enabled=False,
        **inputs,
    )
    text = (
        f"{'Already drafted' if existing else 'Drafted'}, and switched off: {title} ({when.cron} in UTC). To use it, "
        f"switch it on: on its page in the admin, or PATCH /api/v1/triggers/{trigger.public_id} with "
        '{"enabled": true}.'
    )
    if assumed:
        named = " and ".join(f"{kind_of(row)} {row.name}" for row in assumed)
        text += f" You did not name {named}: you have no other. Runs follow the playbook or skill, not these words."
    return drafted(text, trigger=str(trigger.public_id), name=trigger.name, cron=trigger.cron, zone=trigger.zone)


def _only(rows: list[Any]) -> list[Any]:
    return rows if len(rows) == 1 else []


def _same_draft(when: When, inputs: dict[str, Any], context: AskContext) -> Trigger | None:
    """A schedule of the person's that was drafted alike, never switched on and never run."""
    like = {"playbook": None, "skill": None, "project": None, "max_cost_usd": None, **inputs}
    rows = Trigger.objects.filter(owner=context.user, kind="schedule", cron=when.cron, zone="UTC", query="", **like)
    unused = rows.filter(enabled=False, paused_at__isnull=True, deleted_at__isnull=True, sessions__isnull=True)
    return unused.order_by("pk").first()


def _incomplete(when: When | None, instructions: list[Any], collections: list[Any], context: AskContext) -> Answer:
    """Say what is missing for a schedule, and list what the person has of it."""
    missing = {}
    if when is None or when.error:
        missing["when"] = f"another time: {when.error}" if when else "a recurring time"
    if not instructions:
        missing["playbook"] = "a playbook or skill"
    if not collections:
        missing["collection"] = "a collection"
    head = (
        f"No schedule was drafted. It still needs {', '.join(missing.values())}. "
        "For example: every 6 hours run playbook <name> on collection <name>."
    )
    found = [row for kind in missing if kind in KINDS for row in rows_of(kind, context.user)[:MAX_SHOWN]]
    return _choices(head, found, missing=list(missing))
