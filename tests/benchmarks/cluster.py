"""The workers and the ticker of `manage.py work`, on the database of LQOPS_DATABASE_URL."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

REDIS = "redis://127.0.0.1:6379/15"


@contextmanager
def working(**variables: str) -> Iterator[None]:
    """Have them work inside the block."""
    command = [sys.executable, "manage.py", "work"]
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert any("running" in line for line in process.stdout), "the workers did not start"
            yield
        finally:
            process.terminate()
            process.communicate(timeout=60)


def redis_answers() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", 6379)) == 0
