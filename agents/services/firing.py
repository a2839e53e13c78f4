"""The door to everything that spawns sessions: triggers, watches, schedules, and people who ask for a run.

What is behind it: spawning.py (one session for one slot), firing_limits.py (when a trigger may not), watches.py,
schedules.py and running_now.py.
"""

from agents.services.firing_limits import Reason, Refused
from agents.services.running_now import demand_run, run_now
from agents.services.schedules import schedules_fire
from agents.services.spawning import Fired, trigger_fire
from agents.services.watches import watches_fire, watches_fire_unfired

__all__ = [
    "Fired",
    "Reason",
    "Refused",
    "demand_run",
    "run_now",
    "schedules_fire",
    "trigger_fire",
    "watches_fire",
    "watches_fire_unfired",
]
