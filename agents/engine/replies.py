"""Reads a model's reply: its text, its stop reason and the calls it requests.

Pure: it runs nothing and stores nothing.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agents.enums import Mode, Outcome
from agents.models import AgentSession, Message, ToolCall
from agents.policy.guardrails import CUT_OFF, Stop, read_stop
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.skills.skill import Skill
from agents.types import RequestedCall
from audit.redaction import redact, redact_data

MAX_CALLS: Final = 32  # in one reply; each of them may need a person's approval


@dataclass(frozen=True)
class Reply:
    """A reply as it was read.

    `unreadable` says why none of its calls may run. `stored` holds its calls in the transcript's form.
    """

    text: str
    stop: Stop
    calls: tuple[SkillCall, ...] = ()
    stored: tuple[dict[str, Any], ...] = ()
    unreadable: str = ""


def read_reply(data: Mapping[str, Any], *, step: int, turn: int = 0) -> Reply:
    """Read a provider's reply.

    Native calls take precedence over tags in the text. One unreadable call makes all of them unreadable. Tags inside
    an answer that is one JSON object are quotation.

    Calls get ids of our own, because those of models can be missing or repeated. Arguments are redacted again after
    parsing, because a secret in parts or behind escapes only becomes visible then.
    """
    step_id = f"{turn}_{step}" if turn else str(step)
    text = str(data.get("text") or "")
    stop_reason = str(data.get("stop_reason") or "")
    is_cut = stop_reason in CUT_OFF or bool(data.get("full"))
    no_arguments = "" if is_cut else "{}"  # a reply that was cut may have lost the arguments
    native = [
        RequestedCall(_call_id(step_id, number), str(call["name"]), str(call["arguments"]).strip() or no_arguments)
        for number, call in enumerate(data.get("calls", ()), 1)
    ]
    calls: list[SkillCall] = []
    unreadable = ""
    try:
        calls = [replace(call, arguments=redact_data(call.arguments)) for call in _parse(text, native)]
    except SkillSyntaxError as error:
        unreadable = redact(str(error))
    if len(calls) > MAX_CALLS:
        unreadable = f"It requests {len(calls)} calls; a reply may request at most {MAX_CALLS}."
        calls = []
    stop = read_stop(stop_reason, has_calls=bool(calls) or bool(unreadable), truncated_call=bool(unreadable) and is_cut)
    if unreadable:
        stored = [{"id": call.id, "name": call.name, "arguments": call.arguments, "native": True} for call in native]
    else:
        stored = [_stored(_call_id(step_id, number), call, native=bool(native)) for number, call in enumerate(calls, 1)]
    return Reply(text, stop, tuple(calls), tuple(stored), unreadable)


def stored_calls(stored: Iterable[Mapping[str, Any]]) -> list[SkillCall]:
    """Return the calls of a stored transcript entry."""
    return [SkillCall(call["name"], json.loads(call["arguments"]), call.get("group"), id=call["id"]) for call in stored]


def _parse(text: str, native: Sequence[RequestedCall]) -> list[SkillCall]:
    if native:
        return calls_from_native(native)
    return [] if _is_json_object(text) else parse_skill_calls(text)


def _is_json_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _call_id(step_id: str, number: int) -> str:
    return f"call_{step_id}_{number}"


def _stored(call_id: str, call: SkillCall, *, native: bool) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    stored = {"id": call_id, "name": call.name, "arguments": arguments, "native": native}
    return stored if call.parallel_group is None else {**stored, "group": call.parallel_group}


# --- Claims (R-235) ---
#
# An answer is checked against the calls that were made, and false claims are removed. A sentence is a claim when it
# starts by saying, in the first person and past tense, that something was done which a skill with side effects does: "I
# have sent it". "The mail has been sent" is a claim only if a skill that could do it was called and failed. Questions,
# quotations, code and letters claim nothing.


CORRECTED: Final = "Corrected by lqops: this answer claimed something that was not done."
NOT_CALLED: Final = "No skill that could have done it was called."
MESSAGE_CHARS: Final = 200

# Words in the names of skills that do what the verb of a claim says.
_SENDING: Final = frozenset({
    "send", "mail", "email", "message", "notify", "tell", "post", "http", "request", "deliver", "publish", "submit",
    "forward",
})  # fmt: skip
_MAILING: Final = frozenset({"send", "mail", "email", "forward"})
_PAYING: Final = frozenset({"pay", "payment", "transfer", "order", "buy", "purchase", "book", "checkout"})
_SAVING: Final = frozenset({"save", "store", "write", "set", "keep", "record", "upload", "create", "add", "update"})
_SCHEDULING: Final = frozenset({"schedule", "calendar", "appointment", "event", "meeting", "reminder", "book"})
_REMOVING: Final = frozenset({"delete", "remove", "erase", "drop", "clear", "cancel"})
_KNOWN: Final = _SENDING | _PAYING | _SAVING | _SCHEDULING | _REMOVING
# Verbs that are not said of a text: the claim is false unless a skill that does it succeeded.
_ACTIONS: Final = {
    **dict.fromkeys(("sent", "submitted", "posted", "published", "delivered", "notified", "messaged"), _SENDING),
    **dict.fromkeys(("emailed", "e-mailed", "mailed", "forwarded"), _MAILING),
    **dict.fromkeys(("paid", "transferred", "ordered", "purchased", "bought", "booked"), _PAYING),
}
# Verbs that can be said of a text ("I updated my estimate"): the claim is false only if such a skill failed.
_EDITS: Final = {
    **dict.fromkeys(("saved", "stored", "uploaded", "recorded", "created", "added", "updated", "changed"), _SAVING),
    **dict.fromkeys(("deleted", "removed", "erased", "cleared", "cancelled", "canceled"), _REMOVING),
    **dict.fromkeys(("scheduled", "rescheduled"), _SCHEDULING),
}
_VERB: Final = rf"({'|'.join(sorted({**_ACTIONS, **_EDITS}, key=len, reverse=True))})\b"
_OPENING: Final = (
    r"(?:(?:done|ok|okay|yes|sure|great|finally|then|also|now|as (?:you )?asked|as requested)[,.!:;]?\s+){0,2}"
)
_CLAIM: Final = re.compile(
    rf"(?:^{_OPENING}|\band )i(?:['\u2019]ve| have)?"
    r"(?: (?:already|just|also|now|then|successfully|gone ahead and)){0,2} "
    r"(?:(?:drafted|wrote|written|prepared)(?: [^ ,;]+){0,5} and (?:then )?)?"
    rf"{_VERB}(?! (?:nothing|no|nobody|none|neither)\b)",
    re.IGNORECASE,
)
_PASSIVE_CLAIM: Final = re.compile(
    rf"{_OPENING}(?:the|your|this) \w+ (?:has|have) been (?:successfully )?{_VERB}(?!.*\bby\b)", re.IGNORECASE
)
_SENTENCE: Final = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*[ \t]*")
_LETTER: Final = re.compile(r"(?:subject\s*:|(?:dear|hi|hello)\b[^.!?\n]{0,60},\s*$)", re.IGNORECASE)
_QUOTES: Final = frozenset('"\u201c\u201d\u201e\u00ab\u00bb')
_BULLETS: Final = " -*•\t"


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a skill's calls: whether one succeeded, else the message of the last one."""

    succeeded: bool
    message: str = ""


def without_false_claims(
    text: str, *, session: AgentSession, transcript: Iterable[Message], skills: Mapping[str, Skill]
) -> str:
    """Return the answer without claims that the run's calls contradict. The journal keeps the original."""
    candidates = [name for name, skill in skills.items() if skill.side_effects and name != "ask_person"]
    return correct_claims(
        text,
        candidates=candidates,
        outcomes=_outcomes(transcript),
        done_before=lambda: _done_in_chat(session),
    )


def correct_claims(
    text: str,
    *,
    candidates: Iterable[str],
    outcomes: Mapping[str, CallOutcome],
    done_before: Callable[[], frozenset[str]],
) -> str:
    """Return the text without its false claims, followed by what really happened.

    `candidates` are the skills with side effects that could have been called, `outcomes` those that were called in
    this run. `done_before` names skills that succeeded earlier in the conversation; it is called only if needed.
    """
    names = sorted(candidates)
    if not _without_false_claims(text, names, outcomes)[1]:
        return text
    known = {**outcomes, **{name: CallOutcome(succeeded=True) for name in done_before()}}
    kept, failed = _without_false_claims(text, names, known)
    if not failed:
        return text
    facts = [
        f"{name} did not succeed: {outcomes[name].message[:MESSAGE_CHARS]}" if name else NOT_CALLED for name in failed
    ]
    return "\n".join([f"{kept}\n\n{CORRECTED}", *(f"- {fact}" for fact in facts)]).strip()


def _without_false_claims(
    text: str, candidates: Sequence[str], outcomes: Mapping[str, CallOutcome]
) -> tuple[str, list[str]]:
    """Return the remaining text, and the skills that the false claims are about: "" where none was called."""
    failed: dict[str, None] = {}
    kept_lines = []
    for line, is_own in _lines(text):
        kept = []
        for sentence in _SENTENCE.findall(line) if is_own else [line]:
            false = _failed_skills(sentence.strip(_BULLETS), candidates, outcomes) if is_own else None
            if false is None:
                kept.append(sentence)
            else:
                failed.update(dict.fromkeys(false or [""]))
        kept_line = "".join(kept)
        if kept_line.strip(_BULLETS) or kept_line == line:
            kept_lines.append(kept_line)
    return "\n".join(kept_lines).strip(), list(failed)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is the speaker's own: no code, no quotation, no part of a letter."""
    in_code = in_letter = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        in_code ^= is_fence
        in_letter = in_letter or bool(_LETTER.match(line.strip(" *_#>")))
        is_quotation = line.lstrip().startswith(">") or not _QUOTES.isdisjoint(line)
        yield line, not (is_fence or in_code or in_letter or is_quotation)


def _failed_skills(sentence: str, candidates: Sequence[str], outcomes: Mapping[str, CallOutcome]) -> list[str] | None:
    """Return the skills that were called and did not do what is claimed; None if this is no false claim.

    What a skill does cannot always be told from its name: the success of such a skill may be what is meant.
    """
    found = _CLAIM.search(sentence) or _PASSIVE_CLAIM.match(sentence)
    if found is None or sentence.endswith("?"):
        return None
    verb = found[1].lower()
    words = _ACTIONS.get(verb) or _EDITS[verb]
    capable = [name for name in candidates if set(name.split("_")) & words]
    unclear = [name for name in candidates if not set(name.split("_")) & _KNOWN]
    if any(name in outcomes and outcomes[name].succeeded for name in (*capable, *unclear)):
        return None
    called = [name for name in capable if name in outcomes]
    if verb in _ACTIONS and found.re is _CLAIM and (capable or words <= _SENDING):
        return called or [name for name in unclear if name in outcomes]
    return called or None


def _outcomes(transcript: Iterable[Message]) -> dict[str, CallOutcome]:
    """Return the outcome of each skill that was called. One success counts, whatever else failed."""
    names: dict[str, str] = {}
    outcomes: dict[str, CallOutcome] = {}
    for entry in transcript:
        names.update({call["id"]: call["name"] for call in entry.calls})
        name = names.get(entry.call_id, "")
        if entry.role == "tool" and name and not (name in outcomes and outcomes[name].succeeded):
            outcomes[name] = CallOutcome(succeeded=not entry.failed, message=entry.content.removeprefix("error: "))
    return outcomes


def _done_in_chat(session: AgentSession) -> frozenset[str]:
    """Return the skills that succeeded for earlier messages of the same chat."""
    chat = session.params.get("chat") if session.mode == Mode.CHAT else None
    if not chat:
        return frozenset()
    messages = AgentSession.objects.of_chat(session.owner_id, chat).values("pk")
    calls = ToolCall.objects.filter(session__in=messages, outcome=Outcome.SUCCESS)
    return frozenset(calls.values_list("name", flat=True))
