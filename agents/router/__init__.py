"""The decision layer: what a request in words is, decided by rules and without a model, before anything runs."""
