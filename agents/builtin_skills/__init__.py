"""The skills that ship with lqops, loaded like any other."""
