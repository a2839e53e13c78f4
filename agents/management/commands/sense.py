"""`sense`: the workers of the sensor queue. They release their sensors when they are stopped."""

from typing import Any

from agents.management.base import register_host
from agents.queue import Queue, run_cluster
from agents.sensors.slice import request_stop
from audit.management.base import ActingCommand

WORKERS = 2


class Command(ActingCommand):
    help = (
        "Runs two sensor workers, with up to 250 sensors each, until it is stopped. `up` and `work` start it "
        "automatically while there are sensors. It may run on any number of machines."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        register_host()
        run_cluster(Queue.SENSORS, workers=WORKERS, before_stop=request_stop)
