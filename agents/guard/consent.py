"""Approvals for calls: none needed, a ticket to use, or a refusal.

The guard asks in the transaction that authorises the call, when it holds every lock that it has to wait for: rules,
the agent's mode, the skill's settings and tickets are read as they are then, and the ticket is used there.
"""

from collections.abc import Callable, Collection
from typing import Final

from django.db import transaction

from agents.enums import ApprovalMode, ApprovalStatus, Brake, Level, Outcome, Risk, RuleEffect
from agents.exceptions import TicketRefused
from agents.guard.calls import Call, skill_audit
from agents.guard.intents import tool_for
from agents.guard.refusals import refuse_call
from agents.guard.tools import BadParams
from agents.ledger.boundary import read_for_update
from agents.ledger.prices import estimate_tool_cost
from agents.models import Agent, AgentSession, Approval
from agents.people.ceilings import default_mode_of
from agents.policy.brakes import contextual
from agents.policy.consent import ARGUMENTS, SKILL, needs_person
from agents.policy.rules import Verdict
from agents.policy.transitions import TERMINAL
from agents.sessions.approval_rules import named_rules, skill_facts, verdict_on
from agents.sessions.approvals import (
    LIVE,
    approval_binds,
    approval_for,
    approval_refused_before,
    approval_request,
    ticket_cancel,
    ticket_consume,
)
from agents.skills.registry import skill_count_refuse, skill_count_take, skill_named, skill_settings_hold
from agents.skills.risk import RiskAssessor
from agents.types import ZERO, Capability, ToolResult
from audit import recorder


def denied(
    call: Call, detail: str, error: str, *, brake: Brake = Brake.APPROVAL, outcome: Outcome = Outcome.DENIED
) -> ToolResult:
    """Record a refusal that the run can go on from, and return it as the call's result."""
    result = ToolResult(ZERO, None, outcome, error=error, detail=detail)
    with transaction.atomic():
        refuse_call(
            call.session,
            call.label,
            call.phase,
            outcome,
            now=call.now,
            brake=brake,
            over=read_for_update(call.session).boundary.status in TERMINAL,
            skill_call=skill_audit(call, result, now=call.now),
            detail=detail,
        )
    return result


def as_set_now(call: Call) -> Call | ToolResult:
    """Return the call as the settings of its skill are now: operators may have changed them since it was planned."""
    pace = call.tool.pace
    if pace is None or skill_settings_hold(pace):
        return call
    try:
        tool = tool_for(call.intent, call.arguments)
    except BadParams as error:  # it is switched off
        return denied(call, "skill_disabled", str(error), brake=Brake.SKILL)
    return call.but(tool=tool, risk=call.risk or _risk(call, tool.capability.level))


def _risk(call: Call, level: Level) -> Risk | None:
    skill = skill_named(call.arguments[SKILL])
    return RiskAssessor().grade(skill, level, call.arguments[ARGUMENTS]) if skill else None


def consent(call: Call) -> Approval | ToolResult | None:
    """Return None if the call needs no approval, an approved ticket, or the refusal while there is none.

    The caller holds the session's row.
    """
    ruled = _verdict(call) if call.tool.is_skill else None
    if ruled is not None and ruled.effect == RuleEffect.DENY:
        return _denied_by(ruled, call)
    if _asks(call, ruled) or _was_asked(call):
        return _ticket(call, ruled if ruled and ruled.effect == RuleEffect.ASK else None)
    _note_rules(call, ruled)
    return None


def is_ruled_out(call: Call) -> bool:
    """Return whether the call is refused in any case, so that no prediction is worth its price.

    It decides and records nothing; the guard does when the call is made.
    """
    if call.holds_a_secret or contextual(call.intent, call.phase) is not None:
        return True
    ruled = _verdict(call)
    is_denied = ruled is not None and ruled.effect == RuleEffect.DENY
    return is_denied or approval_refused_before(call.session, call.signature) is not None


def may_pass_unasked(capability: Capability) -> bool:
    """Return whether no mode of an agent makes a call of this capability wait for a person."""
    return capability.level.rank < Level.CONTROLLED.rank and not capability.requires_approval


def _asks(call: Call, ruled: Verdict | None) -> bool:
    """Return whether a person has to decide, by the call, the agent's mode as it is now, and the rules."""
    may_ask = call.capability.level.rank >= Level.CONTROLLED.rank or call.risk is not None
    mode, waived, waived_skills = _mode(call.session) if may_ask else (ApprovalMode.SEMI, False, ())
    return needs_person(
        call.capability,
        mode=mode,
        risk=call.risk,
        # A superuser can waive the risk of a skill's call in mode auto; never a review that somebody asked for.
        allow_high_risk=waived and mode == ApprovalMode.AUTO and call.tool.is_skill,
        waived_skills=waived_skills if call.tool.is_skill else (),
        rule=ruled.effect if ruled else None,
    )


def _was_asked(call: Call) -> bool:
    """Return whether a person decides or has decided about this call, although nobody would be asked now.

    Rules and modes may have changed since: that takes back neither a denial nor a change of the arguments.
    """
    if not call.tool.is_skill and call.risk is None and may_pass_unasked(call.capability):
        return False
    return approval_binds(call.session, call.key, call.signature)


def _ticket(call: Call, asking: Verdict | None) -> Approval | ToolResult:
    known = approval_for(call.session, call.key)
    is_enough = known is not None and not _is_outranked(known, call, asking)
    ticket = known if known is not None and is_enough else _ask(call, asking, instead_of=known)
    if isinstance(ticket, ToolResult):
        return ticket
    if call.digest != (ticket.original_digest or ticket.digest):
        return denied(call, "ticket_refused", "The approval at this place of the run was asked for another call.")
    if ticket.status == ApprovalStatus.APPROVED:
        return ticket
    if ticket.status == ApprovalStatus.PENDING:
        return ToolResult(ZERO, {"approval_id": str(ticket.public_id)}, Outcome.APPROVAL_PENDING)
    return denied(call, str(ticket.status), _refusal(ticket))


_REFUSALS: Final = {
    ApprovalStatus.REJECTED: "A person did not allow this call",
    ApprovalStatus.EXPIRED: "The approval of this call expired: nobody decided, or the call was not made, in time",
    ApprovalStatus.CANCELLED: "The approval of this call was cancelled before it was used",
}


def _refusal(ticket: Approval) -> str:
    """Say why a ticket allows nothing, as its status is: only people deny."""
    words = _REFUSALS[ApprovalStatus(ticket.status)]
    is_denied = ticket.status == ApprovalStatus.REJECTED
    return f"{words}: {ticket.note or ticket.status_text}" if is_denied else f"{words}."


def refuse_edited(call: Call, ticket: Approval) -> ToolResult | None:
    """Judge a call by the arguments of its approver: rules and levels hold for these as for those of the agent."""
    ruled = _verdict(call) if call.tool.is_skill else None
    if ruled is not None and ruled.effect == RuleEffect.DENY:
        return _denied_by(ruled, call)
    if _is_outranked(ticket, call, ruled if ruled and ruled.effect == RuleEffect.ASK else None):
        return denied(call, "ticket_refused", "With the approver's changes the call needs the approval of others.")
    return None


def _verdict(call: Call) -> Verdict | None:
    """Return what the rules in force now say about the call."""
    cost = estimate_tool_cost(call.intent, call.priced_by, now=call.now)
    facts = skill_facts(call.arguments, agent_id=call.session.agent_id, cost_usd=cost)
    return verdict_on(call.session, facts) if facts else None


def _denied_by(ruled: Verdict, call: Call) -> ToolResult:
    return denied(call, "rule", f"An approval rule denies this call: {ruled.rules[0].name}", brake=Brake.RULE)


def _note_rules(call: Call, ruled: Verdict | None) -> None:
    """Record the rules that allow a call."""
    for rule in ruled.rules if ruled else ():
        recorder.append(
            call.session.chain,
            "approval_rule.allowed",
            now=call.now,
            subject=f"approval_rule:{rule.id}",
            details={
                "rule_id": rule.id,
                "version": rule.version,
                "action": call.capability.name,
                "call_key": call.key,
                "digest": call.digest,
            },
        )


def use_ticket(call: Call) -> ToolResult | None:
    """Count the call and use its ticket, both or neither; else return the refusal. Runs in the authorising block."""
    if call.ticket is None:
        return _limited(call, skill_count_take)
    try:
        with transaction.atomic():
            limited = _limited(call, skill_count_take)
            if limited is None and not ticket_consume(call.ticket, digest=call.digest, now=call.now):
                raise TicketRefused("The approval was used, has expired, or was given for another call.")
    except TicketRefused as refused:
        return denied(call, "ticket_refused", str(refused))
    return limited


def _limited(call: Call, asked: Callable[..., str]) -> ToolResult | None:
    why = asked(call.tool.pace, now=call.now) if call.tool.pace else ""
    return denied(call, "rate_limited", why, brake=Brake.RATE, outcome=Outcome.RATE_LIMITED) if why else None


def _mode(session: AgentSession) -> tuple[str, bool, Collection[str]]:
    """Return the agent's mode and what is waived for it, read now: an operator may have tightened them.

    A session whose agent was deleted asks for everything; one without an agent asks as its owner's ceiling says.
    """
    if session.agent_id is None:
        return default_mode_of(session.owner_id, ApprovalMode.SEMI), False, ()
    row = Agent.objects.filter(pk=session.agent_id).values_list("mode", "allow_high_risk", "waived_skills").first()
    return row or (ApprovalMode.MANUAL, False, ())


def _ask(call: Call, asking: Verdict | None, *, instead_of: Approval | None) -> Approval | ToolResult:
    if instead_of is not None:
        ticket_cancel(instead_of, now=call.now, cause="level_raised", actor="system")
    if (limited := _limited(call, skill_count_refuse)) is not None:
        return limited
    if (before := approval_refused_before(call.session, call.signature)) is not None:
        return denied(call, "refused_before", _refusal(before))
    asked = approval_request(call.session, call, now=call.now, rules=named_rules(asking) if asking else [])
    if isinstance(asked, str):
        return denied(call, asked, f"No approval can be asked for: {asked.replace('_', ' ')}.")
    if asked.status == ApprovalStatus.PENDING:
        waiting, asked_for = Outcome.APPROVAL_PENDING, str(asked.public_id)
        refuse_call(call.session, call.label, call.phase, waiting, now=call.now, brake=None, approval_id=asked_for)
    return asked


def _is_outranked(ticket: Approval, call: Call, asking: Verdict | None) -> bool:
    """Return whether a live ticket is for a lower level than the call has now, or lacks a role that a rule asks for.

    So is one that a standing approval decided, if a rule asks by now: no person has seen that call.
    """
    if ticket.status not in LIVE:
        return False
    if asking and ticket.standing_id is not None and not ticket.votes.exists():
        return True
    wanted, asked = set(asking.roles if asking else ()), {rule["role"] for rule in ticket.rules}
    return Level(ticket.level).rank < call.capability.level.rank or not wanted <= asked
