"""What a phase works with: the slice at hand, and the storing of what it has to say."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.conf import clock, slice_lifetime
from agents.engine.calls import call
from agents.enums import ToolIntent
from agents.exceptions import LqopsError
from agents.models import AgentSession


class NotStored(LqopsError):
    """What the run has to say could not be written down. It fails, rather than end as if nothing had been found."""

    code = "not_stored"


@dataclass(frozen=True)
class Slice:
    """The piece of work at hand: the held session, and since when this worker has been at it."""

    session: AgentSession
    started_at: datetime

    @property
    def is_over(self) -> bool:
        return clock() - self.started_at >= slice_lifetime()

    @property
    def params(self) -> Mapping[str, Any]:
        return self.session.params or {}

    def param(self, name: str) -> str:
        """A text of the session's parameters; anything else counts as not given."""
        value = self.params.get(name)
        return value if isinstance(value, str) else ""

    def wants(self, name: str) -> bool:
        return self.params.get(name) is True


def store(session: AgentSession, intent: ToolIntent, key: str, params: Mapping[str, Any]) -> None:
    """A call whose whole effect is a row of ours; there is no reason but a fault for it to fail."""
    result = call(session, intent, key, params)
    if not result.ok:
        raise NotStored(f"{intent} at {key} was not stored ({result.outcome}): {result.error}")
