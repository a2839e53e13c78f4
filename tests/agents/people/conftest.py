"""Pages without their frame."""

from tests.agents.admin.frame import frameless

__all__ = ["frameless"]
