"""Frozen, typed values that travel between packages, and how a slice of work can end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from agents.enums import Level, Outcome, Purpose, TerminalReason, WaitingOn

ZERO = Decimal(0)
# How servers take a request, in the order of trying; the first is the default.
WIRE_FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "system": ("message", "first_user"),
    "tools": ("native", "text"),
    "token_limit": ("max_tokens", "max_completion_tokens"),
    "schema_style": ("json_schema", "json_object", "off"),
    "stream_usage": ("ask", "off"),
}
# The parts of the form that the servers of a provider may differ in.
FORM_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai_compatible": tuple(WIRE_FORMS),
    "anthropic": ("tools", "schema_style"),
    "openai_embeddings": (),
}


@dataclass(frozen=True)
class WireForm:
    """The form in which a model's server takes requests; the values are those of WIRE_FORMS."""

    system: str = "message"
    tools: str = "native"
    token_limit: str = "max_tokens"  # noqa: S105 the name of a field
    schema_style: str = "json_schema"
    stream_usage: str = "ask"


@dataclass(frozen=True)
class Usage:
    """Tokens as a provider reported them.

    What was written to the provider's cache, or read from it, is part of the input; what the model thought, of the
    output.
    """

    input_tokens: int
    output_tokens: int
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Price:
    """Price of a model in US dollars per million tokens. A rate of its cache that is not known is `input_usd`."""

    model: str
    input_usd: Decimal
    output_usd: Decimal
    overhead_tokens: int = 1_024
    cache_write_usd: Decimal | None = None
    cache_read_usd: Decimal | None = None


@dataclass(frozen=True)
class Ledger:
    """Totals of one budget.

    Charged + reserved is what was approved; actual + held is what was or may be billed.
    """

    name: str
    cap: Decimal | None
    charged: Decimal = ZERO
    reserved: Decimal = ZERO
    actual: Decimal = ZERO
    held: Decimal = ZERO
    warned: bool = False
    id: int | None = None
    resets_at: datetime | None = None

    @property
    def approved(self) -> Decimal:
        return self.charged + self.reserved

    @property
    def exposed(self) -> Decimal:
        return self.actual + self.held


@dataclass(frozen=True)
class ModelRequest:
    """One request to a model. The guard may lower `max_tokens`, never below `min_tokens`.

    `parties` are names to hide beside those that the messages show.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int = 1_024
    min_tokens: int = 256
    purpose: Purpose = Purpose.AUTONOMOUS_EXECUTOR
    anonymize: bool = True
    parties: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    form: WireForm = WireForm()


@dataclass(frozen=True)
class RequestedCall:
    """A tool call as the model wrote it: its arguments are JSON text, perhaps broken."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ModelReply:
    """A model's reply. `usage` is None if none was reported; `is_full` means that it used all its tokens.

    `form` is that of the request, if it was sent to a server; `streamed` is False for a reply in one piece. `vectors`
    has one for each text of a request for embeddings: numbers of 32 bits, of length 1.
    """

    text: str
    usage: Usage | None
    stop_reason: str = "end_turn"
    calls: tuple[RequestedCall, ...] = ()
    request_id: str = ""
    is_full: bool = False
    form: WireForm | None = None
    streamed: bool = True
    vectors: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Fetched:
    """An answer from the web."""

    status: int
    url: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class Capability:
    """A tool's declaration about itself; guard and approver go by it, not by its name.

    `addresses` names the arguments that hold a destination.
    """

    name: str
    version: str = "1"
    level: Level = Level.CONTROLLED
    side_effects: bool = True
    idempotent: bool = False
    requires_approval: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def repeatable(self) -> bool:
        """Safe to send again after a crash: it changes nothing, or takes an idempotency key."""
        return self.idempotent or not self.side_effects


@dataclass(frozen=True)
class SkillStanding:
    """An operator's settings for a skill. `chosen_level` is the level as it was set; empty: as declared."""

    enabled: bool
    level: Level
    hourly_limit: int | None = None
    chosen_level: str = ""


@dataclass(frozen=True)
class SkillPace:
    """How often a skill may be called: calls per clock hour, and the time between two calls.

    `chosen_level` and `chosen_limit` are the operators' settings that the call was planned by. It is made only if they
    still hold and the skill is still enabled.
    """

    name: str
    limit: int | None
    cooldown: timedelta
    chosen_level: str = ""
    chosen_limit: int | None = None


@dataclass(frozen=True)
class ToolResult:
    """Result of a guarded call. `cost_usd` is the Decimal that R4 approved, or 0.

    `took_ms` is measured for each call of a group.
    """

    cost_usd: Decimal
    data: Any
    outcome: Outcome
    error: str = ""
    detail: str = ""
    call_id: str = ""
    replayed: bool = False
    took_ms: int = field(default=0, compare=False)
    data_json: str = field(default="", compare=False, repr=False)  # the data as canonical JSON, if it was written

    @property
    def ok(self) -> bool:
        return self.outcome == Outcome.SUCCESS


# --- Ends of a slice of work: engines return one of these; the runner records it ---


@dataclass(frozen=True)
class Finished:
    """The session is over. `retry_at` is when its work could succeed, if that is known."""

    reason: TerminalReason = TerminalReason.COMPLETED
    error: str = ""
    retry_at: datetime | None = None


@dataclass(frozen=True)
class SliceOver:
    """There is more to do; the session goes back into the queue and resumes from its journal."""


@dataclass(frozen=True)
class Asleep:
    wake_at: datetime


@dataclass(frozen=True)
class Waiting:
    on: WaitingOn
    model: str = ""  # that it waits for
    is_busy: bool = False  # with other runs: it is not away
    runs: frozenset[int] = frozenset()  # of which it waits for one to come back, by their keys


End = Finished | SliceOver | Asleep | Waiting
