"""R6: what each phase may do. Immutable, pure, and the whole of the matter."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agents.enums import Phase, ToolIntent

_I = ToolIntent

PHASE_GRANTS: Final[Mapping[str, frozenset[ToolIntent]]] = MappingProxyType(
    {
        Phase.INTAKE: frozenset({_I.RETRIEVE_CHUNKS}),
        Phase.ANALYSIS: frozenset({_I.RETRIEVE_CHUNKS, _I.RUN_SKILL, _I.RUN_PLAYBOOK, _I.PROPOSE_PRECEDENT}),
        Phase.DRAFTING: frozenset(
            {_I.RUN_SKILL, _I.EMIT_FINDING, _I.PROPOSE_MEMORY, _I.PROPOSE_PRECEDENT, _I.EMIT_ARTIFACT}
        ),
        Phase.ETHICS_REVIEW: frozenset({_I.EMIT_FINDING}),
        Phase.DELIVERY: frozenset({_I.NOTIFY}),
        Phase.TURN: frozenset(_I) - {_I.EMIT_ARTIFACT},
    }
)


def is_granted(intent: ToolIntent, phase: str) -> bool:
    """An unknown phase grants nothing."""
    return intent in PHASE_GRANTS.get(phase, frozenset())
