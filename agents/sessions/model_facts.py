"""The declared models as people see them: where each is served, what it costs, what it does, and whether it answers.

Keys are never read: only the name of the variable, and whether it is set. Of an address only the host is shown, since
a path or a query can hold a secret.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Max, Sum

from agents.enums import Outcome
from agents.exceptions import InvalidTransition, NotFound
from agents.ledger.model_servers import known_of
from agents.ledger.outages import outage_try_now, waiting_for
from agents.models import InferenceLog, ModelOutage, ModelPrice, SuspendedModel
from agents.people.access import actor_of
from agents.sessions.faults import failing_models
from audit import recorder
from audit.models import SYSTEM_CHAIN

SUSPENDED: Final = "suspended"
AWAY: Final = "away"
FAILING: Final = "failing"
NEVER_ASKED: Final = "never asked"
ANSWERS: Final = "answers"
PRICES: Final = ("input_usd", "output_usd", "cache_write_usd", "cache_read_usd")
EDITED: Final = (*PRICES, "prices_from", "context_window", "max_tokens", "reasoning", "fallback")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class ModelFacts:
    """One declared model."""

    model: str
    provider: str
    name: str  # at its server
    host: str
    key_env: str
    key_is_set: bool
    roles: tuple[str, ...]
    prices: Mapping[str, str | None]
    prices_from: str
    price_row: ModelPrice | None
    context_window: int | None
    max_tokens: Any
    fallback: tuple[str, ...]
    state: str
    outage: ModelOutage | None
    suspended: SuspendedModel | None
    last_call: InferenceLog | None
    calls_today: int
    cost_today_usd: Decimal
    server: Mapping[str, Any] | None

    @property
    def lines(self) -> str:
        """The lines of the models file by which this model is changed."""
        declared = settings.LQOPS_MODELS[self.model]
        known = {key: declared[key] for key in EDITED if key in declared}
        if str(declared.get("prices_from", "")).startswith("genai-prices"):
            known = {key: value for key, value in known.items() if key not in {*PRICES, "prices_from"}}
        roles = {role: settings.LQOPS_MODEL_ROLES[role] for role in self.roles}
        table = [f"[models.{_key(self.model)}]", *(f"{key} = {_toml(value)}" for key, value in known.items())]
        lines = [f"{_key(role)} = {_toml(names)}" for role, names in roles.items()] or ['# main = "NAME"']
        return "\n".join([*table, "", "[roles]", *lines])

    @property
    def longest_answer(self) -> str:
        return "" if self.max_tokens is None else _toml(self.max_tokens).strip("{ }").replace(" =", "")


def models_known(now: datetime) -> list[ModelFacts]:
    """Return every declared model: those with a role first, then by name."""
    outages = {row.model: row for row in ModelOutage.objects.all()}
    suspended = {row.model: row for row in SuspendedModel.objects.all()}
    # A row for a shorter name loses against the model's own declaration.
    rows = {row.model: row for row in ModelPrice.objects.filter(model__in=settings.LQOPS_MODELS)}
    calls = InferenceLog.objects.filter(model__in=settings.LQOPS_MODELS)
    last = calls.in_bulk(calls.order_by().values("model").annotate(last=Max("pk")).values_list("last", flat=True))
    last_calls = {call.model: call for call in last.values()}
    midnight = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    today = calls.filter(created_at__gte=midnight).order_by().values("model")
    sums = {row["model"]: row for row in today.annotate(calls=Count("pk"), cost=Sum("cost_estimate"))}
    failing = frozenset(failing_models(now))
    found = [
        ModelFacts(
            **_declared_facts(model, rows.get(model)),
            state=_state(model, outages, suspended, failing, last_calls.get(model)),
            outage=outages.get(model),
            suspended=suspended.get(model),
            last_call=last_calls.get(model),
            calls_today=sums[model]["calls"] if model in sums else 0,
            cost_today_usd=(sums[model]["cost"] if model in sums else None) or Decimal(0),
        )
        for model in settings.LQOPS_MODELS
    ]
    return sorted(found, key=lambda one: (not one.roles, one.model))


def _declared_facts(model: str, row: ModelPrice | None) -> dict[str, Any]:
    declared = settings.LQOPS_MODELS[model]
    variable = declared.get("key_env", "")
    prices = {key: declared.get(key) for key in PRICES}
    source = declared.get("prices_from") or "declared"
    if row is not None:
        prices = dict.fromkeys(PRICES) | {"input_usd": str(row.input_usd), "output_usd": str(row.output_usd)}
        source = "price row"
    return {
        "model": model,
        "provider": declared["provider"],
        "name": declared.get("name", model),
        "host": urlsplit(declared.get("url", "")).hostname or "",
        "key_env": variable,
        "key_is_set": bool(variable and (os.environ.get(variable) or os.environ.get(f"{variable}_FILE"))),
        "roles": tuple(role for role, names in settings.LQOPS_MODEL_ROLES.items() if model in names),
        "prices": prices,
        "prices_from": source,
        "price_row": row,
        "context_window": declared.get("context_window"),
        "max_tokens": declared.get("max_tokens"),
        "fallback": tuple(declared.get("fallback", ())),
        "server": known_of(model),
    }


def _state(
    model: str,
    outages: Mapping[str, ModelOutage],
    suspended: Mapping[str, SuspendedModel],
    failing: frozenset[str],
    last: InferenceLog | None,
) -> str:
    if model in suspended:
        return SUSPENDED
    if model in outages:
        return AWAY
    if last is None:
        return NEVER_ASKED
    return FAILING if model in failing or last.outcome == Outcome.GATEWAY_ERROR else ANSWERS


def require_declared(model: str) -> None:
    if model not in settings.LQOPS_MODELS:
        raise NotFound(f"There is no model {model[:128]}.")


@transaction.atomic
def model_try_now(*, model: str, by: User, now: datetime) -> int:
    """Have a model that is away tried at once, by a run that waits for it. Return how many runs wait."""
    if not ModelOutage.objects.filter(model=model).exists():
        raise InvalidTransition(f"Model {model[:128]} is not away; there is nothing to try.")
    outage_try_now(model, now=now)
    recorder.append(SYSTEM_CHAIN, "model.try_now", now=now, actor=actor_of(by), details={"model": model})
    return waiting_for(model).count()


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
