"""The fixtures that write a folder of skills."""

from tests.agents.skill_folders import root, write_skill

__all__ = ["root", "write_skill"]
