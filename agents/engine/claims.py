"""What an answer claims to have done, against what was done. Pure, the same every time, and careful.

A sentence counts as a claim when it begins by saying, in the first person and the past tense, that something was done
which a skill with side effects does: "I have sent it". One that says the same of the thing, "The mail has been sent",
counts when a skill that could do it was called, and failed. Questions, quotations, code, drafts of letters and reports
of what others did claim nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

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
