"""The admin pages of the agents: runtime rows to read, and the levers that services give."""

from agents.admin import definitions, money, sessions

__all__ = ["definitions", "money", "sessions"]
