"""Archiving of runs: which may be, what goes into their file, and what is dropped.

A run may be archived when it is over, old enough, and nothing of it waits for anybody: no open approval, question,
finding, input, call or amount, and nothing to hand back. Its row stays, with money, result and a short receipt, and so
do its findings, approvals, model calls and memories. Calls, transcript, skill audits and audit events go.
"""

import json
from collections.abc import Generator, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet

from agents.conf import findings_wait
from agents.enums import ApprovalStatus, FindingState, InputState, Outcome, QuestionStatus, Status
from agents.knowledge.findings import BY_TIME
from agents.models import (
    AgentSession,
    Approval,
    Finding,
    InferenceLog,
    Message,
    Question,
    SharedText,
    StreamPart,
    ToolCall,
    UnreadInput,
)
from agents.models.shared_texts import AT_ONCE, SharedTextField, SharedTextJSONField, named_texts
from agents.policy.transitions import TERMINAL
from agents.retention.totals import note_dropped
from audit.models import SkillAudit
from audit.receipts import build_receipt
from audit.rows import AsStored
from audit.seals import Range
from audit.segments import ArchiveError, Content

_LISTS: Final = ("events", "tool_calls", "other_events", "phase_transitions")
# Of a run's own row: what does not change any more when it is over.
_RUN: Final = (
    "public_id", "mode", "trigger_kind", "trigger_ref", "slot", "params", "definition_version", "definition_digest",
    "status", "terminal_reason", "created_at", "started_at", "completed_at", "max_cost_usd", "cost_total_usd",
    "cost_actual_usd", "total_tokens", "metadata", "result", "run_result", "result_reason", "error",
)  # fmt: skip


def _waits() -> dict[str, Q]:
    """Why a run that is over and old enough is kept all the same: a condition on its row for each reason."""

    def has(model: type[models.Model], **where: Any) -> Q:
        return Q(Exists(models.QuerySet(model).filter(session=OuterRef("pk"), **where)))

    return {
        "open approval": has(Approval, status=ApprovalStatus.PENDING),
        "open question": has(Question, status=QuestionStatus.PENDING),
        "call that is not settled": has(ToolCall, outcome=Outcome.STARTED),
        "call with an unknown outcome": has(ToolCall, unknown_since__isnull=False),
        **_findings_wait(),
        "input that was not read": Q(
            Exists(UnreadInput.objects.filter(session=OuterRef("pk")).exclude(state=InputState.DISMISSED))
        ),
        "money that is not settled": Q(cost_reserved_usd__gt=0) | Q(cost_held_usd__gt=0),
        "run below it that is not over": Q(
            Exists(AgentSession.objects.filter(parent=OuterRef("pk")).exclude(status__in=sorted(TERMINAL)))
        ),
        "cap that was not handed back": Q(parent__isnull=False, handed_back_at__isnull=True),
    }


def _findings_wait() -> dict[str, Q]:
    """The reasons among findings: of low severity they wait for time, if the setting says so, others for people."""
    of_run = Finding.objects.work().filter(session=OuterRef("pk"))
    wait = findings_wait()
    low, when = of_run.filter(BY_TIME), f"expires after {wait.days} days" if wait else "waits for people"
    higher = of_run.filter(state=FindingState.OPEN, assignee__isnull=True).exclude(BY_TIME)
    taken = of_run.filter(Q(state=FindingState.ACKNOWLEDGED) | Q(state=FindingState.OPEN, assignee__isnull=False))
    return {
        f"open finding of low severity, which {when}": Q(Exists(low)),
        "open finding of higher severity, which waits for people": Q(Exists(higher)),
        "finding that somebody has acknowledged or was assigned": Q(Exists(taken)),
    }


def over(before: datetime) -> QuerySet[AgentSession]:
    """Runs that ended before this time and are not archived."""
    ended = Q(status__in=[status for status in Status if status in TERMINAL])
    return AgentSession.objects.filter(
        ended, completed_at__isnull=False, completed_at__lt=before, archived_at__isnull=True
    )


def archivable(before: datetime) -> QuerySet[AgentSession]:
    found = over(before)
    for condition in _waits().values():
        found = found.exclude(condition)
    return found


def held(before: datetime) -> dict[str, int]:
    """How many runs that are old enough are kept, by reason; a run may have several."""
    counts = {reason: over(before).filter(condition).count() for reason, condition in _waits().items()}
    return {reason: number for reason, number in counts.items() if number}


# --- The second file of a segment: one JSON object in each line ---


def content(before: datetime) -> Content:
    """What belongs to the chains of runs that ended before this time."""
    return Content(lines=lines, drop=lambda ranges, now: drop(ranges, before=before, now=now))


def lines(chains: list[str]) -> Generator[str, None, None]:
    """Yield the rows of runs, each with the name of its table; long texts once, where they are first named."""
    known: set[str] = set()
    runs = {str(run["public_id"]): run for run in AgentSession.objects.filter(public_id__in=chains).values("pk", *_RUN)}
    for chain in chains:
        run = runs.get(chain)
        if run is None:
            raise ArchiveError(f"chain {chain} belongs to no run.")
        pk = run.pop("pk")
        yield _line("run", run)
        for model, order in ((ToolCall, "pk"), (Message, "seq"), (InferenceLog, "pk")):
            yield from _table(models.QuerySet(model).filter(session=pk).order_by(order), known)
        yield from _table(SkillAudit.objects.filter(chain=chain).order_by("pk"), known)


def _table(rows: QuerySet[Any], known: set[str]) -> Iterator[str]:
    fields = rows.model._meta.concrete_fields
    shared = [field.name for field in fields if isinstance(field, SharedTextField | SharedTextJSONField)]
    plain = [field.attname for field in fields if field.name not in shared and field.name not in {"session", "id"}]
    as_json = {field.name for field in fields if isinstance(field, SharedTextJSONField)}
    raw = {f"stored_{name}": AsStored(name) for name in shared}
    for row in rows.values(*plain, **raw):
        texts = {name: row.pop(f"stored_{name}") for name in shared}
        yield from _texts((digest for text in texts.values() for digest in named_texts(text)), known)
        for name, text in texts.items():
            row[name] = json.loads(text) if name in as_json and text is not None else text
        yield _line(rows.model._meta.model_name or "", row)


def _texts(digests: Iterable[str], known: set[str]) -> Iterator[str]:
    new = [digest for digest in dict.fromkeys(digests) if digest not in known]
    known.update(new)
    for start in range(0, len(new), AT_ONCE):
        rows = SharedText.objects.filter(digest__in=new[start : start + AT_ONCE]).order_by("digest")
        for digest, text in rows.values_list("digest", "text"):
            yield _line("text", {"digest": digest, "text": text})


def _line(table: str, row: dict[str, Any]) -> str:
    return json.dumps({table: row}, sort_keys=True, separators=(",", ":"), default=_plain) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in the archive")


# --- Dropping, in the transaction that drops the audit events ---


def drop(ranges: list[Range], *, before: datetime, now: datetime) -> None:
    """Drop what was archived of these runs, and leave their rows with a short receipt."""
    note_dropped(ranges)
    chains = [one.chain for one in ranges if not one.is_system]
    if not chains:
        return
    rows = list(archivable(before).filter(public_id__in=chains).select_for_update(of=("self",)).order_by("pk"))
    if len(rows) != len(chains):
        left = sorted(set(chains) - {row.chain for row in rows})
        raise ArchiveError(
            f"{len(left)} runs of a sealed segment wait for somebody again, or are gone: {', '.join(left[:5])}. Settle "
            "what is open on their pages, then prune again."
        )
    pks = [row.pk for row in rows]
    for model in (ToolCall, Message, StreamPart):
        models.QuerySet(model).filter(session__in=pks).delete()
    for row in rows:
        row.result = short_receipt(build_receipt(row.chain))
        row.archived_at = now
    AgentSession.objects.bulk_update(rows, ["result", "archived_at"])


def short_receipt(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt without its longest lists: owner, times, outcome, totals, and the head of its chain."""
    return {**receipt, **{name: [] for name in _LISTS}}
