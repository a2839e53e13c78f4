"""Sensors: they keep the hot state of running loops fresh, many in one slice."""
