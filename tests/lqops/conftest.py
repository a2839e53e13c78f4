"""A real web process whose streams poll often, and a client for it."""

import httpx
import pytest

from agents.management import supervisor
from tests.lqops.serving import web_process


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_forked():
    """A process of tests has threads and connections of its own: its children are new interpreters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "can_fork", lambda: False)
        yield


@pytest.fixture(scope="module")
def web(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock(), web_process("tests.lqops.hasty:application") as served:
        yield served


@pytest.fixture(scope="module")
def http(web):
    with httpx.Client(base_url=web.address, timeout=60, verify=False) as client:
        yield client


@pytest.fixture
def short_lived(http):
    """Streams that start in this test live for one second."""
    http.get("/lifetime/1")
    yield
    http.get("/lifetime/300")


@pytest.fixture(autouse=True)
def _fresh_health(monkeypatch):
    """Each request sees what the test has just changed."""
    monkeypatch.setattr("lqops.web.HEALTH_SECONDS", -1.0)
