"""How much processor time do conditions take? 500 sensors with one condition each, judged in a loop; no model, no rows.

python -m tests.benchmarks.conditions [--sensors 500] [--readings 100]
"""

import argparse
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from agents.policy.conditions import Condition, judge

KINDS = (
    Condition(path="data.value", above=Decimal(80), clear=Decimal(70), hold=30),
    Condition(path="data.value", between=(Decimal(1), Decimal(5))),
    Condition(path="data.text", matches=r"ERROR|CRITICAL|(a+)+$"),
    Condition(path="data.text", changed=True),
    Condition(path="data.beat", absent_for=60),
)


def processor_seconds(sensors: int, readings: int) -> float:
    """Judge so many readings of so many sensors; return the processor time of one reading of all of them."""
    states = [{} for _ in range(sensors)]
    now = datetime(2026, 3, 14, tzinfo=UTC)
    started = time.process_time()
    for number in range(readings):
        reading = {"data": {"value": number % 100, "text": f"line {number} " + "a" * 200, "beat": number}}
        for index in range(sensors):
            condition = KINDS[index % len(KINDS)]
            states[index] = judge((condition,), states[index], [reading], now=now, each=False).state
        now += timedelta(seconds=1)
    return (time.process_time() - started) / readings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sensors", type=int, default=500)
    parser.add_argument("--readings", type=int, default=100)
    given = parser.parse_args()
    processor_seconds(given.sensors, 5)
    seconds = processor_seconds(given.sensors, given.readings)
    print(f"{given.sensors} sensors: {seconds * 1000:.2f} ms of processor time for one reading of each")


if __name__ == "__main__":
    main()
