"""Loads the sample skills beside the built-in ones."""

import pytest

from agents.skills.registry import installed_skills


@pytest.fixture
def sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()
