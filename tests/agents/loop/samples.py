"""Skills for loops: one with side effects, one that reads a price, one that fails to."""

from agents.enums import Level
from agents.skills.skill import skill

pressed = []
price = {"now": 31}


@skill(level=Level.CONTROLLED, local=True)
def press(button: str = "") -> str:
    """Presses a button."""
    pressed.append(button)
    return f"pressed {button}"


@skill(level=Level.SAFE, side_effects=False, local=True)
def read_price(symbol: str = "") -> int:
    """The price of something."""
    return price["now"]


@skill(level=Level.SAFE, side_effects=False, local=True)
def lose_price() -> int:
    """Fails to read a price."""
    raise ValueError("no price today")
