"""The models in force as people see them: where each is served, what it costs, what it does, and whether it answers.

Keys are never read: only the name of the variable, and whether it is set. Of an address only the host is shown, since
a path or a query can hold a secret.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Max, Sum

from agents.definitions.catalogue import file_models, models_in_force, read_rows, roles_of, rows_left_out
from agents.enums import Outcome
from agents.exceptions import InvalidTransition, NotFound
from agents.ledger.journal import KEY_REFUSED
from agents.ledger.model_servers import known_of
from agents.ledger.outages import outage_try_now, waiting_for
from agents.models import DeclaredModel, InferenceLog, ModelOutage, ModelPrice, SuspendedModel, ToolCall
from agents.people.access import actor_of
from audit import recorder
from audit.models import SYSTEM_CHAIN

PRICES: Final = ("input_usd", "output_usd", "cache_write_usd", "cache_read_usd")
_LISTED: Final = (
    "model", "provider", "name", "host", "key_env", "key_is_set", "roles", "prices", "prices_from", "context_window",
    "max_tokens", "reasoning", "fallback", "origin", "problem", "state", "state_at", "server",
)  # fmt: skip


class ModelState(StrEnum):
    """What is known of a model; of several, the first one counts. docs/models.md has the table."""

    SUSPENDED = "suspended"
    NO_PRICE = "no price"
    AWAY = "away"
    NEVER_ASKED = "never asked"
    KEY_REFUSED = "key refused"
    FAILED = "failed"
    ANSWERED = "answered"


class Origin(StrEnum):
    """Where a model is declared."""

    FILE = "file"
    CHANGED = "file, changed here"
    HERE = "set here"


@dataclass(frozen=True)
class ModelFacts:
    """One model in force."""

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
    reasoning: Any
    fallback: tuple[str, ...]
    extra: tuple[str, ...]  # names of further request fields
    origin: Origin
    row_pk: int | None  # of what is set here
    set_here: frozenset[str]
    problem: str  # why what was set here is not in force
    server: Mapping[str, Any] | None
    state: ModelState
    state_at: datetime | None
    outage: ModelOutage | None
    suspended: SuspendedModel | None
    last_call: InferenceLog | None
    calls_today: int
    cost_today_usd: Decimal

    @property
    def is_bad(self) -> bool:
        return self.state not in {ModelState.ANSWERED, ModelState.NEVER_ASKED} or bool(self.problem)

    @property
    def changed(self) -> frozenset[str]:
        """The keys in which it differs from its declaration in the file."""
        return self.set_here if self.origin == Origin.CHANGED else frozenset()

    @property
    def longest_answer(self) -> str:
        return "" if self.max_tokens is None else json.dumps(self.max_tokens).strip("{}").replace('"', "")

    @property
    def summary(self) -> dict[str, Any]:
        """What the API and the command list: no key, no address but its host."""
        error = self.outage.error if self.outage else ""
        return {name: getattr(self, name) for name in _LISTED} | {"set_here": sorted(self.set_here), "error": error}


def models_known(now: datetime) -> list[ModelFacts]:
    """Return every model in force: those with a role first, then by name."""
    read_rows()
    declared = models_in_force().declared
    set_here = {row.model: row for row in DeclaredModel.objects.filter(model__in=declared)}
    outages = {row.model: row for row in ModelOutage.objects.all()}
    suspended = {row.model: row for row in SuspendedModel.objects.all()}
    # A row for a shorter name loses against the model's own declaration.
    rows = {row.model: row for row in ModelPrice.objects.filter(model__in=declared)}
    calls = InferenceLog.objects.filter(model__in=declared)
    ended = calls.filter(outcome__in=(Outcome.SUCCESS, Outcome.GATEWAY_ERROR))  # others were halted
    last = calls.in_bulk(ended.order_by().values("model").annotate(last=Max("pk")).values_list("last", flat=True))
    last_calls = {call.model: call for call in last.values()}
    midnight = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    today = calls.filter(created_at__gte=midnight).order_by().values("model")
    sums = {row["model"]: row for row in today.annotate(calls=Count("pk"), cost=Sum("cost_estimate"))}
    found = []
    for model in declared:
        facts = _declared_facts(model, declared[model], rows.get(model), set_here.get(model))
        state, state_at = _state(facts, outages.get(model), suspended.get(model), last_calls.get(model))
        found.append(
            ModelFacts(
                **facts,
                state=state,
                state_at=state_at,
                outage=outages.get(model),
                suspended=suspended.get(model),
                last_call=last_calls.get(model),
                calls_today=sums[model]["calls"] if model in sums else 0,
                cost_today_usd=(sums[model]["cost"] if model in sums else None) or Decimal(0),
            )
        )
    return sorted(found, key=lambda one: (not one.roles, one.model))


def _declared_facts(
    model: str, declared: Mapping[str, Any], price: ModelPrice | None, row: DeclaredModel | None
) -> dict[str, Any]:
    variable = declared.get("key_env", "")
    prices = {key: declared.get(key) for key in PRICES}
    source = declared.get("prices_from") or "declared"
    if price is not None:
        prices = dict.fromkeys(PRICES) | {"input_usd": str(price.input_usd), "output_usd": str(price.output_usd)}
        source = "price row"
    problem = rows_left_out().get(model, "")
    settings = row.settings if row and not problem else {}
    origin = Origin.HERE if model not in file_models().declared else Origin.CHANGED if settings else Origin.FILE
    return {
        "model": model,
        "provider": declared["provider"],
        "name": declared.get("name", model),
        "host": urlsplit(declared.get("url", "")).hostname or "",
        "key_env": variable,
        "key_is_set": bool(variable and (os.environ.get(variable) or os.environ.get(f"{variable}_FILE"))),
        "roles": tuple(roles_of(model)),
        "prices": prices,
        "prices_from": source,
        "price_row": price,
        "context_window": declared.get("context_window"),
        "max_tokens": declared.get("max_tokens"),
        "reasoning": declared.get("reasoning"),
        "fallback": tuple(declared.get("fallback", ())),
        "extra": tuple(sorted(declared.get("extra", {}))),
        "origin": origin,
        "row_pk": row.pk if row else None,
        "set_here": frozenset(settings),
        "problem": problem,
        "server": known_of(model),
    }


def _state(
    facts: Mapping[str, Any], outage: ModelOutage | None, suspended: SuspendedModel | None, last: InferenceLog | None
) -> tuple[ModelState, datetime | None]:
    """Return the state, and since when or of when it is."""
    if suspended is not None:
        return ModelState.SUSPENDED, suspended.suspended_at
    if facts["prices"]["input_usd"] is None or facts["prices"]["output_usd"] is None:
        return ModelState.NO_PRICE, None
    if outage is not None:
        return ModelState.AWAY, outage.since
    if last is None:
        return ModelState.NEVER_ASKED, None
    if last.outcome != Outcome.GATEWAY_ERROR:
        return ModelState.ANSWERED, last.created_at
    refused = ToolCall.objects.filter(session_id=last.session_id, model=last.model).order_by("-pk").first()
    is_key = refused is not None and refused.detail == KEY_REFUSED
    return ModelState.KEY_REFUSED if is_key else ModelState.FAILED, last.created_at


def require_declared(model: str) -> None:
    if model not in models_in_force().declared:
        raise NotFound(f"There is no model {model[:128]}.")


@transaction.atomic
def model_try_now(*, model: str, by: User, now: datetime) -> int:
    """Have a model that is away tried at once, by a run that waits for it. Return how many runs wait."""
    if not ModelOutage.objects.filter(model=model).exists():
        raise InvalidTransition(f"Model {model[:128]} is not away; there is nothing to try.")
    outage_try_now(model, now=now)
    recorder.append(SYSTEM_CHAIN, "model.try_now", now=now, actor=actor_of(by), details={"model": model})
    return waiting_for(model).count()
