"""Agents, their runs, and the one guard that every act passes."""

__version__ = "0.2.0"
