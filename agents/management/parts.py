"""The parts of an installation on one machine, as processes: the web, the queue's workers, the ticker."""

from django.db import connection

from agents.management.children import Child, Children, Say
from agents.management.progress import Progress
from agents.management.web import Web, open_socket

__all__ = ["Web", "everything", "open_socket", "without_web"]


def everything(web: Web, *, say: Say) -> Children:
    return Children([web, *_workers_and_ticker()], say=say, stalled=Progress().look)


def without_web(*, say: Say, ticker: bool = True) -> Children:
    children = _workers_and_ticker()
    return Children(children if ticker else children[:1], say=say, stalled=Progress().look)


def _workers_and_ticker() -> list[Child]:
    # A connection is kept by those who use it all the time; the web process opens one for each request.
    kept = {"LQOPS_CONN_MAX_AGE": "600" if connection.vendor == "sqlite" else "60"}
    return [Child("workers", ["qcluster"], environment=kept), Child("ticker", ["tick"], environment=kept)]
