"""Skills for tests: one of each kind that the guard tells apart."""

import time

from agents.enums import Level
from agents.skills.skill import SkillContext, skill
from agents.types import ModelRequest


@skill(level=Level.SAFE, side_effects=False, local=True)
def echo(text: str, times: int = 1) -> str:
    """Says a text again."""
    return text * times


@skill(level=Level.CONTROLLED, side_effects=False)
def look(place: str = "") -> dict[str, str]:
    """Looks somewhere."""
    return {"seen": place}


@skill(level=Level.PRIVILEGED, side_effects=False)
def reign(word: str = "") -> str:
    """Does something that few may."""
    return f"done {word}".strip()


@skill(level=Level.CONTROLLED, side_effects=False, timeout_seconds=0.2)
def dawdle(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "at last"


@skill(level=Level.CONTROLLED, timeout_seconds=0.2)
def dawdle_and_act(seconds: float) -> str:
    """Takes its time over something that changes the world."""
    time.sleep(seconds)
    return "at last"


@skill(level=Level.CONTROLLED, side_effects=False)
def fail(words: str) -> str:
    """Fails with these words."""
    raise ValueError(words)


@skill(level=Level.SAFE, side_effects=False, addresses=("url",))
def visit(url: str) -> str:
    """Reads what is at an address."""
    return f"been to {url}"


@skill(level=Level.CONTROLLED, side_effects=False, isolation="process", timeout_seconds=30)
def alone(context: SkillContext, text: str) -> dict[str, str]:
    """Runs in a process of its own."""
    return {"text": text, "key": context.idempotency_key}


@skill(level=Level.RESTRICTED)
def act(what: str) -> str:
    """Changes the world."""
    return f"did {what}"


@skill(level=Level.SAFE, side_effects=False)
def wait_a_second(name: str) -> str:
    """Takes a second."""
    time.sleep(1)
    return name


@skill(
    level=Level.SAFE,
    side_effects=False,
    request=lambda arguments: ModelRequest(
        "test-model", ({"role": "user", "content": arguments["about"]},), max_tokens=256
    ),
)
def wonder(context: SkillContext, about: str) -> str:
    """Asks a model about something."""
    return context.infer().text
