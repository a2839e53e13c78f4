"""`sense`: the workers of the sensors' queue. A cluster of its own, which lets go of its sensors when it is stopped."""

from typing import Any

from agents.queue import Queue, work_on
from agents.sensors.slice import ask_to_stop
from audit.management.base import ActingCommand

WORKERS = 2


class Command(ActingCommand):
    help = (
        "Runs the workers that mind sensors until it is stopped: two of them, 250 sensors each. `up` and `work` start "
        "it by themselves while there are sensors to mind. Run it on as many machines as you like."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        work_on(Queue.SENSORS, workers=WORKERS, before_stop=ask_to_stop)
