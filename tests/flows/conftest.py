"""Ends every worker process that a test has left running."""

import pytest

from tests.flows import processes


@pytest.fixture(autouse=True)
def _no_worker_outlives_its_test():
    yield
    while processes.started:
        worker = processes.started.pop()
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.communicate()
