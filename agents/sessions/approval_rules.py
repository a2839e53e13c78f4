"""Approval rules as rows: which hold for a call, how people write them, and what they would have done to past calls.

A rule never changes: each change is a version of its own, in the audit log with its digest. Whoever adds a rule that
allows, or takes one back that asks or denies, loosens what binds agents.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q

from agents.enums import RuleEffect, ToolIntent
from agents.exceptions import Invalid, NotAllowed
from agents.models import AgentSession, Approval, ApprovalRule, ToolCall
from agents.people.access import actor_of, bound_owners, record_act, require_may_loosen
from agents.policy.consent import ARGUMENTS, SKILL
from agents.policy.rules import Condition, Facts, Rule, Verdict, fits, judged, rule_problem
from agents.sessions.second_eyes import approvers_of
from agents.skills.registry import installed_skills
from audit import recorder
from audit.models import SYSTEM_CHAIN
from audit.rows import canonical

PERMISSION: Final = "agents.change_approvalrule"
FIELDS: Final = ("name", "effect", "role", "agent", "skill", "conditions", "min_cost_usd", "destinations", "enabled")
LOOSENED: Final = "the approval rules"


def rule_of(row: ApprovalRule) -> Rule:
    """Return a row as what is judged by."""
    return Rule(
        effect=RuleEffect(row.effect),
        role=row.role,
        agent=str(row.agent_id or ""),
        skill=row.skill,
        conditions=tuple(Condition(**condition) for condition in row.conditions),
        min_cost_usd=row.min_cost_usd,
        destinations=tuple(row.destinations),
        id=str(row.public_id),
        name=row.name,
        version=row.version,
    )


def verdict_on(session: AgentSession, facts: Facts) -> Verdict | None:
    """Return what the rules in force say about a call; None if none of them fits."""
    rows = ApprovalRule.objects.current().filter(
        Q(agent__isnull=True) | Q(agent=session.agent_id), enabled=True, skill__in=["", facts.skill]
    )
    return judged(map(rule_of, rows.order_by("pk")), facts)


def named_rules(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the rules of a verdict as an approval stores them."""
    return [{"id": rule.id, "version": rule.version, "name": rule.name, "role": rule.role} for rule in verdict.rules]


def roles_without_approvers() -> list[str]:
    """Return the roles that rules in force ask, and of whom nobody may decide any more."""
    rows = ApprovalRule.objects.current().filter(enabled=True).exclude(role="")
    roles = rows.order_by("role").values_list("role", flat=True).distinct()
    return [role for role in roles if not approvers_of(role).exists()]


# --- Writing ---


@transaction.atomic
def rule_create(*, by: User | None, now: datetime, **fields: Any) -> ApprovalRule:
    """Write a new rule. One that asks or denies is on unless it is said to be off; one that allows is off."""
    by_default = {"enabled": fields.get("effect") != RuleEffect.ALLOW}
    row = ApprovalRule(**{**by_default, **fields}, created_by=by, created_at=now)
    return _write(row, None, by=by, now=now)


@transaction.atomic
def rule_change(rule: ApprovalRule, *, by: User | None, now: datetime, **fields: Any) -> ApprovalRule:
    """Write the next version of a rule."""
    before = _lock(rule)
    kept = {name: getattr(before, name) for name in FIELDS}
    row = ApprovalRule(
        **{**kept, **fields}, public_id=before.public_id, version=before.version + 1, created_by=by, created_at=now
    )
    return _write(row, before, by=by, now=now)


@transaction.atomic
def rule_delete(rule: ApprovalRule, *, by: User | None, now: datetime) -> None:
    """Take a rule out of force for good. Its versions stay."""
    before = _lock(rule)
    _require_allowed(by, before, None)
    ApprovalRule.objects.filter(pk=before.pk).update(replaced_at=now)
    _record("approval_rule.deleted", before, by=by, now=now)


def _lock(rule: ApprovalRule) -> ApprovalRule:
    row = ApprovalRule.objects.select_for_update(of=("self",)).filter(pk=rule.pk, replaced_at__isnull=True).first()
    if row is None:
        raise Invalid("The rule was changed or deleted meanwhile; look at it again.")
    return row


def _write(row: ApprovalRule, before: ApprovalRule | None, *, by: User | None, now: datetime) -> ApprovalRule:
    _require_valid(row)
    _require_allowed(by, before, row)
    if before is not None:
        ApprovalRule.objects.filter(pk=before.pk).update(replaced_at=now)
    row.save(force_insert=True)
    _record("approval_rule.changed" if before else "approval_rule.created", row, by=by, now=now)
    return row


def _require_valid(row: ApprovalRule) -> None:
    if not row.name.strip():
        raise Invalid("A rule needs a name.")
    if row.effect not in RuleEffect.values:
        raise Invalid(f"{row.effect!r} is no effect; there are {', '.join(RuleEffect.values)}.")
    try:
        rule = rule_of(row)
    except TypeError:
        raise Invalid("A condition has argument, operator and value, each as text.") from None
    if problem := rule_problem(rule):
        raise Invalid(problem)
    if row.role and not Group.objects.filter(name=row.role).exists():
        raise Invalid(f"There is no role {row.role!r}.")
    if row.role and row.enabled and not approvers_of(row.role).exists():
        raise Invalid(
            f"Nobody of the role {row.role} may decide on approvals, so the calls would wait for nobody. "
            "Give somebody both roles first, or leave the rule off."
        )
    if row.skill and row.skill not in installed_skills():
        raise Invalid(f"There is no skill {row.skill!r}. `manage.py skills` lists those that are installed.")


def _require_allowed(by: User | None, before: ApprovalRule | None, after: ApprovalRule | None) -> None:
    """Adding a rule that asks or denies, and taking back one that allows, is free to whoever writes rules."""
    require_writer(by)
    takes_back = before is not None and before.enabled and before.effect != RuleEffect.ALLOW
    allows = after is not None and after.enabled and after.effect == RuleEffect.ALLOW
    owners = [row.agent.owner_id if row.agent else None for row in (before, after) if row is not None]
    bound = bound_owners() if None in owners else owners
    require_may_loosen(by, [LOOSENED] if takes_back or allows else [], bound=bound)


def require_writer(by: User | None) -> None:
    if by is not None and not (by.is_active and by.has_perm(PERMISSION)):
        raise NotAllowed(f"{by} may not write approval rules: the permission {PERMISSION} is missing.")


def _record(kind: str, row: ApprovalRule, *, by: User | None, now: datetime) -> None:
    content = {name: str(getattr(row, name)) for name in FIELDS}
    recorder.append(
        SYSTEM_CHAIN,
        kind,
        now=now,
        actor=actor_of(by),
        subject=f"approval_rule:{row.public_id}",
        details={
            "rule_id": str(row.public_id),
            "version": row.version,
            "effect": row.effect,
            "enabled": row.enabled,
            "digest": hashlib.sha256(canonical(content).encode("ascii")).hexdigest(),
        },
    )


# --- Trying a rule on past calls ---


MOST_CALLS: Final = 20_000
MOST_LISTED: Final = 50
MOST_DAYS: Final = 90
_CHUNK: Final = 500


@dataclass(frozen=True)
class Tried:
    """The result of a try: calls looked at, calls that fit, and those of them that were asked about anyway."""

    calls: int
    fitting: int
    asked: int
    listed: tuple[ToolCall, ...]
    is_all: bool  # whether all calls of the time were looked at


def rule_try(row: ApprovalRule, *, by: User | None, now: datetime, days: int = 30) -> Tried:
    """Judge the calls of the last days by this rule alone, whether it is enabled or not. It is recorded: it reads."""
    require_writer(by)
    _require_valid(row)
    if not 1 <= days <= MOST_DAYS:
        raise Invalid(f"A rule is tried on 1 to {MOST_DAYS} days, not {days}.")
    rule = rule_of(row)
    found = ToolCall.objects.filter(intent=ToolIntent.RUN_SKILL, started_at__gt=now - timedelta(days=days))
    if rule.skill:
        found = found.filter(name=rule.skill)
    if row.agent_id:
        found = found.filter(session__agent=row.agent_id)
    calls = list(found.order_by("-started_at", "-pk").values_list("pk", flat=True)[: MOST_CALLS + 1])
    fitting = [call for call in _calls(calls[:MOST_CALLS]) if (facts := facts_of(call)) and fits(rule, facts)]
    places = {(call.session_id, call.key) for call in fitting}
    asked = set(_asked(places))
    looked_at = min(len(calls), MOST_CALLS)
    record_act("approval_rule.tried", by=by, now=now, days=days, calls=looked_at, fitting=len(fitting))
    return Tried(
        calls=looked_at,
        fitting=len(fitting),
        asked=len(places & asked),
        listed=tuple(fitting[:MOST_LISTED]),
        is_all=len(calls) <= MOST_CALLS,
    )


def _calls(pks: Sequence[int]) -> Iterator[ToolCall]:
    for start in range(0, len(pks), _CHUNK):
        rows = ToolCall.objects.filter(pk__in=pks[start : start + _CHUNK]).select_related("session")
        yield from rows.order_by("-started_at", "-pk")


def _asked(places: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    sessions = sorted({session for session, _ in places})
    for start in range(0, len(sessions), _CHUNK):
        rows = Approval.objects.filter(session__in=sessions[start : start + _CHUNK])
        yield from rows.values_list("session_id", "call_key")


def facts_of(call: ToolCall) -> Facts | None:
    """Return what rules know of a call in the journal; None if it was none of a skill."""
    return skill_facts(call.arguments, agent_id=call.session.agent_id, cost_usd=call.approved_usd)


def skill_facts(arguments: Mapping[str, Any], *, agent_id: int | None, cost_usd: Any) -> Facts | None:
    skill, given = arguments.get(SKILL), arguments.get(ARGUMENTS)
    if not isinstance(skill, str) or not isinstance(given, Mapping):
        return None
    declared = installed_skills().get(skill)
    return Facts(str(agent_id or ""), skill, given, cost_usd, declared.addresses if declared else ())
