"""Triggers: create, edit, pause, delete, and the rules for their fields. firing.py decides what they start.

A deleted trigger stays as a row, for the sessions that name it; nobody can change it or make it fire.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from django.contrib.auth.models import User
from django.db import models, transaction
from pydantic import TypeAdapter, ValidationError

from agents.definitions.schema import KEYS_OF_ONE_KIND, MONTH_CAP, REQUIRED_KEYS, TRIGGER_KINDS, TriggerSpec
from agents.definitions.values import Amount, Zone
from agents.enums import ApprovalMode, BudgetScope, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.ledger.budgets import PERIODS, budget_set_cap, budgets_lock_all, caps_of
from agents.ledger.trigger_health import BY_HAND, trigger_lock, trigger_record, trigger_stop
from agents.models import Agent, Collection, Playbook, Profile, Project, PromptSkill, Trigger
from agents.people.access import require_access, require_may_loosen
from agents.people.ceilings import default_run_cap, own_ceilings, require_within_ceilings
from agents.policy import schedule
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.policy.loosening import LOOSER, loosened
from agents.policy.paths import path_text
from agents.sessions.pauses import pauses_apply, trigger_runs_pause, trigger_runs_resume
from agents.text.clean import one_line
from agents.triggers.signing import OLD_SECRET_LASTS, secret_of
from audit.kinds import LABEL
from audit.redaction import redact

# --- Fields: checked like those in an agent.yaml, and whatever a trigger binds to has to be its owner's ---
#
# Reads rows, writes none. Somebody else's project, collection, playbook or agent counts as not found.


_LONGEST_INPUT: Final = 10_000
_BOUND: Final[Mapping[str, type[models.Model]]] = {
    "agent": Agent,
    "project": Project,
    "playbook": Playbook,
    "collection": Collection,
    "skill": PromptSkill,
}
_SETTINGS: Final[Mapping[str, type[LoopConfig | GuardrailsConfig]]] = {
    "loop": LoopConfig,
    "guardrails": GuardrailsConfig,
}
_AMOUNT: Final = TypeAdapter[Decimal | None](Amount | None)
_TYPES: Final[Mapping[str, TypeAdapter[Any]]] = {
    name: TypeAdapter(field.rebuild_annotation())
    for name, field in TriggerSpec.model_fields.items()
    if name not in {"kind", MONTH_CAP} and name not in _BOUND
} | {"zone": TypeAdapter(Zone)}

Row = TypeVar("Row", bound=models.Model)


def plain(name: str, value: object, limit: int) -> str:
    """Return one line of text without secrets. Too long is refused, not cut: rules compare character by character."""
    if not isinstance(value, str) or len(value) > _LONGEST_INPUT:
        raise Invalid(f"{name} must be text of at most {limit} characters.")
    text = one_line(redact(value), _LONGEST_INPUT)
    if len(text) > limit:
        raise Invalid(f"{name} has {len(text)} characters; at most {limit} are kept: shorten it.")
    return text


def checked_cap(name: str, value: object) -> Decimal | None:
    """Return an amount of 0 or more with at most four places, or None. Zero means zero, not unlimited."""
    amount: Decimal | None = _validated(name, value, _AMOUNT)
    return amount


def owned_rows(model: type[Row], owner_id: int) -> models.QuerySet[Row]:
    """Return an owner's rows that are not deleted."""
    rows: models.QuerySet[Row] = models.QuerySet(model).filter(owner_id=owner_id)
    has_deleted = any(field.name == "deleted_at" for field in model._meta.fields)
    return rows.filter(deleted_at__isnull=True) if has_deleted else rows


def require_owned(name: str, row: models.Model | None, owner_id: int) -> None:
    """Refuse a row that is not the owner's, or deleted, as not found."""
    if row is not None and not owned_rows(type(row), owner_id).filter(pk=row.pk).exists():
        raise NotFound(f"There is no such {name}.")


def require_skill_enabled(skill: PromptSkill) -> None:
    if not skill.enabled:
        raise Invalid(f"The skill {skill.name} is switched off: switch it on, or choose another.")


def checked_fields(kind: str, given: Mapping[str, Any], *, owner_id: int) -> dict[str, Any]:
    """Return the fields as they are stored. A field that the kind does not use must be left at its default."""
    if kind not in TRIGGER_KINDS:
        raise Invalid(f"{kind!r} is no kind of trigger; choose one of {', '.join(TRIGGER_KINDS)}.")
    if unknown := sorted(given.keys() - _TYPES.keys() - _BOUND.keys()):
        raise Invalid(f"A trigger has no {', '.join(unknown)}; it has {', '.join(sorted({*_TYPES, *_BOUND}))}.")
    unset = Trigger()
    unused = {name for name in given if KEYS_OF_ONE_KIND.get(name, kind) != kind}
    for name in sorted(unused):
        if given[name] != getattr(unset, name):
            raise Invalid(f"{name} is of no use to a {kind}: leave it out.")
    return {
        name: _checked_row(name, value, owner_id) if name in _BOUND else _checked_value(name, value)
        for name, value in given.items()
        if name not in unused
    }


def _checked_row(name: str, row: Any, owner_id: int) -> Any:
    if row is not None and not isinstance(row, _BOUND[name]):
        raise Invalid(f"{name} is {row!r}; it must be an existing {name}.")
    if isinstance(row, PromptSkill):
        require_skill_enabled(row)
    else:
        require_owned(name, row, owner_id)
    return row


def _checked_value(name: str, value: Any) -> Any:
    if name in _SETTINGS:
        return _checked_settings(name, {} if value is None else value)
    return _validated(name, plain(name, value, _LONGEST_INPUT) if isinstance(value, str) else value, _TYPES[name])


def _checked_settings(name: str, value: Any) -> dict[str, Any]:
    """Check some settings of the step loop; the others come from the agent and the installation."""
    settings: dict[str, Any] = _validated(name, value, _TYPES[name])
    try:
        _SETTINGS[name].merged(settings)
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None
    return settings


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


def _validated(name: str, value: Any, kind: TypeAdapter[Any]) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = path_text((name, *first["loc"]))
        got = "" if first.get("ctx", {}).get("got") == "" else f"; got {_plain(first['input'])}"
        raise Invalid(f"{key}: expected {first['msg']}{got}.") from None


def require_complete(trigger: Trigger) -> None:
    """Raise unless the trigger has what its kind needs."""
    if trigger.kind == TriggerKind.SCHEDULE:
        schedule.validate(trigger.cron, trigger.zone)
    for names, needed in REQUIRED_KEYS.get(TriggerKind(trigger.kind), {}).items():
        if not any(getattr(trigger, name) for name in names):
            raise Invalid(f"A {trigger.kind} needs {needed}.")
    if trigger.playbook is None and trigger.skill is None:
        raise Invalid("A trigger needs a playbook or a skill to check against.")


REASON_CHARS: Final = 24
_DAY_CAP: Final = "max_cost_per_day_usd"
_MEASURED: Final = ("max_cost_usd", _DAY_CAP)  # by the ceilings of the owner
_WHEN: Final = frozenset({"cron", "zone", "enabled"})


@transaction.atomic
def trigger_create(*, owner: User, kind: str, name: str, by: User | None, now: datetime, **fields: Any) -> Trigger:
    """Create a trigger. Everything it binds to has to be its owner's."""
    require_access(by, owner_id=owner.pk, permission="agents.add_trigger")
    given = checked_fields(kind, {"name": name, **fields}, owner_id=owner.pk)
    require_within_ceilings(by, owner=owner, **{name: given.get(name) for name in _MEASURED})
    if given.get(_DAY_CAP) is None:
        given[_DAY_CAP] = own_ceilings(owner.pk).get(_DAY_CAP)
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
    _require_may_set(row, changed, by)
    if _DAY_CAP in changed:
        budgets_lock_all()  # before the first audit event
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
    trigger_runs_resume(row, by=by, now=now)
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
        _require_may_set(row, {"max_cost_usd": checked}, by)
    for row, _ in changed:
        row.max_cost_usd = checked
        row.edited_by = by
        row.save(update_fields=["max_cost_usd", "edited_by"])
    for row, old in changed:
        _record_cap(row, old, by=by, now=now)
    return rows


def trigger_pause(
    *, trigger: Trigger, by: User | None, now: datetime, reason: str = BY_HAND, with_runs: bool = False
) -> Trigger:
    """Keep a trigger from firing until it is resumed, and its current runs from going on if `with_runs` is set.

    Pausing twice changes nothing, except that it may add the runs.
    """
    row = _pause(trigger, by=by, now=now, reason=reason, with_runs=with_runs)
    if with_runs:
        pauses_apply(now)
    return row


@transaction.atomic
def _pause(trigger: Trigger, *, by: User | None, now: datetime, reason: str, with_runs: bool) -> Trigger:
    if len(reason) > REASON_CHARS or not LABEL.fullmatch(reason) or not reason:
        raise Invalid(
            f"The reason {reason!r} must be one word of at most {REASON_CHARS} characters, such as {BY_HAND}."
        )
    row = _own(trigger.pk, by)
    if with_runs:
        trigger_runs_pause(row, by=by, reason=reason, now=now)
    if row.paused_at is None:
        trigger_stop(row, reason, now=now, by=by, with_runs=with_runs)
    return row


def trigger_resume(*, trigger: Trigger, by: User | None, now: datetime) -> Trigger:
    """Let a paused trigger fire again with its counters reset, and its runs go on that were paused with it.

    What the pause skipped is not made up for.
    """
    row = _resume(trigger, by=by, now=now)
    pauses_apply(now)
    return row


@transaction.atomic
def _resume(trigger: Trigger, *, by: User | None, now: datetime) -> Trigger:
    row = _own(trigger.pk, by)
    if row.paused_at is None:
        return row
    require_complete(row)
    row.paused_at = None
    row.pause_reason = ""
    row.failed_in_a_row = row.empty_in_a_row = 0
    row.next_run_at = _next_run(row, now)
    row.save(update_fields=["paused_at", "pause_reason", "failed_in_a_row", "empty_in_a_row", "next_run_at"])
    trigger_runs_resume(row, by=by, now=now)
    trigger_record(row, "autonomous_trigger.resumed", now=now, by=by)
    return row


@transaction.atomic
def trigger_rotate_secret(*, trigger: Trigger, by: User | None, now: datetime) -> str:
    """Create and return a new signing secret. The old one stays valid for 24 hours."""
    row = _own(trigger.pk, by)
    _require_secret(row)
    row.secret_generation += 1
    row.old_secret_until = now + OLD_SECRET_LASTS
    row.edited_by = by
    row.save(update_fields=["secret_generation", "old_secret_until", "edited_by"])
    generation = row.secret_generation
    trigger_record(row, "autonomous_trigger.secret_rotated", now=now, by=by, generation=generation)
    return trigger_secret(row)


def trigger_secret(trigger: Trigger, generation: int | None = None) -> str:
    """Return the trigger's signing secret, of the current generation unless another is named."""
    _require_secret(trigger)
    return secret_of(trigger.public_id, trigger.secret_generation if generation is None else generation)


def _require_secret(trigger: Trigger) -> None:
    if trigger.kind != TriggerKind.EVENT:
        raise Invalid(f"A {trigger.kind} takes no signed messages: only event triggers have a secret.")


def _own(trigger_pk: int, by: User | None, *, verb: str = "change") -> Trigger:
    """Return the locked row of a trigger that exists and that this person may act on."""
    row = trigger_lock(trigger_pk)
    if row is None or row.deleted_at is not None:
        raise NotFound("There is no such trigger.")
    require_access(by, owner_id=row.owner_id, permission=f"agents.{verb}_trigger")
    return row


def _require_may_set(row: Trigger, changed: Mapping[str, Any], by: User | None) -> None:
    """Check who may loosen. Without a cap of its own, a trigger has the default that holds for its owner."""
    after = dict(changed)
    before = {name: getattr(row, name) for name in LOOSER if hasattr(row, name)}
    if "max_cost_usd" in after:
        default = default_run_cap(Profile.objects.filter(user_id=row.owner_id).first())
        for caps in (before, after):
            caps["max_cost_usd"] = default if caps["max_cost_usd"] is None else caps["max_cost_usd"]
    if "agent" in after:  # its runs ask as the agent's mode says
        before["mode"], after["mode"] = (
            agent.mode if agent else ApprovalMode.SEMI for agent in (row.agent, after["agent"])
        )
    require_may_loosen(by, [*loosened(before, after), *_caps_left(row, changed)], bound=[row.owner_id])


def _caps_left(row: Trigger, changed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the caps that the trigger's runs would leave behind with its project or agent."""
    for name, scope in (("project", BudgetScope.PROJECT), ("agent", BudgetScope.AGENT)):
        old, new = getattr(row, name), changed.get(name)
        if name in changed and old is not None and old != new:
            yield from caps_left(scope, old, new)


def caps_left(scope: BudgetScope, old: Project | Agent, new: Project | Agent | None) -> Iterator[str]:
    """Yield the caps of a project or an agent that do not bind runs any more when they move to another, or to none."""
    after = caps_of(scope, new.pk) if new is not None else {}
    for cap in loosened(caps_of(scope, old.pk), dict.fromkeys(PERIODS) | after):
        yield f"{cap} of the {scope}"


def _next_run(trigger: Trigger, now: datetime) -> datetime | None:
    if trigger.kind != TriggerKind.SCHEDULE:
        return None
    return schedule.next_after(trigger.cron, trigger.zone, now)


def _set_day_cap(row: Trigger, *, by: User | None, now: datetime) -> None:
    """Set today's budget too: the next call is judged by it."""
    cap = row.max_cost_per_day_usd
    budget_set_cap(scope=BudgetScope.TRIGGER, subject_id=row.pk, cap_usd=cap, by=by, now=now)


def _record_cap(row: Trigger, old: Decimal | None, *, by: User | None, now: datetime) -> None:
    cap, before = _amount_text(row.max_cost_usd), _amount_text(old)
    trigger_record(row, "autonomous_trigger.cap_set", now=now, by=by, cap_usd=cap, old_cap_usd=before)


def _amount_text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
