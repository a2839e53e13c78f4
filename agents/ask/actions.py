"""Fast paths that pull a lever: halt a session, decide on an approval, pause, resume, start or stop an agent.

A lever is pulled only when the request names exactly one thing; otherwise the answer lists what could be meant. Whether
the person may is judged by the service that does it, which leaves the record.
"""

import json
from typing import Final

from agents.ask import intents
from agents.ask.ids import rows_by_id, short
from agents.ask.language import Request
from agents.ask.lookups import described, own_sessions, said_of, under_way
from agents.ask.naming import Answer, Asker, done, lines, told, would
from agents.ask.router_naming import names_in, rows_of
from agents.ask.waits import SHOWN, described_approval, pending_approvals, reachable_approvals, said_of_approval
from agents.exceptions import NotFound
from agents.models import Agent, AgentSession, Approval
from agents.people.access import demand_start, row_view
from agents.roster.agents import agent_edit
from agents.roster.lifecycles import agent_is_going, agent_start, agent_stop, demand_startable
from agents.sessions.approvals import approval_approve, approval_reject, demand_decidable
from agents.sessions.halts import HaltAnswer, session_halt
from agents.text.clean import one_line
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
    verb = "approve" if request.said & intents.YES else "reject"
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
    verb = next((verb for verb, known in _SWITCHES.items() if intents.is_covered(rest, known)), None)
    agents: list[Agent] = names.of("agent")
    if verb is None or (not agents and not rest.said & intents.AGENT):
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
    "pause": intents.PAUSE,
    "resume": intents.RESUME,
    "stop": intents.STOP,
    "start": intents.START,
}
_STARTS: Final = intents.START[0].needs[0]
_NEEDS_START: Final = frozenset({"resume", "start"})
_WOULD: Final = {
    "pause": "Switches agent {} off.",
    "resume": "Switches agent {} on.",
    "stop": "Stops what agent {} does by itself.",
    "start": "Lets agent {} work by itself.",
}
_SWITCHED: Final = {"pause": _disable, "resume": _enable, "stop": _stop, "start": _start}
