"""The one way to act: every tool call and every model call passes `guarded_tool_call`.

guard.py reads top to bottom as the safety argument. Nothing outside this folder imports a handler, the meter or the
settlement; import contracts and tests/architecture hold that.
"""

from agents.guard.guard import can_be_paid, guarded_batch, guarded_group, guarded_tool_call

__all__ = ["can_be_paid", "guarded_batch", "guarded_group", "guarded_tool_call"]
