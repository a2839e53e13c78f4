"""Fast paths that pull a lever: halt a session, decide on an approval, pause, resume, start or stop an agent.

A lever is pulled only when the request names exactly one thing; otherwise the answer lists what could be meant. Whether
the person may is judged by the service that does it, which leaves the record.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from agents.ask import language
from agents.ask.language import Request, When, when_of
from agents.ask.lookups import (
    SHOWN,
    described,
    described_approval,
    own_sessions,
    pending_approvals,
    reachable_approvals,
    said_of,
    said_of_approval,
    under_way,
)
from agents.ask.naming import (
    Answer,
    Asker,
    Kind,
    Names,
    at_work,
    done,
    drafted,
    lines,
    names_in,
    rows_by_id,
    rows_of,
    short,
    told,
    would,
)
from agents.exceptions import NotFound
from agents.models import Agent, AgentSession, Approval, Collection, PromptSkill, Trigger
from agents.people.access import demand_start, row_view
from agents.policy.run_spec import RunSpec
from agents.roster.agents import agent_edit, agent_is_going, agent_start, agent_stop, demand_startable
from agents.sessions.approvals import approval_approve, approval_reject, demand_decidable
from agents.sessions.halts import HaltAnswer, session_halt
from agents.text.clean import one_line
from agents.triggers.firing import demand_run, run_now
from agents.triggers.triggers import trigger_create
from audit.redaction import redact, redact_data

REASON_CHARS: Final = 200
DIGEST_CHARS: Final = 12
_HALTED: Final = {
    HaltAnswer.REQUESTED: "Session {} is asked to halt: no further call of it starts.",
    HaltAnswer.ALREADY: "Session {} was asked to halt before.",
    HaltAnswer.OVER: "Session {} is over; there is nothing to halt.",
}


def halt(request: Request, who: Asker) -> Answer:
    """Halts the one session of the person that is named by its id."""
    if len(request.ids) != 1:
        return which_session(who)
    found = rows_by_id(own_sessions(who), request.ids[0])
    if not found:
        raise NotFound(f"You have no session {request.ids[0]}; ask for `list running sessions`.")
    if len(found) > 1:
        return which_session(who, found)
    return halt_one(found[0], who)


def halt_one(session: AgentSession, who: Asker) -> Answer:
    if who.dry:
        return would(f"Halts session {short(session)}.", session=str(session.public_id))
    reason = one_line(f"Asked for: {redact(who.text)}", REASON_CHARS)
    answer = session_halt(session.pk, by=who.by, reason=reason, now=who.now)
    return done(_HALTED[answer].format(short(session)), session=str(session.public_id), answer=str(answer))


def which_session(who: Asker, rows: list[AgentSession] | None = None) -> Answer:
    shown = described(list(under_way(who)[:SHOWN]) if rows is None else rows)
    head = "Nothing was halted. Say which one: `halt session <id>`. The admin and the command `halt` stop all work."
    text = lines(head, [said_of(row) for row in shown])
    return told(text if shown else "Nothing was halted: you have no session under way.", sessions=shown)


def decide(request: Request, who: Asker) -> Answer:
    """Says yes or no to one call, if the digest that was seen is repeated; without it, shows what would be decided."""
    verb = "approve" if request.said & language.YES else "reject"
    rows = reachable_approvals(who)
    if not request.ids or len(request.ids) > 2:  # noqa: PLR2004 an id and a digest
        return which_approval(verb, who)
    found = rows_by_id(rows, request.ids[0])
    if not found:
        raise NotFound(f"There is no approval {request.ids[0]}; ask for `list pending approvals`.")
    if len(found) > 1:
        return which_approval(verb, who, found)
    seen = request.ids[1] if len(request.ids) > 1 else ""
    if len(seen) < DIGEST_CHARS:
        return _what_is_asked(found[0], verb, who)
    return _decide(found[0], verb, seen, who)


def _decide(approval: Approval, verb: str, seen: str, who: Asker) -> Answer:
    digest = approval.digest if approval.digest.startswith(seen) else seen
    if who.dry:
        demand_decidable(approval, by=who.by, digest=digest, now=who.now, own_is_fine=verb == "reject")
        said = "yes" if verb == "approve" else "no"
        return would(f"Says {said} to {approval.action}.", approval=str(approval.public_id))
    service = approval_approve if verb == "approve" else approval_reject
    decided = service(approval.pk, by=who.by, digest=digest, now=who.now, key_id=who.key_id)
    shown = {"approval": str(decided.public_id), "status": decided.status, "action": decided.action}
    return done(f"{decided.action} is {'approved' if verb == 'approve' else 'denied'}.", **shown)


def _what_is_asked(approval: Approval, verb: str, who: Asker) -> Answer:
    """The call and the words that decide on it. A look at somebody else's is on record, as everywhere."""
    if who.dry:  # it is not shown, and so no look at it is on record
        return told(f"Decides nothing: shows {approval.action} and the words that decide on it.", missing=["digest"])
    row_view(row=approval, by=who.by, now=who.now)
    arguments = redact_data(approval.arguments)
    said = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
    repeat = f"{verb} {approval.public_id} {approval.digest[:DIGEST_CHARS]}"
    text = lines(
        f"Nothing was decided. {approval.action} is {approval.status}; to {verb} it, say: {repeat}",
        [
            f"what: {approval.action}, version {approval.version}, level {approval.level}",
            f"with: {one_line(said, 2_000)}",
            f"for: {approval.session.owner.get_username()}, session {short(approval.session)}, phase {approval.phase}",
            f"digest: {approval.digest}",
        ],
    )
    data = {**described_approval(approval), "arguments": arguments, "digest": approval.digest, "repeat": repeat}
    return told(text, approval=data)


def which_approval(verb: str, who: Asker, rows: list[Approval] | None = None) -> Answer:
    shown = [described_approval(row) for row in (pending_approvals(who)[:SHOWN] if rows is None else rows)]
    text = lines(f"Nothing was decided. Say which one: `{verb} <id>`.", [said_of_approval(row) for row in shown])
    return told(text if shown else "Nothing waits for a decision.", approvals=shown)


def switch_agent(request: Request, who: Asker) -> Answer | None:
    """Switches an agent off or on, stops or starts what it does by itself. None if something else is said, too.

    A trigger can be started as well: of two things with one name neither is.
    """
    names = names_in(request, who.by, ["agent", "trigger"] if request.said & _STARTS else ["agent"])
    rest = request.without(names.places)
    verb = next((verb for verb, known in _SWITCHES.items() if language.is_covered(rest, known)), None)
    agents: list[Agent] = names.of("agent")
    if verb is None or (not agents and not rest.said & language.AGENT):
        return None
    if len(agents) != 1 or names.is_ambiguous or names.of("trigger"):
        return which_agent(verb, who, agents)
    if verb in _NEEDS_START:  # what it does, or its triggers, begin again
        demand_start(who.by)
    if who.dry:
        if verb == "start":
            demand_startable(agents[0])
        return would(_WOULD[verb].format(agents[0].name), agent=str(agents[0].public_id))
    return _SWITCHED[verb](agents[0], who)


def which_agent(verb: str, who: Asker, agents: list[Agent], because: str = "No agent was changed.") -> Answer:
    known = agents or rows_of("agent", who.by)
    said = [f"{row.name} ({'on' if row.enabled else 'off'})" for row in known]
    head = f"{because} Say which one: `{verb} agent <name>`."
    data = [{"id": str(row.public_id), "name": row.name, "enabled": row.enabled} for row in known]
    return told(lines(head, said) if known else f"{because} You have no agents.", agents=data)


def _enable(agent: Agent, who: Asker) -> Answer:
    agent = agent_edit(agent=agent, by=who.by, now=who.now, enabled=True)
    return done(f"Agent {agent.name} is on.", agent=str(agent.public_id), enabled=True)


def _disable(agent: Agent, who: Asker) -> Answer:
    agent = agent_edit(agent=agent, by=who.by, now=who.now, enabled=False)
    text = f"Agent {agent.name} is off: it takes no new work, and what it does by itself has ended. "
    more = "Runs of its triggers and its chats that are under way go on until they are halted."
    return done(text + more, agent=str(agent.public_id), enabled=False)


def _start(agent: Agent, who: Asker) -> Answer:
    agent_start(agent=agent, by=who.by, now=who.now)
    return done(f"Agent {agent.name} works by itself now.", agent=str(agent.public_id))


def _stop(agent: Agent, who: Asker) -> Answer:
    if agent_is_going(agent):
        agent_stop(agent=agent, by=who.by, now=who.now)
        return done(f"Agent {agent.name} is asked to stop what it does by itself.", agent=str(agent.public_id))
    text = (
        f"Nothing was done: agent {agent.name} does nothing by itself at the moment. `pause agent {agent.name}` "
        "switches it off; `halt session <id>` ends a run of it."
    )
    return told(text, agent=str(agent.public_id))


_SWITCHES: Final = {
    "pause": language.PAUSE,
    "resume": language.RESUME,
    "stop": language.STOP,
    "start": language.START,
}
_STARTS: Final = language.START[0].needs[0]
_NEEDS_START: Final = frozenset({"resume", "start"})
_WOULD: Final = {
    "pause": "Switches agent {} off.",
    "resume": "Switches agent {} on.",
    "stop": "Stops what agent {} does by itself.",
    "start": "Lets agent {} work by itself.",
}
_SWITCHED: Final = {"pause": _disable, "resume": _enable, "stop": _stop, "start": _start}


# --- Fast paths that start work: a run now, and a schedule, which is a draft until its owner switches it on ---


GO_BY: Final = ("playbook", "skill")
READ: Final = ("collection", "document")
_NAME_CHARS: Final = 120
_MOST_NAMES: Final = 8


def run(request: Request, who: Asker) -> Answer | None:
    """Runs a trigger, or a playbook or skill over a collection or a document. None if that is not what is said."""
    names = names_in(request, who.by, ["trigger", *GO_BY, *READ])
    rest = request.without(names.places)
    runs, checks = language.is_covered(rest, language.RUN), language.is_covered(rest, language.CHECK)
    named = names.of("trigger", *GO_BY)
    runs = runs or (request.words[0].said == "trigger" and language.is_covered(rest, language.TRIGGER) and bool(named))
    if not (runs or (checks and names.of(*GO_BY) and names.of(*READ))):
        return None
    if not named:
        nouns = sorted(rest.said & {"trigger", "playbook", "skill"})
        return choices(nouns[0], who) if nouns and not names.found else None
    if names.is_ambiguous or len(named) > 1 or len(names.of(*READ)) > 1:
        return which_is_meant(names)
    return run_named(names, who)


def run_named(names: Names, who: Asker) -> Answer:
    """The run that the names stand for: exactly one thing to go by and, unless it is a trigger, one to read."""
    demand_start(who.by)
    triggers, by, read = names.of("trigger"), names.of(*GO_BY), names.of(*READ)
    if who.dry and (triggers or read):
        demand_run(owner=who.by, agent=who.agent, trigger=next(iter(triggers), None))
        return would(f"Runs {' on '.join(row.name for row in (*triggers, *by, *read))} now.", Kind.SESSION)
    asked: dict[str, Any] = {"owner": who.by, "by": who.by, "now": who.now, "agent": who.agent}
    cap = who.max_cost_usd
    if triggers:
        return _started(run_now(RunSpec(max_cost_usd=cap), trigger=triggers[0], **asked), triggers[0])
    if not read:
        return told(
            f"Nothing was started: say what {by[0].name} is to read, a collection or a document.", missing=["read"]
        )
    chosen = {_kind(by[0]): by[0], _kind(read[0]): read[0]}
    return _started(run_now(RunSpec.of(**chosen, max_cost_usd=cap), **asked), by[0], read[0])


def run_towards(who: Asker, names: Names) -> Answer:
    """A run that works towards the goal in the asker's own words, with what they name."""
    demand_start(who.by)
    by, read = names.of(*GO_BY), names.of(*READ)
    given = [*by, *(read if len(read) == 1 else [])]
    chosen = {_kind(row): row for row in given}
    if who.dry:
        demand_run(owner=who.by, agent=who.agent)
        return would("Starts a session that works towards this goal, step by step.", Kind.SESSION)
    session = run_now(RunSpec.of(goal=who.text, **chosen), owner=who.by, by=who.by, now=who.now, agent=who.agent)
    said = [f"Session {session.public_id} works towards this goal, step by step."]
    said += [f"It is given {' and '.join(row.name for row in given)}."] if given else []
    if len(read) > 1:
        said.append(f"It can look into {', '.join(row.name for row in read)} with skills: one at most is read at once.")
    return at_work(session, " ".join(said))


def _started(session: Any, *rows: Any) -> Answer:
    what = " on ".join(row.name for row in rows)
    return at_work(session, f"{what} runs now, as session {session.public_id}.")


def which_is_meant(names: Names) -> Answer:
    pairs = names.candidates or [(_kind(row), row) for row in names.of("trigger", *GO_BY, *READ)]
    said = [f"{kind} {row.name}, {row.public_id}" for kind, row in pairs]
    data = [{"kind": kind, "name": row.name, "id": str(row.public_id)} for kind, row in pairs]
    return told(
        lines("Nothing was done: more than one thing could be meant. Name one, or give its id.", said), choices=data
    )


def choices(kind: str, who: Asker) -> Answer:
    rows = rows_of(kind, who.by)
    data = [{"kind": kind, "name": row.name, "id": str(row.public_id)} for row in rows]
    head = f"Nothing was started. Say which {kind} is to run."
    return told(lines(head, [row.name for row in rows]) if rows else f"There is no {kind} to run.", choices=data)


def _kind(row: Any) -> str:
    return {PromptSkill: "skill"}.get(type(row), type(row).__name__.lower())


def schedule(request: Request, who: Asker) -> Answer | None:
    """Drafts a schedule when the request says nothing but what to run, on what, and how often."""
    when = when_of(request.text)
    if when is None:
        return None
    timed = frozenset(
        place
        for place, word in enumerate(request.words)
        if any(start <= word.start and word.end <= end for start, end in when.spans)
    )
    names = names_in(request, who.by, [*GO_BY, "collection"])
    free = Names(tuple(named for named in names.found if not named.places & timed))
    rest = request.without(timed | free.places)
    if not language.is_covered(rest, language.SCHEDULE) or (rest.said & language.READING and not free.found):
        return None
    return draft(when, free, who)


@dataclass(frozen=True)
class _Parts:
    """What a schedule goes by and what it reads. `assumed` are those that nobody named: the person has no others."""

    by: list[Any]
    collections: list[Collection]
    assumed: tuple[Any, ...] = ()


def draft(when: When | None, names: Names, who: Asker, said: frozenset[str] = frozenset()) -> Answer:
    """A schedule that is switched off, or what is missing for one. It fires when its owner has switched it on.

    What is not named is taken from what the person has, if there is only one; the draft says so. `said` are words that
    are no names: where they speak of a playbook, a collection or a run, something was named that is not there.
    """
    parts = _parts(names, who, said)
    if names.is_ambiguous or len(parts.by) > 1 or len(parts.collections) > 1:
        return which_is_meant(names)
    missing = _missing(when, parts, who)
    if missing or when is None:
        head = "No schedule was drafted. It still needs:"
        often = when.said if when and not when.fault else "every 6 hours"
        by, read = (rows[0].name if rows else "<name>" for rows in (parts.by, parts.collections))
        kind = _kind(parts.by[0]) if parts.by else "playbook"
        example = f"For example: {often} run {kind} {by} on collection {read}."
        return told(f"{lines(head, list(missing.values()))}\n{example}", missing=list(missing))
    demand_start(who.by)
    [by], [collection] = parts.by, parts.collections
    bound = {"agent": who.agent, "collection": collection, _kind(by): by}
    known = _same_draft(when, bound, who)
    if who.dry and known is not None:
        return drafted(f"Was drafted before, and is switched off: {known.name}.", trigger=str(known.public_id))
    if who.dry:
        return would(f"Drafts a schedule, switched off: {by.name} on {collection.name}, {when.said}.", Kind.DRAFT)
    trigger = known or trigger_create(
        owner=who.by,
        kind="schedule",
        name=one_line(f"{by.name} on {collection.name}, {when.said}", _NAME_CHARS),
        by=who.by,
        now=who.now,
        cron=when.cron,
        zone="UTC",
        enabled=False,
        **bound,
    )
    return _drafted(
        trigger, when, parts, "Drafted before, and still switched off" if known else "Drafted, and switched off"
    )


def _same_draft(when: When, bound: dict[str, Any], who: Asker) -> Trigger | None:
    """A schedule of the person's that was drafted in the same way, never switched on and never run."""
    like = {"playbook": None, "skill": None, "project": None, "max_cost_usd": None, **bound}
    same = {f"{name}__isnull" if row is None else name: True if row is None else row for name, row in like.items()}
    rows = Trigger.objects.filter(owner=who.by, kind="schedule", cron=when.cron, zone="UTC", query="", **same)
    unused = rows.filter(enabled=False, paused_at__isnull=True, deleted_at__isnull=True, sessions__isnull=True)
    return unused.order_by("pk").first()


def _parts(names: Names, who: Asker, said: frozenset[str]) -> _Parts:
    by, collections = names.of(*GO_BY), names.of("collection")
    playbooks = [] if by or said & (language.STARTING | {"playbook", "skill"}) else rows_of("playbook", who.by)
    skills = [] if by or playbooks or said & (language.STARTING | {"playbook", "skill"}) else rows_of("skill", who.by)
    known = (
        [] if collections or said & (language.STARTING | {"collection", "folder"}) else rows_of("collection", who.by)
    )
    assumed = tuple(rows[0] for rows in (playbooks, skills, known) if len(rows) == 1)
    goes_by = [row for row in assumed if not isinstance(row, Collection)]
    return _Parts(by or goes_by, collections or [row for row in assumed if isinstance(row, Collection)], assumed)


def _missing(when: When | None, parts: _Parts, who: Asker) -> dict[str, str]:
    missing = {}
    if when is None:
        missing["when"] = "a time that comes back, such as every 6 hours, or weekdays at 7:00"
    elif when.fault:
        missing["when"] = f"another time: {when.fault}"
    if not parts.by:
        missing["playbook"] = f"the name of one of your playbooks{_known('playbook', who)}, or of a skill"
    if not parts.collections:
        missing["collection"] = f"the name of one of your collections{_known('collection', who)}"
    return missing


def _known(kind: str, who: Asker) -> str:
    names = [row.name for row in rows_of(kind, who.by)]
    more = [] if len(names) <= _MOST_NAMES else ["…"]
    return f" ({', '.join([*names[:_MOST_NAMES], *more]) or 'you have none'})"


def _drafted(trigger: Trigger, when: When, parts: _Parts, how: str) -> Answer:
    [by], [collection] = parts.by, parts.collections
    text = (
        f"{how}: {by.name} on {collection.name}, {when.said} ({when.cron} in UTC). It fires only "
        f"after you have switched it on: on its page in the admin, or PATCH /api/v1/triggers/{trigger.public_id} with "
        '{"enabled": true}.'
    )
    if parts.assumed:
        named = " and ".join(f"{_kind(row)} {row.name}" for row in parts.assumed)
        text += f" You did not name {named}: you have no other. Runs go by a playbook or a skill, not by these words."
    return drafted(text, trigger=str(trigger.public_id), name=trigger.name, cron=trigger.cron, zone=trigger.zone)
