"""What an answer claims to have done, against what was done. Pure, the same every time, and careful.

A sentence counts as a claim when it begins by saying, in the first person and the past tense, that something was done
which a skill with side effects does: "I have sent it". Questions, quotations, code and drafts of letters claim nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CORRECTED: Final = "Corrected by lqops: this answer claimed something that was not done."
SHOWN_CHARS: Final = 200

_SENDING: Final = frozenset({
    "send", "mail", "email", "message", "notify", "post", "http", "request", "deliver", "publish", "submit", "forward",
})  # fmt: skip
_MAILING: Final = frozenset({"send", "mail", "email", "forward"})
_PAYING: Final = frozenset({"pay", "payment", "transfer", "order", "buy", "purchase", "book", "checkout"})
_KEEPING: Final = frozenset({"save", "store", "write", "set", "keep", "record", "upload", "create", "add", "update"})
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
}
_CLAIM: Final = re.compile(
    r"(?:^|\band |, (?:so |then )?)"
    r"(?:(?:done|ok|okay|yes|sure|great|alright|certainly|finally|then|also|next|first|now|as (?:you )?asked"
    r"|as requested)[,.!:;]?\s+){0,2}"
    r"i(?:['\u2019]ve| have)?(?: (?:already|just|also|now|then|successfully|gone ahead and)){0,2} "
    rf"({'|'.join(sorted({**_ACTS, **_DEEDS}, key=len, reverse=True))})\b",
    re.IGNORECASE,
)
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
    happened = "\n".join(f"- {_happened(name, came)}" for name in false)
    return f"{kept}\n\n{CORRECTED}\n{happened}".strip()


def _claims(text: str, skills: Iterable[str], came: Mapping[str, Came]) -> tuple[str, list[str]]:
    """The text without its false claims, and the skills that those are about."""
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
    kept = []
    for sentence in _SENTENCE.findall(line):
        false = _false(sentence, skills, came)
        about.update(dict.fromkeys(false))
        kept += [] if false else [sentence]
    left = "".join(kept)
    return left if left.strip(" -*•\t") or not line.strip() else None


def _false(sentence: str, skills: Iterable[str], came: Mapping[str, Came]) -> list[str]:
    """The skills that could have done what the sentence claims, if none of them did; empty when it is no such claim."""
    said = sentence.strip(" -*•\t")
    found = _CLAIM.search(said)
    if found is None or said.endswith("?") or said[: found.start()].count('"') % 2:
        return []
    verb = found[1].lower()
    able = [name for name in skills if set(name.split("_")) & (_ACTS.get(verb) or _DEEDS[verb])]
    if any(name in came and came[name].succeeded for name in able):
        return []
    return able if verb in _ACTS else [name for name in able if name in came]


def _happened(name: str, came: Mapping[str, Came]) -> str:
    if name not in came:
        return f"{name} was not called."
    return f"{name} did not succeed: {came[name].told[:SHOWN_CHARS]}"
