"""Callable skills: what they are, how a model asks for them, and what they may do."""
