"""Agents that pace themselves: one turn per task, and the pause between turns is a row."""
