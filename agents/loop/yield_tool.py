"""How a turn was yielded: read from the journal of its calls, never from what the agent says."""

from collections.abc import Sequence

from agents.loop.pacing import Yielded, YieldMode
from agents.loop.turns import Done
from agents.models import AgentSession
from agents.policy.guardrails import YIELD
from agents.sessions.reads import call_latest


def read_yield(session: AgentSession, calls: Sequence[Done]) -> Yielded:
    """The last one that was taken wins. A turn without one goes on, as if the agent had said so."""
    taken = [call for call in calls if call.name == YIELD and call.ok]
    made = call_latest(session, max(taken, key=_place).key) if taken else None
    if made is None:
        return Yielded()
    given = made.arguments["arguments"]
    return Yielded(
        mode=YieldMode(given["mode"]),
        sleep=given["sleep"] or 0,
        wake_early_if=tuple(given["wake_early_if"] or ()),
        reason=given["reason"],
    )


def _place(call: Done) -> tuple[int, ...]:
    """Its place in the turn: calls that ran side by side were journalled in any order."""
    return tuple(int(number) for number in call.key.rpartition(":")[2].split("_")[1:])
