"""Readers of documents, one module for each family of formats; agents.text.extraction runs them in a subprocess.

Nothing here may import what needs settings. A reader gets bytes and returns parts (agents.text.marks), or raises
`Invalid`, which says what to do.
"""
