"""Agents as files: agent.yaml, read strictly, with errors that name the line and the key. Pure."""
