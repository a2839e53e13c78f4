"""Reads a model's reply: its text, why it ended, and the calls that it asks for. Pure."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from agents.enums import Mode, Outcome
from agents.models import AgentSession, Message, ToolCall
from agents.policy import guardrails
from agents.policy.guardrails import Stop, read_stop
from agents.skills.parsing import SkillCall, SkillSyntaxError, calls_from_native, parse_skill_calls
from agents.skills.skill import Skill
from agents.types import RequestedCall
from audit.redaction import redact, redact_data

MOST_CALLS: Final = 32  # of one reply: people can be asked about no more of them


@dataclass(frozen=True)
class Reply:
    """`unreadable` says why none of its calls may run; `stored` are its calls as the transcript keeps them."""

    text: str
    stop: Stop
    calls: tuple[SkillCall, ...] = ()
    stored: tuple[dict[str, Any], ...] = ()
    unreadable: str = ""


class Said(guardrails.Said, Protocol):
    """An entry of a transcript that says why it ended."""

    stop: str


@dataclass(frozen=True)
class Words:
    """What a run came to. `cut` says that the model ran out of room."""

    text: str = ""
    cut: bool = False


def final_words(transcript: Sequence[Said]) -> Words:
    """The last entry of a run that has ended, with the parts before it that were cut off and continued."""
    if not transcript:
        return Words()
    return Words(guardrails.joined(transcript), cut=transcript[-1].stop == Stop.MAX_TOKENS)


def read_reply(told: Mapping[str, Any], *, step: int, turn: int = 0) -> Reply:
    """Native calls win over tags in the text. One that cannot be read makes all of them unreadable. What stands in an
    answer that is one JSON object is quotation.

    Calls get ids of ours: those that models make up may be missing, or the same twice. Arguments are redacted once more
    when they have been read: a secret in parts, or behind escapes, is put together only then.
    """
    place_of = f"{turn}_{step}" if turn else str(step)
    text, stop_reason = str(told.get("text") or ""), str(told.get("stop_reason") or "")
    is_full = stop_reason == Stop.MAX_TOKENS or bool(told.get("full"))
    nothing = "" if is_full else "{}"  # cut off before its arguments, or without any
    native = [
        RequestedCall(_id(place_of, place), str(call["name"]), str(call["arguments"]).strip() or nothing)
        for place, call in enumerate(told.get("calls", ()), 1)
    ]
    unreadable, calls = "", []
    try:
        read = calls_from_native(native) if native else [] if _is_object(text) else parse_skill_calls(text)
        calls = [replace(call, arguments=redact_data(call.arguments)) for call in read]
    except SkillSyntaxError as error:
        unreadable = redact(str(error))
    if len(calls) > MOST_CALLS:
        unreadable, calls = f"It asks for {len(calls)} calls; a reply may ask for at most {MOST_CALLS}.", []
    stop = read_stop(
        stop_reason, has_calls=bool(calls) or bool(unreadable), truncated_call=bool(unreadable) and is_full
    )
    if unreadable:
        stored = [{"id": call.id, "name": call.name, "arguments": call.arguments, "native": True} for call in native]
    else:
        stored = [_kept(_id(place_of, place), call, native=bool(native)) for place, call in enumerate(calls, 1)]
    return Reply(text, stop, tuple(calls), tuple(stored), unreadable)


def stored_calls(stored: Iterable[Mapping[str, Any]]) -> list[SkillCall]:
    """The calls of an entry, read again. Of a reply that could be read."""
    return [SkillCall(call["name"], json.loads(call["arguments"]), call.get("group"), id=call["id"]) for call in stored]


def _is_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _id(step: str, place: int) -> str:
    return f"call_{step}_{place}"


def _kept(call_id: str, call: SkillCall, *, native: bool) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    kept = {"id": call_id, "name": call.name, "arguments": arguments, "native": native}
    return kept if call.parallel_group is None else {**kept, "group": call.parallel_group}


# --- What an answer claims to have done, against what was done. Pure, the same every time, and careful ---
#
# A sentence counts as a claim when it begins by saying, in the first person and the past tense, that something was
# done which a skill with side effects does: "I have sent it". One that says the same of the thing, "The mail has been
# sent", counts when a skill that could do it was called, and failed. Questions, quotations, code, drafts of letters
# and reports of what others did claim nothing.


CORRECTED: Final = "Corrected by lqops: this answer claimed something that was not done."
NOT_CALLED: Final = "No skill that could have done it was called."
SHOWN_CHARS: Final = 200

_SENDING: Final = frozenset({
    "send", "mail", "email", "message", "notify", "post", "http", "request", "deliver", "publish", "submit", "forward",
})  # fmt: skip
_MAILING: Final = frozenset({"send", "mail", "email", "forward"})
_PAYING: Final = frozenset({"pay", "payment", "transfer", "order", "buy", "purchase", "book", "checkout"})
_KEEPING: Final = frozenset({"save", "store", "write", "set", "keep", "record", "upload", "create", "add", "update"})
_SCHEDULING: Final = frozenset({
    "schedule", "reschedule", "calendar", "appointment", "event", "meeting", "remind", "reminder", "book",
})  # fmt: skip
_REMOVING: Final = frozenset({"delete", "remove", "erase", "drop", "clear", "cancel"})
# What nobody says of a thought or a text: such a claim is wrong as soon as no skill that could do it has succeeded.
_ACTS: Final = {
    **dict.fromkeys(("sent", "submitted", "posted", "published", "delivered", "notified", "messaged"), _SENDING),
    **dict.fromkeys(("emailed", "e-mailed", "mailed", "forwarded"), _MAILING),
    **dict.fromkeys(("paid", "transferred", "ordered", "purchased", "bought", "booked"), _PAYING),
}
# What can also be said of a text: such a claim is wrong only when a skill that could do it was called, and failed.
_DEEDS: Final = {
    **dict.fromkeys(("saved", "stored", "uploaded", "recorded", "created", "added", "updated", "changed"), _KEEPING),
    **dict.fromkeys(("deleted", "removed", "erased", "cleared", "cancelled", "canceled"), _REMOVING),
    **dict.fromkeys(("scheduled", "rescheduled"), _SCHEDULING),
}
# A word to the owner is a message, and no mail.
_TELLING: Final = frozenset({"tell"})
_TOLD: Final = frozenset({"sent", "notified", "messaged", "delivered"})
_NOT_TOLD: Final = re.compile(r"(?i)\b(?:e-?mails?|mails?|letters?|requests?|posts?|invoices?|payments?)\b")
_KNOWN: Final = _SENDING | _TELLING | _PAYING | _KEEPING | _SCHEDULING | _REMOVING
_VERB: Final = rf"({'|'.join(sorted({**_ACTS, **_DEEDS}, key=len, reverse=True))})\b"
_OPENING: Final = (
    r"(?:(?:done|ok|okay|yes|sure|great|alright|certainly|finally|then|also|next|first|now|as (?:you )?asked"
    r"|as requested)[,.!:;]?\s+){0,2}"
)
_CLAIM: Final = re.compile(
    rf"(?:^|\band |, (?:so |then )?){_OPENING}"
    r"i(?:['\u2019]ve| have)?(?: (?:already|just|also|now|then|successfully|gone ahead and)){0,2} "
    r"(?:(?:drafted|wrote|written|prepared|composed|checked|reviewed)(?: [^ ,;]+){0,5} and (?:then )?)?"
    rf"{_VERB}(?! (?:nothing|no|nobody|none|neither)\b)",
    re.IGNORECASE,
)
_REPORT: Final = re.compile(
    rf"{_OPENING}(?:(?:the|your|this|that) )?"
    r"(?:e-?mail|mail|message|notification|reminder|request|post|file|record|entry|event|meeting|ticket|payment|order)s?"
    r"(?: (?:has|have) been| was| were| is| are)?(?: (?:already|just|now|successfully)){0,2} "
    rf"{_VERB}(?!.*(?:\bby\b|\b\d{{4}}\b|\byesterday\b|\blast\b))",
    re.IGNORECASE,
)
_OTHERS: Final = re.compile(
    r"(?i)(?<!\bi )(?<!\byou )"
    r"\b(?:says|said|writes|wrote|tells|told|claims|claimed|states|stated|reports|reported|according)\b"
)
_QUOTES: Final = re.compile('(?<!\\d)["\u201c\u201d\u201e\u00ab\u00bb]')
_SENTENCE: Final = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*[ \t]*")
_DRAFT: Final = re.compile(r"(?:subject\s*:|(?:dear|hi|hello)\b[^.!?\n]{0,60},\s*$)", re.IGNORECASE)


@dataclass(frozen=True)
class Came:
    """What came of the calls of one skill: whether one succeeded, else what the last one was told."""

    succeeded: bool
    told: str = ""


def corrected(
    text: str, *, able: Iterable[str], came: Mapping[str, Came], done_before: Callable[[], frozenset[str]]
) -> str:
    """The text without its false claims, and with what really happened.

    `able` are the skills with side effects that could have been called; `came` says what came of those that were;
    `done_before` tells which succeeded earlier in the conversation, and is asked only when something is claimed.
    """
    skills = sorted(able)
    if not _claims(text, skills, came)[1]:
        return text
    known = {**came, **{name: Came(succeeded=True) for name in done_before()}}
    kept, false = _claims(text, skills, known)
    if not false:
        return text
    happened = "\n".join(f"- {_happened(name, came) if name else NOT_CALLED}" for name in false)
    return f"{kept}\n\n{CORRECTED}\n{happened}".strip()


def _claims(text: str, skills: Iterable[str], came: Mapping[str, Came]) -> tuple[str, list[str]]:
    """The text without its false claims, and the skills that those are about: "" when none was called."""
    about: dict[str, None] = {}
    lines = [_without_claims(line, skills, came, about) if own else line for line, own in _lines(text)]
    return "\n".join(line for line in lines if line is not None).strip(), list(about)


def _lines(text: str) -> Iterable[tuple[str, bool]]:
    """Each line, and whether it is the speaker's own word: not code, no quotation, not part of a letter."""
    fenced = drafted = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        drafted = drafted or bool(_DRAFT.match(line.strip(" *_#>")))
        yield line, not (fence or fenced or drafted or line.lstrip().startswith(">"))


def _without_claims(line: str, skills: Iterable[str], came: Mapping[str, Came], about: dict[str, None]) -> str | None:
    """The line without its false claims; None when nothing of it is left. `about` gets the skills they are about."""
    kept, quoted = [], False
    closes = len(_QUOTES.findall(line)) % 2 == 0  # a mark that is never closed opens no quotation
    for sentence in _SENTENCE.findall(line):
        false = _false(sentence, skills, came, quoted=quoted)
        quoted ^= closes and len(_QUOTES.findall(sentence)) % 2 == 1
        if false is None:
            kept.append(sentence)
        else:
            about.update(dict.fromkeys(false or [""]))
    left = "".join(kept)
    return left if left.strip(" -*•\t") or not line.strip() else None


def _false(sentence: str, skills: Iterable[str], came: Mapping[str, Came], *, quoted: bool) -> list[str] | None:
    """The skills that were called and did not do what the sentence claims; None when it is no false claim.

    What a skill does whose name says nothing of it, nobody knows: its success may be what is meant.
    """
    said = sentence.strip(" -*•\t")
    found = _CLAIM.search(said) or _REPORT.match(said)
    if found is None or said.endswith("?") or _is_another_s(said[: found.start()], quoted=quoted):
        return None
    verb = found[1].lower()
    words = _ACTS.get(verb) or _DEEDS[verb]
    if verb in _TOLD and not _NOT_TOLD.search(said):
        words |= _TELLING
    able = [name for name in skills if set(name.split("_")) & words]
    obscure = [name for name in skills if not set(name.split("_")) & _KNOWN]
    if any(name in came and came[name].succeeded for name in (*able, *obscure)):
        return None
    called = [name for name in able if name in came]
    if verb in _ACTS and found.re is _CLAIM and (able or words <= _SENDING | _TELLING):
        return called or [name for name in obscure if name in came]
    return called or None


def _is_another_s(before: str, *, quoted: bool) -> bool:
    """Whether what follows stands in a quotation, or tells what somebody else says."""
    return quoted ^ (len(_QUOTES.findall(before)) % 2 == 1) or bool(_OTHERS.search(before))


def _happened(name: str, came: Mapping[str, Came]) -> str:
    return f"{name} did not succeed: {came[name].told[:SHOWN_CHARS]}"


# An answer may not claim what did not happen: its claims are held against the calls of the run and of its chat.


def honest(text: str, *, session: AgentSession, transcript: Iterable[Message], skills: Mapping[str, Skill]) -> str:
    """The text as it may be told. What the model wrote stands in the journal."""
    able = [name for name, skill in skills.items() if skill.side_effects and name != "ask_person"]
    return corrected(text, able=able, came=_came(transcript), done_before=lambda: _done_in_chat(session))


def _came(transcript: Iterable[Message]) -> dict[str, Came]:
    """By the name of a skill: one success counts, whatever failed beside it."""
    names: dict[str, str] = {}
    came: dict[str, Came] = {}
    for entry in transcript:
        names.update({call["id"]: call["name"] for call in entry.calls})
        name = names.get(entry.call_id, "")
        if entry.role == "tool" and name and not (name in came and came[name].succeeded):
            came[name] = Came(succeeded=not entry.failed, told=entry.content.removeprefix("error: "))
    return came


def _done_in_chat(session: AgentSession) -> frozenset[str]:
    """What succeeded for earlier messages of the same chat: an answer may speak of it."""
    chat = session.params.get("chat") if session.mode == Mode.CHAT else None
    if not chat:
        return frozenset()
    made = ToolCall.objects.filter(
        session__owner_id=session.owner_id,
        session__mode=Mode.CHAT,
        session__params__chat=chat,
        outcome=Outcome.SUCCESS,
    )
    return frozenset(made.values_list("name", flat=True))
