"""The engine of phased sessions: intake → analysis → drafting → ethics_review → delivery, always in this order.

A phase begins with an audit row, works by guarded calls, and passes nothing on in memory: what a later phase needs
stands in the journal. So a resumed run begins at the phase it is in. Brakes are not caught here.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from django.db import InterfaceError, OperationalError, transaction

from agents.conf import clock
from agents.enums import Phase
from agents.exceptions import LeaseLost
from agents.ledger.boundary import was_in_the_way
from agents.models import AgentSession
from agents.sessions.lifecycle import session_enter_phase
from agents.types import End, Finished, SliceOver
from agents.walk.analysis import analysis
from agents.walk.drafting import delivery, drafting, ethics_review, found_of, saves_drafts
from agents.walk.intake import Slice, intake

logger = logging.getLogger(__name__)

PHASES: Final[Mapping[Phase, Callable[[Slice], End | None]]] = MappingProxyType(
    {
        Phase.INTAKE: intake,
        Phase.ANALYSIS: analysis,
        Phase.DRAFTING: drafting,
        Phase.ETHICS_REVIEW: ethics_review,
        Phase.DELIVERY: delivery,
    }
)


WRITING: Final = (Phase.DRAFTING, Phase.ETHICS_REVIEW, Phase.DELIVERY)  # they ask no model


def walk(session: AgentSession) -> End:
    """Go on from the session's phase until it ends, has to wait, or its slice is over."""
    work = Slice(session, started_at=clock())
    order = tuple(PHASES)
    first = order.index(Phase(session.current_phase))
    for phase in order[first:]:
        if phase == WRITING[0] and (end := _write(work)) is not None:
            return end
        session_enter_phase(session, phase, now=clock())
        # Entered before the slice ends: the next one begins there, so every slice advances by a phase.
        if phase != order[first] and work.is_over:
            return SliceOver()
        end = PHASES[phase](work)
        if end is not None:
            return end
    return Finished()


def _write(work: Slice) -> End | None:
    """Go through the phases whose whole effect is rows in one transaction.

    None: nothing was written. They are gone through one by one then, and what stops them is written down.
    """
    if work.is_over or saves_drafts(work):
        return None
    found_of(work)  # read and checked before anything is locked
    before = dict(vars(work.session))
    try:
        with transaction.atomic():
            for phase in WRITING:
                session_enter_phase(work.session, phase, now=clock())
                end = PHASES[phase](work)
                if end is not None:
                    return end
    except Exception as error:
        is_lost = isinstance(error, LeaseLost | OperationalError | InterfaceError) and not was_in_the_way(error)
        if is_lost:
            raise  # the run is, or is to be, taken over
        # Whatever else it was comes again outside of the transaction, or not at all.
        logger.info("session %s: writing one by one", work.session.public_id, exc_info=True)
        vars(work.session).update(before)
        return None
    return Finished()
