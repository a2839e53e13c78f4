"""What a trigger may hold: checks every field that somebody gives, and that what it binds to is its owner's own.

Reads rows, writes none. Somebody else's project, collection, playbook or agent does not exist here.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, TypeVar

from django.db import models

from agents.enums import AnalysisMode, EventSeverity, TriggerKind
from agents.exceptions import Invalid, NotFound
from agents.models import Agent, Collection, Playbook, Project, PromptSkill, Trigger
from agents.policy import schedule
from agents.policy.costs import MOST_USD
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.text.clean import one_line
from audit.redaction import redact

CAP_PLACES: Final = Decimal("0.0001")
# `suggestion` is a word without a spawner: nobody can make a trigger of that kind.
KINDS: Final = (TriggerKind.WATCH, TriggerKind.SCHEDULE, TriggerKind.EVENT, TriggerKind.MANUAL)
_LONGEST_INPUT: Final = 10_000

Row = TypeVar("Row", bound=models.Model)
Check = Callable[[str, Any, int], Any]


def plain(name: str, value: object, limit: int) -> str:
    """One line of text without secrets. Longer than the limit is refused, not cut: rules compare letter by letter."""
    if not isinstance(value, str) or len(value) > _LONGEST_INPUT:
        raise Invalid(f"{name} must be text of at most {limit} characters.")
    text = one_line(redact(value), _LONGEST_INPUT)
    if len(text) > limit:
        raise Invalid(f"{name} has {len(text)} characters; at most {limit} are kept: shorten it.")
    return text


def checked_cap(name: str, value: object, owner_id: int = 0) -> Decimal | None:
    """An amount of 0 or more with at most four places, or None. Zero means zero, not unlimited."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise Invalid(f"{name} must be an amount of US dollars, not {value!r}.")
    cap = Decimal(value)
    if not cap.is_finite() or not 0 <= cap <= MOST_USD or cap != cap.quantize(CAP_PLACES):
        raise Invalid(f"{name} is {cap} USD; it must be 0 or more, with at most 4 places.")
    return cap


def demand_owned(name: str, row: Row | None, owner_id: int) -> Row | None:
    """The row itself, if it is still there and the owner's own. A stranger's is not told apart from none at all."""
    if row is None:
        return None
    mine: models.QuerySet[Row] = models.QuerySet(type(row)).filter(pk=row.pk, owner_id=owner_id)
    if any(field.name == "deleted_at" for field in row._meta.fields):
        mine = mine.filter(deleted_at__isnull=True)
    if not mine.exists():
        raise NotFound(f"There is no such {name}.")
    return row


def demand_skill(name: str, skill: PromptSkill | None, owner_id: int = 0) -> PromptSkill | None:
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


def _word(words: type[models.TextChoices]) -> Check:
    def check(name: str, value: Any, owner_id: int) -> str:
        if value not in words.values:
            raise Invalid(f"{name} is {value!r}; it must be one of {', '.join(words.values)}.")
        return str(words(value).value)

    return check


def _settings(config: type[LoopConfig | GuardrailsConfig]) -> Check:
    """Some settings of a run of steps; the others stay as the agent and the installation have them."""

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
        return demand_owned(name, value, owner_id)

    return check


def _skill(name: str, value: Any, owner_id: int) -> PromptSkill | None:
    if value is not None and not isinstance(value, PromptSkill):
        raise Invalid(f"{name} is {value!r}; it must be a skill that is loaded.")
    return demand_skill(name, value)


_ANY_KIND: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "name": _text(120, needed=True),
        "agent": _owned(Agent),
        "project": _owned(Project),
        "playbook": _owned(Playbook),
        "collection": _owned(Collection),
        "skill": _skill,
        "query": _text(500),
        "emit_artifacts": _flag,
        "review_flagged": _flag,
        "judge_citations": _flag,
        "analysis_mode": _word(AnalysisMode),
        "loop": _settings(LoopConfig),
        "guardrails": _settings(GuardrailsConfig),
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
            "min_severity": _word(EventSeverity),
        },
    }
)
_ELSEWHERE: Final = frozenset(name for checks in _ONE_KIND.values() for name in checks)


def checked_fields(kind: str, given: Mapping[str, Any], *, owner_id: int) -> dict[str, Any]:
    """The fields as they are to be stored. One that its kind has no use for must be left as it is by default."""
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


def demand_whole(trigger: Trigger) -> None:
    """What its kind cannot do without: a watch needs a collection, a schedule a time at which it is due, something to
    read then, and something to check it against."""
    if trigger.kind == TriggerKind.WATCH and trigger.collection_id is None:
        raise Invalid("A watch needs the collection that it is to watch.")
    if trigger.kind == TriggerKind.SCHEDULE:
        schedule.validate(trigger.cron, trigger.zone)
        if trigger.playbook_id is None and trigger.skill_id is None:
            raise Invalid("A schedule needs a playbook or a skill that its runs go by.")
        if trigger.collection_id is None and not trigger.query:
            raise Invalid("A schedule needs a collection or a query that its runs read.")
