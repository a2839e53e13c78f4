"""Answers of the decision layer as a page shows them: a table where rows were found, links to what is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import models
from django.urls import reverse

from agents.admin.display import SHORT_ID, moment, usd, visible, words
from agents.ask.naming import Answer
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Collection,
    Document,
    Playbook,
    Precedent,
    PromptSkill,
    Question,
    Trigger,
)

KINDS: Final[dict[str, type[models.Model]]] = {
    "session": AgentSession,
    "trigger": Trigger,
    "approval": Approval,
    "precedent": Precedent,
    "agent": Agent,
    "playbook": Playbook,
    "skill": PromptSkill,
    "collection": Collection,
    "document": Document,
    "question": Question,
}
UNSHOWN: Final = frozenset({"id", "arguments", "digest", "repeat"})


@dataclass(frozen=True)
class Row:
    link: str
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    heads: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Link:
    kind: str
    address: str


def table_of(answer: Answer, by: User) -> Table | None:
    """The rows that the answer holds, if it holds any; each with a way to its page for those who may look at it."""
    for name, found in answer.data.items():
        if isinstance(found, list) and found and all(isinstance(row, Mapping) for row in found):
            return _table(name.removesuffix("s"), found, by)
    return None


def links_of(answer: Answer, by: User) -> list[Link]:
    """The single things that the answer names."""
    links = []
    for kind in KINDS:
        named = answer.data.get(kind)
        public_id = named.get("id") if isinstance(named, Mapping) else named
        found = _addresses(kind, [str(public_id)], by) if isinstance(public_id, str) else {}
        links += [Link(kind, address) for address in found.values()]
    return links


def _table(kind: str, found: list[Any], by: User) -> Table:
    names = [name for name in found[0] if name not in UNSHOWN]
    links: dict[str, str] = {}
    for one in {row.get("kind", kind) for row in found} & KINDS.keys() or {kind} & KINDS.keys():
        links |= _addresses(one, [str(row["id"]) for row in found if "id" in row], by)
    rows = [
        Row(
            links.get(str(row.get("id")), ""),
            str(row.get("id", ""))[:SHORT_ID],
            tuple(_shown(name, row.get(name)) for name in names),
        )
        for row in found
    ]
    return Table(tuple(words(name.removesuffix("_usd").removesuffix("_at")) for name in names), tuple(rows))


def _addresses(kind: str, public_ids: list[str], by: User) -> dict[str, str]:
    model = KINDS[kind]
    app, name = model._meta.app_label, model._meta.model_name
    if not by.has_perm(f"{app}.view_{name}"):
        return {}
    rows: models.QuerySet[Any] = models.QuerySet(model).filter(public_id__in=public_ids)
    pks = rows.values_list("public_id", "pk")
    return {str(public_id): reverse(f"admin:{app}_{name}_change", args=[pk]) for public_id, pk in pks}


def _shown(name: str, value: Any) -> str:
    """A cell. Amounts and times have the form that every page gives them."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool):
        return "on" if value else "off"
    try:
        if name.endswith("_usd"):
            return usd(Decimal(str(value)))
        if name.endswith("_at"):
            return moment(datetime.fromisoformat(str(value)))
    except (InvalidOperation, ValueError):
        return visible(str(value))
    return words(value) if name in {"status", "terminal_reason"} else visible(str(value))
