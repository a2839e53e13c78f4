"""How an intent, or a skill, is carried out; the guard, the approver and the journal go by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.guard.context import CallContext
from agents.types import Capability, ModelRequest

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    """A handler and what it declares.

    A local tool's whole effect is rows of ours: authorise, effect and settle are one transaction. A remote tool does
    I/O: it is authorised, dispatched and settled with no transaction open in between. `request` makes it a priced call.
    `refuse` is asked before a person is: it says why there can be no call now. `admit` is asked last, in the block that
    authorises the call: it counts the call, or says why there is none.
    """

    handler: Callable[[CallContext, Params], Any]
    capability: Capability
    remote: bool = False
    request: Callable[[Params], ModelRequest] | None = None
    refuse: Callable[[datetime], str] | None = None
    admit: Callable[[datetime], str] | None = None
    is_skill: bool = False
