"""Agents as rows: create, start, stop, load from files."""
