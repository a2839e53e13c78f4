"""Ends every worker process that a test has left running; a cluster with a model server for the tests of a module."""

import os

import pytest

from tests.flows import processes
from tests.flows.cluster import running
from tests.flows.model_server import ModelServer


@pytest.fixture(autouse=True)
def _no_worker_outlives_its_test():
    yield
    while processes.started:
        processes.started.pop().kill()


@pytest.fixture(scope="module")
def _model_of_the_module():
    with ModelServer() as model:
        yield model


@pytest.fixture(scope="module")
def cluster(django_db_setup, django_db_blocker, _model_of_the_module):
    with running(django_db_blocker, _model_of_the_module.environment) as [started]:
        yield started


@pytest.fixture
def model(_model_of_the_module, cluster):
    _model_of_the_module.reset()
    yield _model_of_the_module
    _model_of_the_module.reset()


@pytest.fixture
def redis_url():
    """A Redis of the tests' own database number, emptied. Skipped where none answers."""
    url = os.environ.get("LQOPS_TEST_REDIS_URL", "redis://127.0.0.1:6379/15")
    redis = pytest.importorskip("redis", reason="the redis package is not installed")
    client = redis.Redis.from_url(url)
    try:
        client.flushdb()
    except redis.ConnectionError:
        pytest.skip(f"no Redis answers at {url}")
    yield url
    client.flushdb()
    client.close()
