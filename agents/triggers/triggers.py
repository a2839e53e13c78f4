"""Triggers: create, edit, pause, delete, and the rules for their fields. firing.py decides what they start.

A deleted trigger stays as a row, for the sessions that name it; nobody can change it or make it fire.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db import models, transaction

from agents.enums import BudgetScope, EventSeverity, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.ledger.budgets import budget_set_cap
from agents.ledger.trigger_health import BY_HAND, trigger_lock, trigger_record, trigger_stop
from agents.models import Agent, Collection, Playbook, Project, PromptSkill, Trigger
from agents.people.access import actor_of, require_access
from agents.policy import schedule
from agents.policy.costs import MOST_USD
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.policy.run_spec import OPTIONS, QUERY_CHARS
from agents.text.clean import one_line
from agents.triggers.signing import OLD_SECRET_LASTS, secret_of
from audit.kinds import LABEL
from audit.redaction import redact

# --- Fields: every value is checked, and whatever a trigger binds to has to be its owner's ---
#
# Reads rows, writes none. Somebody else's project, collection, playbook or agent counts as not found.


CAP_PLACES: Final = Decimal("0.0001")
# `suggestion` starts nothing, so nobody can create a trigger of that kind.
KINDS: Final = (TriggerKind.WATCH, TriggerKind.SCHEDULE, TriggerKind.EVENT, TriggerKind.MANUAL)
_LONGEST_INPUT: Final = 10_000

Row = TypeVar("Row", bound=models.Model)
Check = Callable[[str, Any, int], Any]


def plain(name: str, value: object, limit: int) -> str:
    """Return one line of text without secrets. Too long is refused, not cut: rules compare character by character."""
    if not isinstance(value, str) or len(value) > _LONGEST_INPUT:
        raise Invalid(f"{name} must be text of at most {limit} characters.")
    text = one_line(redact(value), _LONGEST_INPUT)
    if len(text) > limit:
        raise Invalid(f"{name} has {len(text)} characters; at most {limit} are kept: shorten it.")
    return text


def checked_cap(name: str, value: object, owner_id: int = 0) -> Decimal | None:
    """Return an amount of 0 or more with at most four places, or None. Zero means zero, not unlimited."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise Invalid(f"{name} must be an amount of US dollars, not {value!r}.")
    cap = Decimal(value)
    if not cap.is_finite() or not 0 <= cap <= MOST_USD or cap != cap.quantize(CAP_PLACES):
        raise Invalid(f"{name} is {cap} USD; it must be 0 or more, with at most 4 places.")
    return cap


def require_owned(name: str, row: Row | None, owner_id: int) -> Row | None:
    """Return the row if it exists and is the owner's. A stranger's row counts as not found."""
    if row is None:
        return None
    mine: models.QuerySet[Row] = models.QuerySet(type(row)).filter(pk=row.pk, owner_id=owner_id)
    if any(field.name == "deleted_at" for field in row._meta.fields):
        mine = mine.filter(deleted_at__isnull=True)
    if not mine.exists():
        raise NotFound(f"There is no such {name}.")
    return row


def require_skill_enabled(name: str, skill: PromptSkill | None, owner_id: int = 0) -> PromptSkill | None:
    if skill is not None and not skill.enabled:
        raise Invalid(f"The {name} {skill.name} is switched off: switch it on, or choose another.")
    return skill


def _text(limit: int, *, needed: bool = False) -> Check:
    def check(name: str, value: Any, owner_id: int) -> str:
        text = plain(name, value, limit)
        if needed and not text:
            raise Invalid(f"A trigger needs a {name}.")
        return text

    return check


def _whole(least: int, most: int) -> Check:
    def check(name: str, value: Any, owner_id: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Invalid(f"{name} is {value!r}; it must be a whole number from {least} to {most}.")
        return value

    return check


def _flag(name: str, value: Any, owner_id: int) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{name} is {value!r}; it must be true or false.")
    return value


def _one_of(choices: Sequence[str]) -> Check:
    def check(name: str, value: Any, owner_id: int) -> str:
        if value not in choices:
            raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(choices)}.")
        return str(value)

    return check


def _settings(config: type[LoopConfig | GuardrailsConfig]) -> Check:
    """Check some settings of the step loop; the others come from the agent and the installation."""

    def check(name: str, value: Any, owner_id: int) -> dict[str, Any]:
        given = {} if value is None else value
        if not isinstance(given, Mapping):
            raise Invalid(f"{name} is {value!r}; it must be an object of settings, or empty.")
        try:
            config.merged(given)
        except ValueError as error:
            raise Invalid(f"{name}: {error}") from None
        return {key: str(said) if isinstance(said, Decimal) else said for key, said in given.items()}

    return check


def _owned(model: type[models.Model]) -> Check:
    def check(name: str, value: Any, owner_id: int) -> Any:
        if value is not None and not isinstance(value, model):
            raise Invalid(f"{name} is {value!r}; it must be one of the owner's.")
        return require_owned(name, value, owner_id)

    return check


def _skill(name: str, value: Any, owner_id: int) -> PromptSkill | None:
    if value is not None and not isinstance(value, PromptSkill):
        raise Invalid(f"{name} is {value!r}; it must be a skill that is loaded.")
    return require_skill_enabled(name, value)


def _option(each: Field[Any]) -> Check:
    """Return the check of an option of runs."""
    if choices := each.metadata["choices"]:
        return _one_of(choices.values)
    configs: dict[str, type[LoopConfig | GuardrailsConfig]] = {"loop": LoopConfig, "guardrails": GuardrailsConfig}
    return _settings(configs[each.name]) if each.name in configs else _flag


_ANY_KIND: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "name": _text(120, needed=True),
        "agent": _owned(Agent),
        "project": _owned(Project),
        "playbook": _owned(Playbook),
        "collection": _owned(Collection),
        "skill": _skill,
        "query": _text(QUERY_CHARS),
        **{each.name: _option(each) for each in OPTIONS},
        "enabled": _flag,
        "max_cost_usd": checked_cap,
        "max_cost_per_day_usd": checked_cap,
        "max_runs_per_hour": _whole(1, 10_000),
        "pause_after": _whole(0, 1_000),
    }
)
_ONE_KIND: Final[Mapping[str, Mapping[str, Check]]] = MappingProxyType(
    {
        TriggerKind.SCHEDULE: {
            "cron": _text(schedule.MAX_CHARS, needed=True),
            "zone": _text(64, needed=True),
            "catch_up_minutes": _whole(0, 525_600),
        },
        TriggerKind.EVENT: {
            "source": _text(120),
            "event_type": _text(120),
            "category": _text(120),
            "min_severity": _one_of(EventSeverity.values),
        },
    }
)
_ELSEWHERE: Final = frozenset(name for checks in _ONE_KIND.values() for name in checks)


def checked_fields(kind: str, given: Mapping[str, Any], *, owner_id: int) -> dict[str, Any]:
    """Return the fields as they are stored. A field that the kind does not use must be left at its default."""
    if kind not in KINDS:
        raise Invalid(f"{kind!r} is no kind of trigger; choose one of {', '.join(KINDS)}.")
    checks = {**_ANY_KIND, **_ONE_KIND.get(kind, {})}
    if unknown := sorted(given.keys() - checks.keys() - _ELSEWHERE):
        raise Invalid(f"A trigger has no {', '.join(unknown)}; it has {', '.join(sorted(checks))}.")
    unset = Trigger()
    for name in sorted(given.keys() - checks.keys()):
        if given[name] != getattr(unset, name):
            raise Invalid(f"{name} is of no use to a {kind}: leave it out.")
    return {name: checks[name](name, value, owner_id) for name, value in given.items() if name in checks}


def require_complete(trigger: Trigger) -> None:
    """Raise unless the trigger has what its kind needs.

    A watch needs a collection; a schedule needs a time, something to read and something to check it against.
    """
    if trigger.kind == TriggerKind.WATCH and trigger.collection_id is None:
        raise Invalid("A watch needs the collection that it is to watch.")
    if trigger.kind == TriggerKind.SCHEDULE:
        schedule.validate(trigger.cron, trigger.zone)
        if trigger.playbook_id is None and trigger.skill_id is None:
            raise Invalid("A schedule needs a playbook or a skill that its runs go by.")
        if trigger.collection_id is None and not trigger.query:
            raise Invalid("A schedule needs a collection or a query that its runs read.")


REASON_CHARS: Final = 24
_DAY_CAP: Final = "max_cost_per_day_usd"
_WHEN: Final = frozenset({"cron", "zone", "enabled"})


@transaction.atomic
def trigger_create(*, owner: User, kind: str, name: str, by: User | None, now: datetime, **fields: Any) -> Trigger:
    """Create a trigger. Everything it binds to has to be its owner's."""
    require_access(by, owner_id=owner.pk, permission="agents.add_trigger")
    given = checked_fields(kind, {"name": name, **fields}, owner_id=owner.pk)
    trigger = Trigger(owner=owner, kind=kind, edited_by=by, created_at=now, **given)
    require_complete(trigger)
    trigger.next_run_at = _next_run(trigger, now)
    trigger.save()
    agent_id = str(trigger.agent.public_id) if trigger.agent else None
    cap = _amount_text(trigger.max_cost_usd)
    trigger_record(
        trigger, "autonomous_trigger.created", now=now, by=by, kind=trigger.kind, cap_usd=cap, agent_id=agent_id
    )
    return trigger


@transaction.atomic
def trigger_edit(*, trigger: Trigger, by: User | None, now: datetime, **changes: Any) -> Trigger:
    """Change what differs, for sessions to come; active ones keep their spec. None clears a binding."""
    row = _own(trigger.pk, by)
    given = checked_fields(row.kind, changes, owner_id=row.owner_id)
    changed = {name: value for name, value in given.items() if getattr(row, name) != value}
    if not changed:
        return row
    if row.kind == TriggerKind.WATCH and "collection" in changed:
        raise Invalid("A watch keeps the collection that it was made for: make another watch for another collection.")
    old_cap = row.max_cost_usd
    row.edited_by = by
    for name, value in changed.items():
        setattr(row, name, value)
    require_complete(row)
    if changed.keys() & _WHEN:
        row.next_run_at = _next_run(row, now)
    row.save(update_fields=[*(changed.keys() - {_DAY_CAP}), "next_run_at", "edited_by"])
    if _DAY_CAP in changed:
        _set_day_cap(row, by=by, now=now)
    if "max_cost_usd" in changed:
        _record_cap(row, old_cap, by=by, now=now)
    trigger_record(row, "autonomous_trigger.edited", now=now, by=by, fields=sorted(changed))
    return row


@transaction.atomic
def trigger_delete(*, trigger: Trigger, by: User | None, now: datetime) -> Trigger:
    """Delete a trigger for good. Its sessions stay, and go on."""
    row = _own(trigger.pk, by, verb="delete")
    row.deleted_at = now
    row.edited_by = by
    row.save(update_fields=["deleted_at", "edited_by"])
    trigger_record(row, "autonomous_trigger.deleted", now=now, by=by)
    return row


@transaction.atomic
def triggers_set_cap(
    *, triggers: Iterable[Trigger], cap: Decimal | None, by: User | None, now: datetime
) -> list[Trigger]:
    """Set the cap of sessions to come, for all triggers or for none; None is the installation's default."""
    checked = checked_cap("cap", cap)
    # All locks before the first audit row: see the lock order in trigger_health.
    rows = [_own(pk, by) for pk in sorted({trigger.pk for trigger in triggers})]
    changed = [(row, row.max_cost_usd) for row in rows if row.max_cost_usd != checked]
    for row, _ in changed:
        row.max_cost_usd = checked
        row.edited_by = by
        row.save(update_fields=["max_cost_usd", "edited_by"])
    for row, old in changed:
        _record_cap(row, old, by=by, now=now)
    return rows


@transaction.atomic
def trigger_pause(*, trigger: Trigger, by: User | None, now: datetime, reason: str = BY_HAND) -> Trigger:
    """Keep a trigger from firing until it is resumed. Pausing twice changes nothing."""
    if len(reason) > REASON_CHARS or not LABEL.fullmatch(reason) or not reason:
        raise Invalid(
            f"The reason {reason!r} must be one word of at most {REASON_CHARS} characters, such as {BY_HAND}."
        )
    row = _own(trigger.pk, by)
    if row.paused_at is None:
        trigger_stop(row, reason, now=now, by=by)
    return row


@transaction.atomic
def trigger_resume(*, trigger: Trigger, by: User | None, now: datetime) -> Trigger:
    """Let a paused trigger fire again with its counters reset. What the pause skipped is not made up for."""
    row = _own(trigger.pk, by)
    if row.paused_at is None:
        return row
    require_complete(row)
    row.paused_at = None
    row.pause_reason = ""
    row.failed_in_a_row = row.empty_in_a_row = 0
    row.next_run_at = _next_run(row, now)
    row.save(update_fields=["paused_at", "pause_reason", "failed_in_a_row", "empty_in_a_row", "next_run_at"])
    trigger_record(row, "autonomous_trigger.resumed", now=now, by=by)
    return row


@transaction.atomic
def trigger_rotate_secret(*, trigger: Trigger, by: User | None, now: datetime) -> str:
    """Create and return a new signing secret. The old one stays valid for 24 hours."""
    row = _own(trigger.pk, by)
    secret_demand_kind(row)
    row.secret_generation += 1
    row.old_secret_until = now + OLD_SECRET_LASTS
    row.edited_by = by
    row.save(update_fields=["secret_generation", "old_secret_until", "edited_by"])
    generation = row.secret_generation
    trigger_record(row, "autonomous_trigger.secret_rotated", now=now, by=by, generation=generation)
    return trigger_secret(row)


def trigger_secret(trigger: Trigger, generation: int | None = None) -> str:
    """Return the trigger's signing secret, of the current generation unless another is named."""
    secret_demand_kind(trigger)
    return secret_of(trigger.public_id, trigger.secret_generation if generation is None else generation)


def secret_demand_kind(trigger: Trigger) -> None:
    if trigger.kind != TriggerKind.EVENT:
        raise Invalid(f"A {trigger.kind} takes no signed messages: only event triggers have a secret.")


def _own(trigger_pk: int, by: User | None, *, verb: str = "change") -> Trigger:
    """Return the locked row of a trigger that exists and that this person may act on."""
    row = trigger_lock(trigger_pk)
    if row is None or row.deleted_at is not None:
        raise NotFound("There is no such trigger.")
    require_access(by, owner_id=row.owner_id, permission=f"agents.{verb}_trigger")
    return row


def _next_run(trigger: Trigger, now: datetime) -> datetime | None:
    if trigger.kind != TriggerKind.SCHEDULE:
        return None
    return schedule.next_after(trigger.cron, trigger.zone, now)


def _set_day_cap(row: Trigger, *, by: User | None, now: datetime) -> None:
    """Set today's budget too: the next call is judged by it."""
    cap = row.max_cost_per_day_usd
    budget_set_cap(scope=BudgetScope.TRIGGER, subject_id=row.pk, cap_usd=cap, actor=actor_of(by), now=now)


def _record_cap(row: Trigger, old: Decimal | None, *, by: User | None, now: datetime) -> None:
    cap, before = _amount_text(row.max_cost_usd), _amount_text(old)
    trigger_record(row, "autonomous_trigger.cap_set", now=now, by=by, cap_usd=cap, old_cap_usd=before)


def _amount_text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
