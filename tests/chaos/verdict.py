"""The verdict of a chaos run: what must not have happened, and how much must have happened for that to say anything."""

from collections.abc import Mapping
from typing import Any, Final

# Per minute: a third of what runs of three minutes showed on two processors shared with other work, so that a slower
# machine passes and a load that does nothing fails.
FLOORS: Final[Mapping[str, float]] = {
    "letters": 5,
    "approvals used": 5,
    "unknown outcomes": 0.34,
    "completed walks": 10,
    "completed chats": 2,
    "completed loops": 0.34,
    "turns of loops": 2,
    "kills": 1.4,
}
# Neither the load nor a fault causes these: a run that ends so was sent somewhere it cannot get to.
ASTRAY: Final = frozenset({"stuck_loop", "max_steps", "tool_not_granted", "unpriced_model", "refused"})


def floors(minutes: float) -> dict[str, int]:
    """Return what has to have happened in so many minutes: once at least, however short they were."""
    return {name: max(1, int(per_minute * minutes)) for name, per_minute in FLOORS.items()}


def verdict(figures: Mapping[str, Any], minutes: float) -> list[str]:
    """Return everything for which the run fails, in words; nothing if it passes."""
    wrong = [*figures["problems"], *(f"not at rest: {one}" for one in figures["left"])]
    wrong += [f"{name}: {figures[name]}, and none is allowed" for name in ("lost", "doubled") if figures[name]]
    wrong += [
        f"astray: {number} runs ended with {reason}"
        for reason, number in sorted(figures["reasons"].items())
        if reason in ASTRAY
    ]
    return wrong + [
        f"too few {name}: {figures[name]}, and at least {floor} are expected in {minutes:.1f} minutes"
        for name, floor in floors(minutes).items()
        if figures[name] < floor
    ]
