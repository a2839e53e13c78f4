"""The skill of the manual, which tests.benchmarks.isolation calls."""

from agents.enums import Level
from agents.skills.skill import skill


@skill(level=Level.SAFE, side_effects=False)
def celsius(fahrenheit: float) -> float:
    """Converts degrees Fahrenheit to degrees Celsius."""
    return round((fahrenheit - 32) * 5 / 9, 1)
