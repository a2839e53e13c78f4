"""A listener for tests that want a reply whole."""


def ignore(chunk):
    """Take a chunk and do nothing with it."""
