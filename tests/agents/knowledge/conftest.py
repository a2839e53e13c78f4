"""Each test keeps its bytes in a folder of its own, and a busy machine has time to read them."""

import pytest

from agents.text import extraction


@pytest.fixture(autouse=True)
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    return settings.MEDIA_ROOT


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(extraction, "MAX_SECONDS", dict.fromkeys(extraction.MAX_SECONDS, 60))
