"""Pieces of replies for those who watch: removed when their run is over."""

from datetime import datetime

from agents.models import StreamPart
from agents.policy.transitions import TERMINAL


def parts_forget(older_than: datetime) -> int:
    """Removes the pieces of runs that are over."""
    over = StreamPart.objects.filter(session__status__in=sorted(TERMINAL), created_at__lte=older_than)
    return over.delete()[0]
