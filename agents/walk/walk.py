"""The engine of phased sessions: intake → analysis → drafting → ethics_review → delivery, always in this order.

A phase begins with an audit row and works by guarded calls. What a later phase needs stands in the journal, also if
this slice of work has kept it. So a resumed run begins at the phase it is in. Brakes are not caught here.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from django.db import InterfaceError, OperationalError, transaction

from agents.conf import clock
from agents.enums import Phase
from agents.exceptions import LeaseLost, LqopsError
from agents.ledger.boundary import was_in_the_way
from agents.models import AgentSession
from agents.sessions.lifecycle import session_enter_phase
from agents.types import End, Finished, SliceOver
from agents.walk.analysis import analysis
from agents.walk.drafting import delivery, delivery_notes, drafting, ethics_review, found_of, saves_drafts
from agents.walk.intake import Slice, intake, reads_rows_only

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
    entered = None
    for phase in order[first:]:
        if phase == Phase.INTAKE and _read(work):
            entered = Phase.ANALYSIS
            continue
        if phase == WRITING[0] and (end := _write(work)) is not None:
            return end
        if phase != entered:
            _enter(work, phase)
        # Entered before the slice ends: the next one begins there, so every slice advances by a phase.
        if phase != order[first] and work.is_over:
            return SliceOver()
        end = PHASES[phase](work)
        if end is not None:
            return end
    return Finished()


def _enter(work: Slice, phase: Phase) -> None:
    notes = delivery_notes(work) if phase == Phase.DELIVERY else {}
    session_enter_phase(work.session, phase, now=clock(), notes=notes)


def _read(work: Slice) -> bool:
    """Go through the intake and enter the analysis, if that is rows alone. False: nothing was written."""
    if work.is_over or not reads_rows_only(work):
        return False
    with _together(work) as done:
        _enter(work, Phase.INTAKE)
        PHASES[Phase.INTAKE](work)
        _enter(work, Phase.ANALYSIS)
        done.append(Finished())
    return bool(done)


def _write(work: Slice) -> End | None:
    """Go through the phases from drafting on, if that is rows alone. None: nothing was written."""
    if work.is_over or saves_drafts(work):
        return None
    found_of(work)  # read and checked before anything is locked
    with _together(work) as done:
        done.append(_written(work))
    return done[0] if done else None


def _written(work: Slice) -> End:
    for phase in WRITING:
        _enter(work, phase)
        end = PHASES[phase](work)
        if end is not None:
            return end
    return Finished()


@contextmanager
def _together(work: Slice) -> Iterator[list[End]]:
    """Go through phases whose whole effect is rows in one transaction; yield a list for how it ended.

    It stays empty if nothing was written. The phases are gone through one by one then, and what stops them is written
    down.
    """
    done: list[End] = []
    session, kept = dict(vars(work.session)), dict(work.kept)
    try:
        with transaction.atomic():
            yield done
    except Exception as error:
        is_lost = isinstance(error, LeaseLost | OperationalError | InterfaceError) and not was_in_the_way(error)
        if is_lost:
            raise  # the run is, or is to be, taken over
        # Whatever else it was comes again outside of the transaction, or not at all.
        is_known = isinstance(error, LqopsError)
        logger.info("session %s: phases are gone through one by one", work.session.public_id, exc_info=not is_known)
        done.clear()
        vars(work.session).update(session)
        work.kept.clear()
        work.kept.update(kept)
