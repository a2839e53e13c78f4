"""What a run has done so far, read from its journal. A resumed run knows nothing else of the slices before it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from agents.enums import Outcome, ToolIntent
from agents.models import AgentSession, ToolCall

SEVERITIES: Final = ("critical", "warn", "info")
OTHER: Final = "other"


@dataclass(frozen=True)
class Left:
    """Something that a run has left behind: by which call, at which place, and, of a finding, how severe."""

    key: str
    intent: str
    severity: str


def by_severity(severities: Iterable[str]) -> Counter[str]:
    """A severity is free text of a model; a notice shows only known words."""
    return Counter(one if one in SEVERITIES else OTHER for one in severities)


def counted(found: Counter[str]) -> str:
    """Such as `1 critical, 2 warn`."""
    return ", ".join(f"{found[name]} {name}" for name in (*SEVERITIES, OTHER) if found[name]) or "none"


def call_latest(session: AgentSession, key: str) -> ToolCall | None:
    """The last attempt at the call that stands at this place of the run."""
    return ToolCall.objects.filter(session_id=session.pk, key=key).order_by("-attempt").first()


def arguments_asked(session: AgentSession, key: str) -> dict[str, Any] | None:
    """The arguments of that attempt, unless a person changed them. Read in SQL: it is asked at every call."""
    rows = ToolCall.objects.raw(
        f"SELECT id, arguments, digest, asked_digest FROM {ToolCall._meta.db_table} "  # noqa: S608
        "WHERE session_id = %s AND key = %s ORDER BY attempt DESC LIMIT 1",
        [session.pk, key],
    )
    for made in rows:
        return made.arguments if made.digest == made.asked_digest else None
    return None


def calls_latest(session: AgentSession, *, under: str = "") -> dict[str, ToolCall]:
    """The last attempt at each call whose key begins with `under`, by key, in the order in which they were made."""
    rows = ToolCall.objects.filter(session_id=session.pk, key__startswith=under)
    return {row.key: row for row in rows.order_by("pk")}


def run_left(session: AgentSession) -> list[Left]:
    """What the run has stored for its owner, in order: labels only, no content. A draft may not have been stored."""
    intents = (
        ToolIntent.EMIT_FINDING,
        ToolIntent.PROPOSE_MEMORY,
        ToolIntent.PROPOSE_PRECEDENT,
        ToolIntent.EMIT_ARTIFACT,
    )
    rows = ToolCall.objects.filter(session_id=session.pk, intent__in=intents, outcome=Outcome.SUCCESS).order_by("pk")
    return [
        Left(key, intent, str(severity or ""))
        for key, intent, severity, stored in rows.values_list("key", "intent", "arguments__severity", "result__stored")
        if stored is not False
    ]
