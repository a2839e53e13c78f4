"""How dates and times are written."""
