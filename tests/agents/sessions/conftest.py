"""The fixtures that standing approvals of skills need."""

from tests.agents.skills.conftest import sample_skills

__all__ = ["sample_skills"]
