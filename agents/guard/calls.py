"""One guarded call, from request to settlement, and what leaves the process for it.

A `Call` is planned from what somebody asks for, then filled in as the guard decides: consent, price, journal row.
Nothing here reads or writes rows.
"""

import json
import marshal
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from agents.anonymize import Anonymizer
from agents.enums import Level, Purpose, Risk, ToolIntent
from agents.guard.intents import tool_for
from agents.guard.tools import BadParams, Tool
from agents.models import AgentSession, Approval, ToolCall
from agents.policy.consent import call_digest
from agents.policy.conversation import in_form
from agents.providers.base import Chunk
from agents.skills.risk import RiskAssessor
from agents.skills.skill import Skill
from agents.text.clean import json_safe
from agents.types import ZERO, Capability, Ledger, ModelReply, ModelRequest, Price, ToolResult, WireForm
from audit.kinds import LABEL
from audit.models import SkillAudit
from audit.recorder import Head
from audit.redaction import MARKER_WORD, StreamRedactor, contains_marker, redact, redact_data, redaction_state
from audit.rows import canonical
from audit.skill_audits import skill_call

MAX_KEY = 96
MAX_ARGUMENT_CHARS = 8_000_000
OFFERS: Final = "tools"  # the parameter of a model request that holds the skills it offers
MOST_REMEMBERED: Final = 256_000  # bytes of one list of offers


# --- The request that leaves the process ---


@dataclass(frozen=True)
class OutgoingRequest:
    """A model request as it is sent, and the way back. Personal data is hidden before it is priced or sent."""

    request: ModelRequest
    anonymizer: Anonymizer | None = None

    def limited(self, max_tokens: int) -> "OutgoingRequest":
        return replace(self, request=replace(self.request, max_tokens=max_tokens))

    def in_form(self, form: WireForm) -> "OutgoingRequest":
        return replace(self, request=in_form(replace(self.request, form=form)))

    def restored(self, reply: ModelReply) -> ModelReply:
        """Return the reply with names put back and secrets masked. Nothing else sees it before."""
        text = reply.text
        arguments = [call.arguments for call in reply.calls]
        if self.anonymizer is not None:
            text = self.anonymizer.restore_reply(text)
            arguments = [self.anonymizer.restore_json(part) for part in arguments]
        calls = tuple(replace(call, arguments=redact(part)) for call, part in zip(reply.calls, arguments, strict=True))
        is_full = reply.usage is not None and reply.usage.output_tokens >= self.request.max_tokens
        return replace(reply, text=redact(text), calls=calls, is_full=is_full)

    def restoring(self, on_chunk: Callable[[Chunk], None]) -> Callable[[Chunk], None]:
        """Wrap a listener: names are put back and secrets masked, also across chunk borders."""
        names = self.anonymizer.stream() if self.anonymizer else None
        masking = StreamRedactor()

        def hand_on(chunk: Chunk) -> None:
            text = names.feed(chunk.text) if names else chunk.text
            text = masking.feed(text)
            if chunk.finished:
                text += masking.feed(names.close() if names else "") + masking.close()
            if text:
                on_chunk(Chunk(text))
            if chunk.finished:
                on_chunk(chunk)

        return hand_on


# --- The call ---


@dataclass(frozen=True)
class Call:
    """One act of an agent. The second and third group of fields are filled in by the guard, in that order."""

    session: AgentSession
    intent: ToolIntent
    tool: Tool
    arguments: dict[str, Any]
    key: str
    now: datetime
    risk: Risk | None = None
    simulation: str = ""
    fallback: str = ""  # the model to ask because the one in the arguments does not serve
    has_fallback: bool = False  # another model is asked if this one does not serve
    is_new: bool = False  # nothing can stand at its place of the run yet

    # Decided: what R5, R6 and consent let through, and the estimate that R4 judges
    phase: str = ""  # of the session as the worker knows it, until the guard has read it
    asked_digest: str = ""  # before an approver changed the arguments; empty: it is the digest
    ticket: Approval | None = None
    attempt: int = 1
    estimate: Decimal = ZERO
    outgoing: OutgoingRequest | None = None

    # Authorised: written to the journal and paid for
    row: ToolCall | None = None
    price: Price | None = None
    held: Decimal = ZERO
    ledgers: tuple[Ledger, ...] = ()
    head: Head | None = None
    is_probe: bool = False  # it tries a model that is away
    is_fresh: bool = False  # it was opened just now, without waiting: no halt can have come since
    is_undone_whole: bool = False  # if its tool fails, so that the tool needs no savepoint of its own

    def but(self, **changes: Any) -> "Call":
        """Return the call with these fields changed. It takes a fifth of the time of `dataclasses.replace`."""
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"a call has no field {', '.join(sorted(changes.keys() - _FIELDS))}.")
        changed = object.__new__(Call)
        values = vars(changed)
        values.update(vars(self), **changes)
        for name, parts in _COMPUTED_FROM.items():
            if not parts.isdisjoint(changes):
                values.pop(name, None)
        return changed

    @property
    def journal(self) -> ToolCall:
        """The journal row of a call that is open."""
        if self.row is None:
            raise RuntimeError(f"{self.intent} at {self.key} is not open: only an authorised call has a journal row.")
        return self.row

    @property
    def capability(self) -> Capability:
        return self.tool.capability

    @cached_property
    def request(self) -> ModelRequest | None:
        """The model request that the call makes, to the model that is asked in fact."""
        if self.tool.request is None:
            return None
        request = self.tool.request(self.arguments)
        return replace(request, model=self.fallback) if self.fallback else request

    @property
    def model(self) -> str:
        return self.request.model if self.request else ""

    @property
    def label(self) -> dict[str, str]:
        """The call's name in the audit log: the intent, and the skill or the model."""
        named = {"name": self.capability.name} if self.capability.name != self.intent else {}
        model = {"model": self.model} if self.model and LABEL.fullmatch(self.model) else {}
        return {"tool": self.intent, **named, **model}

    @property
    def priced_by(self) -> Mapping[str, Any]:
        """Basis of the estimate: its arguments, or the model request that it makes."""
        if self.request is not None and self.request.purpose == Purpose.EMBEDDING:
            chars = sum(len(message["content"]) for message in self.request.messages)
            return {"model": self.request.model, "purpose": Purpose.EMBEDDING, "chars": chars}
        if self.request is None or ("model" in self.arguments and not self.fallback):
            return self.arguments
        return {"model": self.request.model, "purpose": self.request.purpose}

    @property
    def is_free_and_local(self) -> bool:
        """Such a call is never seen open, so its journal row is written once, with its end."""
        return not self.tool.remote and self.tool.request is None

    @cached_property
    def arguments_json(self) -> str:
        """The arguments as canonical JSON."""
        return canonical(self.arguments)

    @property
    def holds_a_secret(self) -> bool:
        return MARKER_WORD in self.arguments_json and _holds_a_secret(self.tool, self.arguments)

    @cached_property
    def digest(self) -> str:
        """Evidence for this call at this place of the run."""
        return self._digest(self.key)

    @property
    def signature(self) -> str:
        """The same wherever in the run the call is made."""
        return self._digest("")

    def _digest(self, key: str) -> str:
        return call_digest(
            session_id=self.session.chain,
            key=key,
            intent=self.intent,
            name=self.capability.name,
            version=self.capability.version,
            phase=self.phase,
            arguments=self.arguments,
            arguments_json=self.arguments_json,
        )


_FIELDS = frozenset(field.name for field in fields(Call))
# Computed once, and again if one of these fields changes.
_COMPUTED_FROM = {
    "request": frozenset({"tool", "arguments", "fallback"}),
    "arguments_json": frozenset({"arguments"}),
    "digest": frozenset({"tool", "arguments", "key", "phase", "intent", "session"}),
}


def plan_call(
    session: AgentSession,
    intent: ToolIntent | str,
    params: Mapping[str, Any],
    *,
    key: str,
    now: datetime,
    risk: Risk | None = None,
    simulation: str = "",
) -> Call:
    """Check intent, key and parameters. Reads and writes no row; raises for what no call could be made with."""
    known = ToolIntent(intent)
    if len(key) > MAX_KEY or not LABEL.fullmatch(key):
        raise BadParams(f"the key {key!r} must be a label of at most {MAX_KEY} characters, such as 'analysis:1'.")
    tool, arguments, arguments_json, request = usable(known, params)
    is_new = not key
    if session.called_keys is not None:
        is_new = is_new or key not in session.called_keys
        session.called_keys.add(key)
    call = Call(
        session,
        known,
        tool,
        arguments,
        key or f"once:{secrets.token_urlsafe(9)}",
        now,
        risk=risk,
        simulation=simulation,
        phase=session.current_phase,
        is_new=is_new,
    )
    vars(call).update(arguments_json=arguments_json, request=request)  # what they are computed from is the same
    return call


class Usable(NamedTuple):
    """Parameters that a call can be made with, as they are stored, its tool, and the model request that it makes."""

    tool: Tool
    arguments: dict[str, Any]
    arguments_json: str
    request: ModelRequest | None


def usable(intent: ToolIntent | str, params: Mapping[str, Any]) -> Usable:
    """Return the tool of the intent and the parameters as they are stored, or raise BadParams."""
    if type(params) is not dict and not isinstance(params, Mapping):
        raise BadParams(f"the parameters of a call are an object, not {type(params).__name__}.")
    offers, offers_size = _usable_offers(params[OFFERS]) if OFFERS in params else (None, 0)
    given = json_safe(dict(params) if offers is None else {**params, OFFERS: None})
    written = canonical(given)
    size = len(written) + offers_size
    if size > MAX_ARGUMENT_CHARS:
        raise BadParams(f"the parameters are {size} characters long; at most {MAX_ARGUMENT_CHARS} are taken.")
    arguments: dict[str, Any] = redact_data(given)
    if offers is not None:
        arguments[OFFERS] = offers
    tool = tool_for(ToolIntent(intent), arguments)
    request = tool.request(arguments) if tool.request is not None else None
    return Usable(tool, arguments, written if arguments == given else canonical(arguments), request)


def _usable_offers(offers: Any) -> tuple[Any, int]:
    """Return the offered skills as they are stored, and how many characters they add. None: treat them as the rest.

    Each request of a run offers the same skills, whose many short texts take far longer to search for secrets than
    all else in it. So the last ones are remembered.
    """
    try:
        written = marshal.dumps(offers, 2)  # tells every two values apart, and writes equal ones alike
    except ValueError:  # holds something other than JSON
        return None, 0
    if len(written) > MOST_REMEMBERED:
        return None, 0
    stored, size = _stored_offers(written, redaction_state())
    return json.loads(stored), size


@lru_cache(maxsize=32)
def _stored_offers(written: bytes, _state: object) -> tuple[str, int]:
    given = json_safe({OFFERS: marshal.loads(written)})  # noqa: S302 written above
    size = len(canonical(given[OFFERS])) - len(canonical(None))
    return json.dumps(redact_data(given)[OFFERS]), size


def fitting(intent: ToolIntent | str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters as a call stores them, or raise if no call could be made with them."""
    tool, arguments, *_ = usable(intent, params)
    if _holds_a_secret(tool, arguments):
        raise BadParams("they hold a secret, or its mask; pass secrets by handle.")
    return arguments


def _holds_a_secret(tool: Tool, arguments: dict[str, Any]) -> bool:
    """A model request may quote a masked secret; an act on the world may not carry one."""
    return tool.remote and tool.request is None and contains_marker(arguments)


# --- Skill audit: arguments and results of skill calls, for people who may see content ---


def skill_audit(call: Call, result: ToolResult, *, now: datetime) -> SkillAudit | None:
    """Return the row of a skill call, also of one that was refused or failed; the event of the call stores it."""
    if not call.tool.is_skill:
        return None
    return skill_call(
        skill_name=call.capability.name,
        arguments=call.arguments["arguments"],
        output=result.error or (result.data if isinstance(result.data, str) else canonical(result.data)),
        capability_level=call.capability.level,
        risk_level=_grade(call.capability.level, call.risk),
        duration_ms=max(0, round((now - call.now).total_seconds() * 1_000)),
        now=now,
        **_whose(call.session),
    )


def refused_skill_audit(
    session: AgentSession, skill: Skill, level: Level, arguments: Mapping[str, Any], why: str, *, now: datetime
) -> SkillAudit | None:
    """Return the row of a skill call that never became one: not offered, not enabled or with unusable arguments."""
    return skill_call(
        skill_name=skill.name,
        arguments=redact_data(json_safe(dict(arguments))),
        output=why,
        capability_level=level,
        risk_level=_grade(level, RiskAssessor().assess(skill, arguments)),
        duration_ms=0,
        now=now,
        **_whose(session),
    )


def _grade(level: Level, risk: Risk | None) -> str | None:
    return str(risk or Risk.LOW) if level.rank >= Level.RESTRICTED.rank else None


def _whose(session: AgentSession) -> dict[str, Any]:
    return {"chat_id": str(session.public_id), "user_id": session.owner_id, "session_id": session.public_id}
