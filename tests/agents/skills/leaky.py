"""Skills that leak a secret: they return it, fail with it, or send it."""

from agents.enums import Level
from agents.skills.skill import skill

CANARY = "AKIA7QHWN4XKJ2PLM9ZD"
done: list[str] = []  # what the grave ones did


@skill(level=Level.CONTROLLED, side_effects=False)
def leak(place: str = "") -> dict[str, str]:
    """Gives back more than it should."""
    return {"found": f"{place} {CANARY}", CANARY: "as a name"}


@skill(level=Level.CONTROLLED, side_effects=False)
def burst(place: str = "") -> str:
    """Fails with more words than it should."""
    raise ValueError(f"could not sign in with {CANARY} at {place}")


@skill(level=Level.RESTRICTED)
def carry(what: str) -> str:
    """Carries something away."""
    done.append(what)
    return f"carried {what} with {CANARY}"


@skill(level=Level.PRIVILEGED)
def rule(what: str = "") -> str:
    """Does what few may."""
    done.append(what)
    return f"ruled {what}"
