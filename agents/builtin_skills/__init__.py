"""The skills that ship with lqops. They are loaded like any other."""
