"""Both clients, with a fake internet on loopback."""

import pytest

from tests.agents.net.world import Fetch, World


@pytest.fixture
def world():
    small = World()
    yield small
    small.close()


@pytest.fixture(params=["sync", "async"])
def fetch(request, world):
    return Fetch(request.param, world)
