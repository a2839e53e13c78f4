"""What the walk tests share."""

from unittest.mock import patch

import pytest

from agents import runner
from tests.agents.walk.scene import Scene


@pytest.fixture(autouse=True)
def _no_heartbeat_from_another_connection():
    """Inside a test's own transaction the row is not visible to the heartbeat's connection."""
    with patch.object(runner, "lease_renewal_seconds", return_value=60):
        yield


@pytest.fixture
def scene(db):
    return Scene()
