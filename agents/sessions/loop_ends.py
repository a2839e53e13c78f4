"""What the end of a loop leaves: no open turn, and nothing that was heard. Its sensors are let go by
agents.sensors.rows, and its hot state is forgotten with other traces: whoever ends a loop waits for nobody who
writes it."""

from datetime import datetime

from django.db.models import Sum

from agents.enums import TerminalReason, TurnState
from agents.models import AgentSession, ToolCall, Turn
from agents.sessions.waits import HEARD
from agents.types import ZERO


def loop_note_end(row: AgentSession, *, reason: TerminalReason, now: datetime) -> None:
    """Whatever ended it. A turn that was open is closed with what it had cost by then."""
    if row.metadata.pop(HEARD, None):
        row.save(update_fields=["metadata"])
    turn = Turn.objects.filter(session=row, state=TurnState.OPEN).first()
    if turn is not None:
        before = (row.metadata.get("loop") or {}).get("last_call", 0)
        spent = ToolCall.objects.filter(session=row, pk__gt=before).aggregate(
            tokens=Sum("tokens", default=0), cost=Sum("charged_usd")
        )
        turn.state, turn.ended_at, turn.reason = TurnState.FAILED, now, str(reason)
        turn.tokens, turn.cost_usd = spent["tokens"], spent["cost"] or ZERO
        turn.definition = ""
        turn.save()
