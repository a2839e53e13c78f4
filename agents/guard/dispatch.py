"""The door to the handlers: it opens once per pass, and only the guard makes passes.

The right to make passes can be taken once per process; the guard takes it when it is imported.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from agents.guard.tools import Params, Tool
from agents.skills.skill import SkillContext


class NoPass(RuntimeError):
    """A handler was about to run without a fresh pass of the guard for this call."""


class Pass:
    """The right to run one call once."""

    __slots__ = ("call_id", "spent")

    def __init__(self, call_id: UUID, *, _made_by: object) -> None:
        if _made_by is not _MAKER:
            raise NoPass("passes are made by agents.guard.guard alone.")
        self.call_id = call_id
        self.spent = False


_MAKER = object()
_taken = False


def take_pass_maker() -> Callable[[UUID], Pass]:
    global _taken  # noqa: PLW0603 one process, one guard
    if _taken:
        raise NoPass("the right to make passes is taken: agents.guard.guard holds it.")
    _taken = True
    return lambda call_id: Pass(call_id, _made_by=_MAKER)


def run(permit: Pass, tool: Tool, context: SkillContext, params: Params) -> Any:
    if type(permit) is not Pass or permit.spent or permit.call_id != context.call_id:
        raise NoPass(f"call {context.call_id} has no fresh pass of the guard.")
    permit.spent = True
    return tool.handler(context, params)
