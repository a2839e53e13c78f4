"""Checks before it matters: whether an installation is sound, and what a model makes of real questions."""
