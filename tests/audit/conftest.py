"""Fixtures of the record's tests."""

from pathlib import Path

import pytest
from django.conf import settings as configured
from django.db import connection

from audit import triggers


@pytest.fixture(scope="session", autouse=True)
def _static_folder():
    """WhiteNoise warns of a missing folder, and warnings are errors."""
    Path(configured.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def unguarded(db):
    """The triggers dropped, as the owner of the database can; the test's own rollback brings them back."""
    triggers.remove(connection)


@pytest.fixture
def checkpoint_file(tmp_path, settings):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "kept" / "checkpoints.jsonl"
    return settings.LQOPS_CHECKPOINT_FILE
