"""The parts of an installation on one machine, as processes: web, workers, ticker; and sensors, while there are any."""

from django.conf import settings
from django.db import connection

from agents.management.commands.sample_metrics import place, url
from agents.management.commands.sense import WORKERS
from agents.management.demanded import Demanded, Parts
from agents.management.progress import Progress, SensorProgress
from agents.management.supervisor import Child, Children, Say
from agents.management.web import Web, open_socket
from agents.models import Sensor
from agents.sensors.rows import sensors_wanted

__all__ = ["Web", "everything", "open_socket", "without_web"]

LINGERS = 60.0  # seconds that the workers of sensors stay when there is nothing to mind


def everything(web: Web, *, say: Say) -> Children:
    demanded = [_sensors(_reaching_sample_source()), _sample_source()]
    return Parts([web, *_workers_and_ticker()], say=say, demanded=demanded, stalled=Progress().look)


def without_web(*, say: Say, ticker: bool = True) -> Children:
    children = _workers_and_ticker()
    return Parts(children if ticker else children[:1], say=say, demanded=[_sensors({})], stalled=Progress().look)


def _workers_and_ticker() -> list[Child]:
    workers = Child("workers", ["qcluster", "--skip-checks"], environment=_kept())
    return [workers, Child("ticker", ["tick"], environment=_kept())]


def _sensors(environment: dict[str, str]) -> Demanded:
    child = Child("sensors", ["sense"], environment=_kept() | environment)
    return Demanded(child, wanted=sensors_wanted, stalled=SensorProgress(WORKERS).look, lingers=LINGERS)


def _sample_source() -> Demanded:
    """What the sample agent for figures listens to, while it listens."""
    listening = Sensor.objects.filter(wanted=True, agent__enabled=True, config__source__url=url())
    return Demanded(Child("sample figures", ["sample_metrics"]), wanted=listening.exists, lingers=LINGERS)


def _reaching_sample_source() -> dict[str, str]:
    """This one place on this machine, for the sensors alone: what listens there is a part of ours."""
    return {"LQOPS_NET_ALLOW_HOSTS": ",".join([*settings.LQOPS_NET_ALLOW_HOSTS, place()])}


def _kept() -> dict[str, str]:
    """A connection is kept by those who use it all the time; the web process opens one for each request."""
    return {"LQOPS_CONN_MAX_AGE": "600" if connection.vendor == "sqlite" else "60"}
