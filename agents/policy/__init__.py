"""Pure decisions: brakes, costs, consent, transitions, limits, schedules. No Django, no rows, no I/O."""
