"""`sense`: the workers of the sensor queue. They release their sensors when they are stopped."""

from typing import Any

from agents.queue import Queue, work_on
from agents.sensors.slice import ask_to_stop
from audit.management.base import ActingCommand

WORKERS = 2


class Command(ActingCommand):
    help = (
        "Runs two sensor workers, with up to 250 sensors each, until it is stopped. `up` and `work` start it "
        "automatically while there are sensors. It may run on any number of machines."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        work_on(Queue.SENSORS, workers=WORKERS, before_stop=ask_to_stop)
