"""Rows that a person may see, as the API shows them: their own. Each has a reference, such as `run:1f2e3d4c5b6a`.

The console's skills give rows to a model with their references, and `agents.ask` makes links and buttons from those
that a reply names: both read references here. Archived agents and their sensors are left out.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, IntegerField, Model, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast

from agents.enums import Mode
from agents.models import Agent, AgentSession, Approval, Document, Finding, Sensor, Trigger
from agents.sessions.reads import titled
from agents.text.clean import one_line
from agents.text.manual import singular
from audit.models import SYSTEM_CHAIN, AuditEvent

TEXT_CHARS: Final = 400
CHAINS: Final = 1_000  # the newest runs whose audit events are searched
REF_CHARS: Final = 12
REF: Final = re.compile(r"\b([a-z]{3,9}):([0-9a-f]{12}|\d{1,12}|[a-z0-9-]{1,40}#[a-z0-9-]{0,80})(?![\w-])")
_WORD: Final = re.compile(r"\w[\w'.-]*\w|\w")

Row = dict[str, Any]


@dataclass(frozen=True)
class RowKind:
    """`own` returns the rows of a person, newest first; `fields` are searched for words."""

    model: type[Model]
    own: Callable[[int], QuerySet[Any]]
    describe: Callable[[Any], Row]
    fields: tuple[str, ...] = ()
    by_number: bool = False  # rows without a public id


def reference(kind: str, row: Any) -> str:
    """Return what stands for a row in an answer."""
    key = row.pk if ROWS[kind].by_number else row.public_id.hex[:REF_CHARS]
    return f"{kind}:{key}"


def row_referred(ref: str, owner_id: int) -> Any:
    """Return the row of a reference, if this person may see it, else None."""
    kind, _, key = ref.partition(":")
    rows = ROWS.get(kind)
    if rows is None or not re.fullmatch(r"\d{1,12}" if rows.by_number else rf"[0-9a-f]{{{REF_CHARS}}}", key):
        return None
    if rows.by_number:
        return rows.own(owner_id).filter(pk=int(key)).first()
    first, last = UUID(key.ljust(32, "0")), UUID(key.ljust(32, "f"))
    found = list(rows.own(owner_id).filter(public_id__range=(first, last))[:2])
    return found[0] if len(found) == 1 else None


def rows_with(kind: str, owner_id: int, words: str, rows: QuerySet[Any] | None = None) -> QuerySet[Any]:
    """Return the rows that hold all of these words; if none does, those that hold any, most words first."""
    own = ROWS[kind].own(owner_id) if rows is None else rows
    wanted = significant(words)
    if not wanted:
        return own
    each = [_holds(kind, word) for word in wanted]
    whole = own.filter(pk__in=own.order_by().filter(reduce(and_, each)).values("pk"))
    if whole.exists():
        return whole
    some = own.order_by().filter(reduce(or_, each)).values("pk")
    held = [Case(When(pk__in=own.order_by().filter(one).values("pk"), then=1), default=0) for one in each]
    score = reduce(lambda one, other: one + other, held, Value(0, output_field=IntegerField()))  # type: ignore[arg-type, return-value]
    found: QuerySet[Any] = own.filter(pk__in=some).annotate(words_held=score)
    return found.order_by("-words_held", *own.query.order_by)


# Words that say nothing about a row: those of the question itself.
_SAY_NOTHING: Final = frozenset(
    """
    a about after again all am an and any anybody anyone anything are as at be been before but by can could did do does
    doing done every everybody everyone everything find for from get give go got had has have how i if in is it its just
    last latest let list long look many me mine most much my near need new newest next no nobody not now of off on or
    our out over please read run runs say says see show since so some somebody something stop tell than that the their
    them then there they thing things this those to today tonight tomorrow up us very want was we week went were what
    when where which who whose why will with work yesterday yet you your agent agents trigger triggers document
    documents finding findings approval approvals sensor sensors cost costs
    """.split()  # noqa: SIM905 a table of words
)


def significant(text: str) -> list[str]:
    """Return the words of a text that can be looked for; a plural is looked for without its s."""
    words = [word.lower().removesuffix("'s") for word in _WORD.findall(text.replace("\u2019", "'"))]
    kept = [word for word in words if word not in _SAY_NOTHING and len(word) > 1]
    return list(dict.fromkeys(singular(word) for word in kept))[:12]


def _holds(kind: str, word: str) -> Q:
    fields = [Q(**{f"{field}__icontains": word}) for field in ROWS[kind].fields]
    return reduce(or_, [*fields, *([titled(word)] if kind == "run" else [])])


def cut(text: str, limit: int = TEXT_CHARS) -> str:
    return one_line(text, limit)


def _at(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment else None


def usd_text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:.4f}"


def _run(row: AgentSession) -> Row:
    return {
        "status": row.status,
        "mode": row.mode,
        "result": row.run_result or None,
        "why": cut(row.result_reason or row.error) or None,
        "ended_by": row.terminal_reason,
        "waits_for": row.waiting_on or None,
        "agent": row.agent.name if row.agent else None,
        "trigger": row.trigger.name if row.trigger else None,
        "spent_usd": usd_text(row.spent_usd),
        "cap_usd": usd_text(row.cap_usd),
        "created": _at(row.created_at),
        "ended": _at(row.completed_at),
    }


def _finding(row: Finding) -> Row:
    return {
        "severity": row.severity,
        "title": cut(row.title),
        "text": cut(row.content),
        "quote": cut(row.quote) or None,
        "quote_check": row.quote_check or None,
        "document": row.document.name if row.document else None,
        "run": reference("run", row.session),
        "agent": row.session.agent.name if row.session.agent else None,
        "created": _at(row.created_at),
    }


def _agent(row: Agent) -> Row:
    return {
        "name": row.name,
        "state": "on" if row.enabled else "off (paused)",
        "approval_mode": row.mode,
        "loop_wanted": row.wanted,
        "day_cap_usd": usd_text(row.max_cost_per_day_usd),
        "owner": row.owner.get_username(),
        "definition": cut(row.definition) or None,
    }


def _trigger(row: Trigger) -> Row:
    return {
        "name": row.name,
        "kind": row.kind,
        "state": "paused" if row.paused_at else "on" if row.enabled else "off",
        "pause_reason": row.pause_reason or None,
        "cron": row.cron or None,
        "zone": row.zone if row.cron else None,
        "next_run": _at(row.next_run_at),
        "last_run": _at(row.last_run_at),
        "agent": row.agent.name if row.agent else None,
        "collection": row.collection.name if row.collection else None,
    }


def _approval(row: Approval) -> Row:
    return {
        "action": row.action,
        "level": row.level,
        "risk": row.risk_level or None,
        "status": row.status,
        "arguments": cut(str(row.arguments)),
        "run": reference("run", row.session),
        "agent": row.session.agent.name if row.session.agent else None,
        "created": _at(row.created_at),
        "expires": _at(row.expires_at),
        "decided": _at(row.resolved_at),
        "decided_by": row.resolved_by.get_username() if row.resolved_by else None,
    }


def _sensor(row: Sensor) -> Row:
    return {
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "problem": cut(row.problem) or None,
        "failures": row.failures,
        "read_at": _at(row.read_at),
        "value": cut(row.value) or None,
        "agent": row.agent.name,
    }


def _document(row: Document) -> Row:
    return {"name": cut(row.name), "media_type": row.media_type, "added": _at(row.created_at), "start": cut(row.text)}


def _event(row: AuditEvent) -> Row:
    return {"kind": row.kind, "what": cut(row.sentence), "at": _at(row.at), "actor": row.actor, "chain": row.chain}


def _own_events(owner_id: int) -> QuerySet[AuditEvent]:
    """Return the events of the person's own runs, their own acts that belong to no run, and halts of all work."""
    runs = AgentSession.objects.filter(owner_id=owner_id).order_by("-pk").values_list("public_id", flat=True)
    chains = [str(public_id) for public_id in runs[:CHAINS]]
    actors = Q(actor=f"user:{owner_id}") | Q(actor__startswith=f"user:{owner_id}:")
    system = actors | Q(kind__in=("organisation.halted", "organisation.released"))
    return AuditEvent.objects.filter(Q(chain__in=chains) | Q(system, chain=SYSTEM_CHAIN)).order_by("-pk")


ROWS: Final[Mapping[str, RowKind]] = {
    "run": RowKind(
        AgentSession,
        lambda pk: AgentSession.objects.filter(owner_id=pk).select_related("agent", "trigger").order_by("-pk"),
        _run,
        ("error", "result_reason", "findings__document__name", "status", "mode"),
    ),
    "finding": RowKind(
        Finding,
        lambda pk: (
            Finding.objects.filter(session__owner_id=pk)
            .select_related("session__agent", "document")
            .order_by("-created_at", "-pk")
        ),
        _finding,
        ("title", "content", "quote", "document__name", "session__agent__name"),
    ),
    "agent": RowKind(
        Agent,
        lambda pk: (
            Agent.objects.filter(owner_id=pk, archived_at__isnull=True).select_related("owner").order_by("name", "pk")
        ),
        _agent,
        ("name", "definition"),
    ),
    "trigger": RowKind(
        Trigger,
        lambda pk: (
            Trigger.objects.filter(owner_id=pk, deleted_at__isnull=True)
            .select_related("agent", "collection")
            .order_by("-pk")
        ),
        _trigger,
        ("name", "agent__name", "collection__name", "kind"),
    ),
    "approval": RowKind(
        Approval,
        lambda pk: (
            Approval.objects.filter(session__owner_id=pk)
            .alias(call=Cast("arguments", TextField()))
            .select_related("session__agent", "resolved_by")
            .order_by("-created_at", "-pk")
        ),
        _approval,
        ("action", "description", "call", "session__agent__name"),
    ),
    "sensor": RowKind(
        Sensor,
        lambda pk: (
            Sensor.objects.filter(agent__owner_id=pk, agent__archived_at__isnull=True)
            .select_related("agent")
            .order_by("agent__name", "name")
        ),
        _sensor,
        ("name", "agent__name", "problem"),
        by_number=True,
    ),
    "document": RowKind(
        Document,
        lambda pk: Document.objects.filter(owner_id=pk, deleted_at__isnull=True).order_by("-created_at", "-pk"),
        _document,
        ("name", "text"),
    ),
    "event": RowKind(AuditEvent, _own_events, _event, ("kind",), by_number=True),
}


def without_questions(runs: QuerySet[AgentSession]) -> QuerySet[AgentSession]:
    """Return runs without the questions to the console themselves."""
    return runs.exclude(mode=Mode.CHAT, params__way="console")


# --- References in answers ---


def manual_reference(page: str, anchor: str) -> str:
    return f"manual:{page}#{anchor[:80]}"


def references_in(results: Iterable[Any]) -> list[str]:
    """Return the references of the rows in results of these skills, in order, once each."""
    rows = [row for result in results if isinstance(result, Mapping) for row in result.get("rows", ())]
    return list(dict.fromkeys(str(row["ref"]) for row in rows if isinstance(row, Mapping) and "ref" in row))


def references_cited(text: str) -> list[str]:
    return list(dict.fromkeys(f"{kind}:{key}" for kind, key in REF.findall(text)))
