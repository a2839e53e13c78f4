"""The context of a call that no session makes."""

from datetime import UTC, datetime
from uuid import uuid4

from agents.skills.skill import SkillContext


def make_context(*, stopped=lambda: False):
    return SkillContext(1, uuid4(), 1, uuid4(), "a:1", datetime(2026, 1, 1, tzinfo=UTC), infer=None, stopped=stopped)
