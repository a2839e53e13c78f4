"""Agents, their runs, and the one guard that every act passes."""
