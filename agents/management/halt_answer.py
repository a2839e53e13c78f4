"""What `halt --all` prints. Needs no models: a halt may not wait until they are loaded."""

from datetime import datetime
from typing import Any


def all_halted_text(*, ending: int, spared: int) -> str:
    runs = "1 active run ends" if ending == 1 else f"{ending} active runs end"
    left = f" Spared, because they wait for a person: {spared}." if spared else ""
    return f"All work is halted until `release`. {runs} now.{left}"


def all_halted_facts(
    *, halt_id: int, by: str | None, since: datetime, reason: str, ending: int, spared: int, already: bool = False
) -> dict[str, Any]:
    """The halt in force, and the number of sessions that were active."""
    return {
        "halt_id": halt_id,
        "halted": "all",
        "already_halted": already,
        "by": by,
        "since": since.isoformat(),
        "reason": reason,
        "sessions": ending,
        "spared": spared,
    }
