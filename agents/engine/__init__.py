"""The step loop that all modes share: ask a model, run its calls through the guard, repeat until an end."""
