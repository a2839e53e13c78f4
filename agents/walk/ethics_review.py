"""Ethics review: one finding with the privilege and scope concerns that the model itself raised, or with none.

It is a light review: it shows what the model flagged, and judges nothing by itself. A run in which no model answered
has nothing to review and says nothing here.
"""

from typing import Any, Final

from agents.enums import ToolIntent
from agents.types import End
from agents.walk.analysis import reply_of
from agents.walk.calls import Slice, store
from agents.walk.parsing import Analysis

KEY: Final = "ethics"
CAVEAT: Final = "A light review: these are the model's own concerns, not an independent judgement."
NONE: Final = "The model flagged no privilege or scope concern."
UNREADABLE: Final = "The answer had no structure, so a concern in its text would not have been recognised."


def ethics_review(work: Slice) -> End | None:
    said = reply_of(work).analysis
    if said is not None:
        store(work.session, ToolIntent.EMIT_FINDING, KEY, _finding(said))
    return None


def _finding(analysis: Analysis) -> dict[str, Any]:
    if not analysis.concerns:
        said = NONE if analysis.is_structured else UNREADABLE
        return {"severity": "info", "title": "Ethics review: none flagged", "content": f"{said}\n\n{CAVEAT}"}
    parts = [
        "\n".join([f"{label}:", *(f"- {concern}" for concern in concerns)])
        for label, concerns in (("Privilege", analysis.privilege_concerns), ("Scope", analysis.scope_concerns))
        if concerns
    ]
    title = f"Ethics review: {len(analysis.concerns)} flagged"
    return {"severity": "warn", "title": title, "content": "\n\n".join([*parts, CAVEAT])}
