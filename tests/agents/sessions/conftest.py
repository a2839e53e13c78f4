"""The fixtures that standing approvals of skills need, and pages without their frame."""

from tests.agents.admin.frame import frameless
from tests.agents.skills.conftest import sample_skills

__all__ = ["frameless", "sample_skills"]
