"""What a run read and what it came to, noted on its row: inputs, judges, its name, waits, whether it found anything.

Every write is fenced as a worker's write is. Nothing is decided here; a note that stands already is not made again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from agents.ledger.estimates import judges_within_budget
from agents.models import AgentSession
from agents.sessions.lifecycle import held
from audit import recorder


@dataclass(frozen=True)
class Inputs:
    """Ids and versions of what went into a prompt; never its text. What is empty was not read."""

    context_version: int | None = None
    project_id: str = ""
    memory_ids: tuple[str, ...] = ()
    playbook_id: str = ""
    playbook_version: int | None = None
    playbook_digest: str = ""
    skill_id: str = ""
    skill_digest: str = ""
    goal_digest: str = ""

    def details(self) -> dict[str, Any]:
        said = {name: value for name, value in vars(self).items() if value not in (None, "")}
        return {**said, "memory_ids": list(self.memory_ids), "memories": len(self.memory_ids)}


@transaction.atomic
def session_note_inputs(session: AgentSession, inputs: Inputs, *, now: datetime) -> AgentSession:
    """Records what the run reads, before it asks. Said again only if a lost slice had read something else."""
    row = held(session)
    details = inputs.details()
    if row.metadata.get("inputs") == details:
        return row
    row.metadata["inputs"] = details
    row.context_version = inputs.context_version
    row.save(update_fields=["metadata", "context_version"])
    recorder.append(row.chain, "session.inputs", now=now, details=details)
    return row


@transaction.atomic
def session_note_judges(
    session: AgentSession, *, citations: int, judges: Sequence[str], now: datetime
) -> tuple[str, ...]:
    """The judges of this run, chosen once: estimates move, and a resumed run must ask the same ones."""
    row = held(session)
    if "judges" not in row.metadata:
        chosen = judges_within_budget(citations=citations, judges=judges, now=now, chain=row.chain)
        row.metadata["judges"] = list(chosen)
        row.save(update_fields=["metadata"])
    return tuple(row.metadata["judges"])


@transaction.atomic
def session_note_purpose(session: AgentSession, purpose: str) -> str:
    """What the run is called, noted once: things are renamed, and a yes holds for the very words that were shown."""
    row = held(session)
    if "purpose" not in row.metadata:
        row.metadata["purpose"] = purpose
        row.save(update_fields=["metadata"])
    return str(row.metadata["purpose"])


@transaction.atomic
def session_note_wait(session: AgentSession) -> int:
    """How often this run has now waited for money that other calls hold."""
    row = held(session)
    row.metadata["waits"] = int(row.metadata.get("waits", 0)) + 1
    row.save(update_fields=["metadata"])
    return int(row.metadata["waits"])


@transaction.atomic
def session_note_empty(session: AgentSession, *, empty: bool, fault: str = "") -> AgentSession:
    """Whether the run found nothing, and which fault kept it from looking; what becomes of its trigger is decided when
    the run ends."""
    row = held(session)
    noted = {"empty": empty, **({"fault": fault} if fault else {})}
    if row.metadata != {**row.metadata, **noted}:
        row.metadata |= noted
        row.save(update_fields=["metadata"])
    return row
