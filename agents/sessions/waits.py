"""Whether a session that is about to lie down still has something to lie down for. The caller holds its row.

What it would wait for, or wake for, may have come while it was at work; then nobody would wake it.
"""

from typing import Final

from agents.enums import ApprovalStatus, Outcome, QuestionStatus, WaitingOn
from agents.models import AgentSession, Alert, Approval, Question, ToolCall

WAKES: Final = "wake_early_if"  # in a session's metadata: the names of alerts that end its sleep
HEARD: Final = "heard"  # in a session's metadata: the events that came since the agent last lay down
CHAT_MESSAGE: Final = "chat_message"  # the alert that somebody has spoken with the agent


def is_awaited(row: AgentSession, waiting_on: WaitingOn) -> bool:
    """False when nothing is left to wait for: a decision that came first would otherwise wake nobody."""
    if waiting_on == WaitingOn.APPROVAL:
        return Approval.objects.filter(session=row, status=ApprovalStatus.PENDING).exists()
    if waiting_on == WaitingOn.OPERATOR:
        return ToolCall.objects.filter(session=row, outcome=Outcome.UNKNOWN).exists()
    return Question.objects.filter(session=row, status=QuestionStatus.PENDING).exists()


def wakes_for(row: AgentSession, name: str) -> bool:
    return name in (row.metadata.get(WAKES) or ())


def is_called(row: AgentSession) -> bool:
    """True when an alert that ends its sleep is there already."""
    names = row.metadata.get(WAKES)
    return bool(names) and Alert.objects.pending().filter(session=row, name__in=names).exists()
