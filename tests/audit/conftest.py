"""Fixtures of the tests of the audit log."""

import pytest
from django.db import connection
from django.test import override_settings

from audit import models


@pytest.fixture
def unguarded(db):
    """The triggers dropped, as the owner of the database can; the test's own rollback brings them back."""
    models.remove(connection)


@pytest.fixture(scope="module")
def own_urls():
    """The pages of the audit log alone. For a module: Django reads all addresses anew after a change."""
    with override_settings(ROOT_URLCONF="tests.audit.urls"):
        yield


@pytest.fixture(autouse=True)
def checkpoint_file(tmp_path, settings):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "kept" / "checkpoints.jsonl"
    return settings.LQOPS_CHECKPOINT_FILE
