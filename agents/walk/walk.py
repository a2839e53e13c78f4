"""The engine of phased sessions: intake → analysis → drafting → ethics_review → delivery, always in this order.

A phase begins with an audit row, works by guarded calls, and passes nothing on in memory: what a later phase needs
stands in the journal. So a resumed run begins at the phase it is in. Brakes are not caught here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from agents.conf import clock
from agents.enums import Phase
from agents.models import AgentSession
from agents.sessions.lifecycle import session_enter_phase
from agents.types import End, Finished, SliceOver
from agents.walk.analysis import analysis
from agents.walk.drafting import delivery, drafting, ethics_review
from agents.walk.intake import Slice, intake

PHASES: Final[Mapping[Phase, Callable[[Slice], End | None]]] = MappingProxyType(
    {
        Phase.INTAKE: intake,
        Phase.ANALYSIS: analysis,
        Phase.DRAFTING: drafting,
        Phase.ETHICS_REVIEW: ethics_review,
        Phase.DELIVERY: delivery,
    }
)


def walk(session: AgentSession) -> End:
    """Go on from the session's phase until it ends, has to wait, or its slice is over."""
    work = Slice(session, started_at=clock())
    order = tuple(PHASES)
    first = order.index(Phase(session.current_phase))
    for phase in order[first:]:
        session_enter_phase(session, phase, now=clock())
        # Entered before the slice ends: the next one begins there, so every slice advances by a phase.
        if phase != order[first] and work.is_over:
            return SliceOver()
        end = PHASES[phase](work)
        if end is not None:
            return end
    return Finished()
